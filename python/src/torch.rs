//! Tensors of releases of torch that have no C exchange API.
//!
//! Told a stream, torch's `__dlpack__` makes it wait by way of several objects of Python's, which takes longer than all else.
//! Told that nobody waits, it leaves the order to who asks: what it gives is ready on the stream that torch works on.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::by_type::ByType;
use crate::dlpack_in_producer::LEGACY_STREAM;

/// The function that tells torch's stream on a device by its number, for types whose `__dlpack__` is torch's.
static STREAMS: ByType<Option<Arc<Py<PyAny>>>> = ByType::new();

/// The stream that torch works on, on the device of one of its tensors; `None` for all other objects, and for tensors on the
/// host.
pub fn stream_of(object: &Bound<'_, PyAny>) -> Option<usize> {
    let py = object.py();
    let stream_on = STREAMS.of(object, |of| look_up(of).ok().flatten().map(Arc::new))?;
    if !object.getattr(intern!(py, "is_cuda")).ok()?.is_truthy().ok()? {
        return None;
    }
    let device = object.call_method0(intern!(py, "get_device")).ok()?;
    let stream: usize = stream_on.call1(py, (&device,)).ok()?.extract(py).ok()?;
    Some(if stream == 0 { LEGACY_STREAM } else { stream })
}

/// Nothing is imported that nobody has imported.
fn look_up(of: &Bound<'_, PyType>) -> PyResult<Option<Py<PyAny>>> {
    let py = of.py();
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(torch) = modules.get_item("torch")? else { return Ok(None) };
    let own = torch.getattr("Tensor")?.getattr("__dlpack__")?;
    if !of.getattr("__dlpack__")?.is(&own) {
        return Ok(None);
    }
    torch.getattr("_C")?.getattr_opt("_cuda_getCurrentRawStream").map(|found| found.map(Bound::unbind))
}
