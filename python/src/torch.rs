//! Tensors of releases of torch that have no C exchange API.
//!
//! torch's `__dlpack__` looks at a tensor in Python, and makes the stream that it is told wait by way of several more objects, which
//! takes longer than all else. What it gives is asked of the function below it, once what it would refuse is ruled out, and is
//! ready on the stream that torch works on.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use pyo3::{Bound, intern};

use crate::by_type::ByType;
use crate::dlpack_in_producer::LEGACY_STREAM;
use crate::dlpack_out::unavailable;

/// What torch has for it, where a type is that of its tensors.
static TORCH: ByType<Option<Arc<Torch>>> = ByType::new();

struct Torch {
    /// A capsule of a tensor, of which nobody waits for anything.
    to_dlpack: Py<PyAny>,
    /// The handle of torch's stream on a device by its number.
    stream: Py<PyAny>,
}

/// Whether a type is torch's tensors' or derived from it.
static TENSOR: ByType<bool> = ByType::new();

/// Refuses what a tensor's memory does not say: `__dlpack__` of torch looks at the first two, and its C exchange API at none.
pub fn refuse_lazy(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if !TENSOR.of(object, |of| is_tensor_type(of).unwrap_or(false)) {
        return Ok(());
    }
    let py = object.py();
    let refused = |what: &str, instead: &str| {
        Err(unavailable(format!("the tensor {what}, which its memory does not: give {instead}")))
    };
    if object.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
        return refused("requires gradients", "tensor.detach()");
    }
    if object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
        return refused("has the negative bit", "tensor.resolve_neg()");
    }
    if object.call_method0(intern!(py, "is_conj"))?.is_truthy()? {
        return refused("has the conjugate bit", "tensor.resolve_conj()");
    }
    Ok(())
}

/// Nothing is imported that nobody has imported.
fn is_tensor_type(of: &Bound<'_, PyType>) -> PyResult<bool> {
    let modules = of.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(torch) = modules.get_item("torch")? else { return Ok(false) };
    of.is_subclass(&torch.getattr("Tensor")?)
}

/// A capsule of one of torch's tensors on a CUDA device, and the stream that it is ready on. `None` for all other objects, and for
/// tensors that `__dlpack__` refuses, or has something to do to.
pub fn capsule<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, usize)>> {
    let py = object.py();
    let Some(torch) = TORCH.of(object, |of| look_up(of).ok().flatten().map(Arc::new)) else {
        return Ok(None);
    };
    let is = |name| object.getattr(name)?.is_truthy();
    let answers = |name| object.call_method0(name)?.is_truthy();
    if !is(intern!(py, "is_cuda"))?
        || is(intern!(py, "requires_grad"))?
        || answers(intern!(py, "is_conj"))?
        || answers(intern!(py, "is_neg"))?
    {
        return Ok(None);
    }
    let device = object.call_method0(intern!(py, "get_device"))?;
    let stream: usize = torch.stream.call1(py, (&device,))?.extract(py)?;
    let capsule = torch.to_dlpack.bind(py).call1((object,))?;
    Ok(Some((capsule, if stream == 0 { LEGACY_STREAM } else { stream })))
}

/// Nothing is imported that nobody has imported. Types derived from torch's may have ways of their own.
fn look_up(of: &Bound<'_, PyType>) -> PyResult<Option<Torch>> {
    let py = of.py();
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(torch) = modules.get_item("torch")? else { return Ok(None) };
    if !of.is(&torch.getattr("Tensor")?) {
        return Ok(None);
    }
    let to_dlpack = torch.getattr("to_dlpack")?.unbind();
    let stream = torch.getattr("_C")?.getattr_opt("_cuda_getCurrentRawStream")?;
    Ok(stream.map(|stream| Torch { to_dlpack, stream: stream.unbind() }))
}
