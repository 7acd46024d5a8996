//! Imports one tensor: through the C exchange API, a capsule, `__dlpack__`, or
//! `__cuda_array_interface__`.

use std::ffi::c_void;

use crossdock_memory::{Ready, Stream};
use crossdock_plugin_api::{Device, abi};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};

use crate::dlpack::abi::{self as dlpack_abi, DeviceType};
use crate::dlpack::exchange_api::ExchangeApi;
use crate::dlpack::tensor::{Managed, VERSION, cuda_device, take};
use crate::dlpack::torch;
use crate::objects::session::Shared;
use crate::runtime::errors::OrRaise;
use crate::runtime::process::detach;

/// CUDA's handle of the legacy default stream (`CU_STREAM_LEGACY`).
pub const LEGACY_STREAM: usize = 1;

/// An imported tensor, and when its data is ready.
pub struct ImportedTensor {
    pub tensor: Managed,
    readiness: Readiness,
}

enum Readiness {
    Now,
    /// The data is ready after this event on the device.
    After(Device, Ready),
    /// The data is ready after the work submitted to this stream of the host, which waits for the
    /// producer.
    On(Stream),
}

impl ImportedTensor {
    /// A tensor that is ready.
    pub fn ready_now(tensor: Managed) -> Self {
        Self { tensor, readiness: Readiness::Now }
    }

    /// A tensor that is ready after the work submitted to a stream of its producer.
    ///
    /// # Safety
    /// `stream` is the handle of a live stream of the device.
    pub unsafe fn after(tensor: Managed, shared: &Shared, device: Device, stream: usize) -> PyResult<Self> {
        let raw = stream as *mut c_void;
        let backend = shared.session.host().backend();
        // SAFETY: this function requires a live stream of the device, as `is_idle` does.
        let idle = device.r#type != abi::DEVICE_CUDA || unsafe { backend.is_idle(device, raw) };
        if idle {
            return Ok(Self::ready_now(tensor));
        }
        let ready = match stream {
            LEGACY_STREAM if device == shared.session.device() => shared.legacy_stream()?.record(),
            // SAFETY: this function requires a live stream. The adopted handle is dropped before
            // this function returns.
            _ => unsafe { shared.session.memory().adopt_stream(device, raw) }.or_raise()?.record(),
        };
        Ok(Self { tensor, readiness: Readiness::After(device, ready.or_raise()?) })
    }

    /// Returns the event after which the tensor may be read. Does not make a stream wait.
    pub fn ready(&self) -> PyResult<Ready> {
        match &self.readiness {
            Readiness::Now => Ok(Ready::Now),
            Readiness::After(_, ready) => Ok(ready.clone()),
            Readiness::On(stream) => stream.record().or_raise(),
        }
    }

    /// Makes later work of the host on the tensor's device wait for the tensor's data, and returns
    /// the tensor.
    ///
    /// A copy from one CUDA device to another runs on the session's stream. Because that stream
    /// cannot wait for a stream of the other device, the host waits. A copy to the host runs on the
    /// tensor's device.
    pub fn into_ordered(self, py: Python<'_>, shared: &Shared) -> PyResult<Managed> {
        let stream = match &self.readiness {
            Readiness::Now => return Ok(self.tensor),
            Readiness::On(stream) => stream.clone(),
            Readiness::After(device, ready) => {
                let stream = stream_on(shared, *device)?;
                stream.wait(ready).or_raise()?;
                stream
            }
        };
        let target = shared.session.device();
        if target != stream.device() && target != Device::CPU {
            detach(py, || stream.synchronize()).or_raise()?;
        }
        Ok(self.tensor)
    }
}

