//! Fast import of torch tensors, for releases of torch without the C exchange API.
//!
//! torch's `__dlpack__` checks the tensor and orders the streams in Python, which takes longer than
//! all other steps of the import. This module checks the tensor itself and calls the function that
//! `__dlpack__` calls. The tensor is ready on torch's current stream.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use pyo3::{Bound, intern};

use crate::dlpack::by_type::ByType;
use crate::dlpack::export::unavailable;
use crate::dlpack::producer::LEGACY_STREAM;

/// torch's functions if the type is `torch.Tensor`.
static TORCH: ByType<Option<Arc<Torch>>> = ByType::new();

struct Torch {
    /// Exports a tensor without ordering any stream.
    to_dlpack: Py<PyAny>,
    /// Returns the handle of torch's current stream of a device, by its id.
    stream: Py<PyAny>,
}

/// Whether a type is `torch.Tensor` or derived from it.
static TENSOR: ByType<bool> = ByType::new();

/// Rejects torch tensors whose memory does not hold their values. torch's `__dlpack__` checks only
/// gradients and the conjugate bit, and its C exchange API checks nothing.
///
/// # Errors
/// BufferError that names the torch function to call first.
pub fn reject_lazy(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if !TENSOR.get(object, |r#type| is_tensor_type(r#type).unwrap_or(false)) {
        return Ok(());
    }
    let py = object.py();
    let rejected = |what: &str, instead: &str| {
        Err(unavailable(format!("the tensor {what}, so its memory does not hold its values: pass {instead}")))
    };
    if object.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
        return rejected("requires gradients", "tensor.detach()");
    }
    if object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
        return rejected("has the negative bit", "tensor.resolve_neg()");
    }
    if object.call_method0(intern!(py, "is_conj"))?.is_truthy()? {
        return rejected("has the conjugate bit", "tensor.resolve_conj()");
    }
    Ok(())
}

/// Does not import torch. If torch is not imported, no object is a torch tensor.
fn is_tensor_type(r#type: &Bound<'_, PyType>) -> PyResult<bool> {
    let modules = r#type.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(torch) = modules.get_item("torch")? else { return Ok(false) };
    r#type.is_subclass(&torch.getattr("Tensor")?)
}

/// Exports a torch tensor on a CUDA device, and returns the capsule and the stream on which it is
/// ready. Returns `None` for other objects, and for tensors that `__dlpack__` rejects or converts.
pub fn capsule<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, usize)>> {
    let py = object.py();
    let Some(torch) = TORCH.get(object, |r#type| look_up(r#type).ok().flatten().map(Arc::new)) else {
        return Ok(None);
    };
    let attribute = |name| object.getattr(name)?.is_truthy();
    let method = |name| object.call_method0(name)?.is_truthy();
    if !attribute(intern!(py, "is_cuda"))?
        || attribute(intern!(py, "requires_grad"))?
        || method(intern!(py, "is_conj"))?
        || method(intern!(py, "is_neg"))?
    {
        return Ok(None);
    }
    let device = object.call_method0(intern!(py, "get_device"))?;
    let stream: usize = torch.stream.call1(py, (&device,))?.extract(py)?;
    let capsule = torch.to_dlpack.bind(py).call1((object,))?;
    Ok(Some((capsule, if stream == 0 { LEGACY_STREAM } else { stream })))
}

/// Does not import torch. Subclasses of `torch.Tensor` are left to `__dlpack__`, which they may
/// override.
fn look_up(r#type: &Bound<'_, PyType>) -> PyResult<Option<Torch>> {
    let py = r#type.py();
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(torch) = modules.get_item("torch")? else { return Ok(None) };
    if !r#type.is(&torch.getattr("Tensor")?) {
        return Ok(None);
    }
    let to_dlpack = torch.getattr("to_dlpack")?.unbind();
    let stream = torch.getattr("_C")?.getattr_opt("_cuda_getCurrentRawStream")?;
    Ok(stream.map(|stream| Torch { to_dlpack, stream: stream.unbind() }))
}