/// Imports the tensor of `object`.
///
/// # Errors
/// TypeError if the object implements none of the protocols; BufferError for a lazy torch tensor;
/// any exception that the producer raises.
pub fn import_tensor(py: Python<'_>, shared: &Shared, object: &Bound<'_, PyAny>) -> PyResult<ImportedTensor> {
    torch::reject_lazy(object)?;
    if let Some(api) = ExchangeApi::of(object) {
        let tensor = api.tensor(object)?;
        let Some(device) = device_of(shared, &tensor) else { return Ok(ImportedTensor::ready_now(tensor)) };
        // NULL is the legacy default stream.
        let stream = match api.stream(py, device)? {
            null if null.is_null() => LEGACY_STREAM,
            stream => stream as usize,
        };
        // SAFETY: the exchange API returns its library's current stream of the device, which is
        // alive.
        return unsafe { ImportedTensor::after(tensor, shared, device, stream) };
    }
    // SAFETY: `PyCapsule_CheckExact` accepts any object.
    if unsafe { ffi::PyCapsule_CheckExact(object.as_ptr()) } != 0 {
        let tensor = take(object, "from_dlpack")?;
        let Some(device) = device_of(shared, &tensor) else { return Ok(ImportedTensor::ready_now(tensor)) };
        // A capsule has no stream. By convention its tensor is ready on the legacy default stream.
        // SAFETY: the legacy default stream exists as long as its context.
        return unsafe { ImportedTensor::after(tensor, shared, device, LEGACY_STREAM) };
    }
    if let Some((capsule, stream)) = torch::capsule(object)? {
        let tensor = take(&capsule, "torch.to_dlpack")?;
        let Some(device) = device_of(shared, &tensor) else { return Ok(ImportedTensor::ready_now(tensor)) };
        // SAFETY: torch returned its current stream of the device, which is alive.
        return unsafe { ImportedTensor::after(tensor, shared, device, stream) };
    }
    import_by_protocol(py, shared, object)
}

fn import_by_protocol(
    py: Python<'_>,
    shared: &Shared,
    object: &Bound<'_, PyAny>,
) -> PyResult<ImportedTensor> {
    let Some(method) = object.getattr_opt(intern!(py, "__dlpack_device__"))? else {
        if object.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return crate::cuda::array_interface::tensor_from(shared, object);
        }
        return Err(PyTypeError::new_err(format!(
            "from_dlpack: expected a tensor with __dlpack_device__ or a DLPack capsule, got {}; use from_arrow for Arrow objects",
            object.get_type().name()?
        )));
    };
    let result = method.call0()?;
    let (device_type, id): (i64, i64) = result.extract().map_err(|_| {
        PyTypeError::new_err(format!(
            "__dlpack_device__: expected a pair (device type, device id), got {result}"
        ))
    })?;
    let number = |n: i64| i32::try_from(n).unwrap_or(i32::MAX);
    let device = dlpack_abi::Device {
        device_type: DeviceType(u32::try_from(device_type).unwrap_or(u32::MAX)),
        device_id: number(id),
    };
    let Some(device) = cuda_device(device, shared.session.device()) else {
        return Ok(ImportedTensor::ready_now(take(&call(object, None)?, "__dlpack__")?));
    };
    let stream = stream_on(shared, device)?;
    let tensor = take(&call(object, Some(stream.native() as usize))?, "__dlpack__")?;
    Ok(ImportedTensor { tensor, readiness: Readiness::On(stream) })
}

/// Calls `__dlpack__` with `max_version`. If the producer raises a TypeError, calls it again
/// without `max_version`, as the array API standard recommends for older producers. `stream` is
/// always passed for device memory.
fn call<'py>(object: &Bound<'py, PyAny>, stream: Option<usize>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let name = intern!(py, "__dlpack__");
    let arguments = PyDict::new(py);
    if let Some(stream) = stream {
        arguments.set_item(intern!(py, "stream"), stream)?;
    }
    let with_version = arguments.copy()?;
    with_version.set_item(intern!(py, "max_version"), VERSION)?;
    match object.call_method(name, (), Some(&with_version)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            object.call_method(name, (), Some(&arguments)).inspect_err(|second| {
                // The first error only reports the unknown argument `max_version`, so the second
                // error is raised.
                second.set_cause(py, Some(error));
            })
        }
        result => result,
    }
}

/// Returns the CUDA device of a tensor, or `None` if its data needs no stream.
fn device_of(shared: &Shared, tensor: &Managed) -> Option<Device> {
    tensor.tensor().and_then(|tensor| cuda_device(tensor.device, shared.session.device()))
}

/// Returns the host's stream on a device. This is the session's stream if the session is on the
/// device, else the device's default stream.
pub fn stream_on(shared: &Shared, device: Device) -> PyResult<Stream> {
    let stream = shared.session.stream();
    if device == stream.device() {
        return Ok(stream.clone());
    }
    stream.memory().default_stream(device).or_raise()
}
