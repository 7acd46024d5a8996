//! One tensor from whoever has it: by the C exchange API, by `__dlpack__`, out of a capsule, or, of those who have nothing
//! else, by `__cuda_array_interface__`.

use std::ffi::c_void;

use crossdock_memory::{Ready, Stream};
use crossdock_plugin_api::{Device, abi};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};

use crate::dlpack_abi::{self, DeviceType};
use crate::dlpack_tensor::{Managed, VERSION, cuda_device, take};
use crate::errors::OrRaise;
use crate::exchange_api::ExchangeApi;
use crate::process::detach;
use crate::session::Shared;
use crate::torch;

/// The legacy default stream, as CUDA numbers it.
pub const LEGACY_STREAM: usize = 1;

/// A tensor that somebody gave, and when it is there.
pub struct Asked {
    pub tensor: Managed,
    there: There,
}

enum There {
    Now,
    /// After this moment on the device.
    After(Device, Ready),
    /// After what our stream has been given: its producer has made it wait.
    On(Stream),
}

impl Asked {
    /// What is there without anybody's waiting.
    pub fn at_once(tensor: Managed) -> Self {
        Self { tensor, there: There::Now }
    }

    /// What is there when a stranger's stream has done what it has been given.
    ///
    /// # Safety
    /// `theirs` is a live stream of the device.
    pub unsafe fn after(tensor: Managed, shared: &Shared, device: Device, theirs: usize) -> PyResult<Self> {
        let raw = theirs as *mut c_void;
        let backend = shared.session.host().backend();
        // SAFETY: by this function's own contract.
        let idle = device.r#type != abi::DEVICE_CUDA || unsafe { backend.is_idle(device, raw) };
        if idle {
            return Ok(Self::at_once(tensor));
        }
        let ready = match theirs {
            LEGACY_STREAM if device == shared.session.device() => shared.legacy_stream()?.record(),
            // SAFETY: by this function's own contract; it is dropped here.
            _ => unsafe { shared.session.memory().adopt_stream(device, raw) }.or_raise()?.record(),
        };
        Ok(Self { tensor, there: There::After(device, ready.or_raise()?) })
    }

    /// When it may be read; nothing is made to wait.
    pub fn ready(&self) -> PyResult<Ready> {
        match &self.there {
            There::Now => Ok(Ready::Now),
            There::After(_, ready) => Ok(ready.clone()),
            There::On(ours) => ours.record().or_raise(),
        }
    }

    /// The tensor, after which our work on its device comes.
    ///
    /// From one accelerator to another a tensor is carried on the session's stream, which waits for no stream of the other
    /// device: the host waits. To the host it is carried on that device's own.
    pub fn in_order(self, py: Python<'_>, shared: &Shared) -> PyResult<Managed> {
        let ours = match &self.there {
            There::Now => return Ok(self.tensor),
            There::On(ours) => ours.clone(),
            There::After(device, ready) => {
                let ours = stream_on(shared, *device)?;
                ours.wait(ready).or_raise()?;
                ours
            }
        };
        let to = shared.session.device();
        if to != ours.device() && to != Device::CPU {
            detach(py, || ours.synchronize()).or_raise()?;
        }
        Ok(self.tensor)
    }
}

/// The tensor of `object`.
///
/// # Errors
/// TypeError where it speaks none of the protocols; BufferError for a tensor that is more than its memory; what the producer raises.
pub fn ask(py: Python<'_>, shared: &Shared, object: &Bound<'_, PyAny>) -> PyResult<Asked> {
    torch::refuse_lazy(object)?;
    if let Some(api) = ExchangeApi::of(object) {
        let tensor = api.tensor(object)?;
        let Some(device) = device_of(shared, &tensor) else { return Ok(Asked::at_once(tensor)) };
        // NULL is the legacy default stream.
        let theirs = match api.stream(py, device)? {
            none if none.is_null() => LEGACY_STREAM,
            stream => stream as usize,
        };
        // SAFETY: the stream that its library works on is a live one of the device.
        return unsafe { Asked::after(tensor, shared, device, theirs) };
    }
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_CheckExact(object.as_ptr()) } != 0 {
        let tensor = take(object, "from_dlpack")?;
        let Some(device) = device_of(shared, &tensor) else { return Ok(Asked::at_once(tensor)) };
        // Nobody can be asked to wait: it is taken to be ready on the legacy default stream, as capsules always were.
        // SAFETY: that stream is always there.
        return unsafe { Asked::after(tensor, shared, device, LEGACY_STREAM) };
    }
    if let Some((capsule, theirs)) = torch::capsule(object)? {
        let tensor = take(&capsule, "torch.to_dlpack")?;
        let Some(device) = device_of(shared, &tensor) else { return Ok(Asked::at_once(tensor)) };
        // SAFETY: the stream that torch works on is a live one of the device.
        return unsafe { Asked::after(tensor, shared, device, theirs) };
    }
    by_protocol(py, shared, object)
}

fn by_protocol(py: Python<'_>, shared: &Shared, object: &Bound<'_, PyAny>) -> PyResult<Asked> {
    let Some(place) = object.getattr_opt(intern!(py, "__dlpack_device__"))? else {
        if object.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return crate::cuda_array_interface::tensor_from(shared, object);
        }
        return Err(PyTypeError::new_err(format!(
            "from_dlpack: a {} has no __dlpack_device__, expected a tensor of a library that speaks DLPack, or a capsule of \
             one; for Arrow's objects there is from_arrow",
            object.get_type().name()?
        )));
    };
    let answer = place.call0()?;
    let (device_type, id): (i64, i64) = answer.extract().map_err(|_| {
        PyTypeError::new_err(format!(
            "__dlpack_device__: expected a device's type and its number, got {answer}"
        ))
    })?;
    let number = |n: i64| i32::try_from(n).unwrap_or(i32::MAX);
    let place = dlpack_abi::Device {
        device_type: DeviceType(u32::try_from(device_type).unwrap_or(u32::MAX)),
        device_id: number(id),
    };
    let Some(device) = cuda_device(place, shared.session.device()) else {
        return Ok(Asked::at_once(take(&call(object, None)?, "__dlpack__")?));
    };
    let ours = stream_on(shared, device)?;
    let tensor = take(&call(object, Some(ours.native() as usize))?, "__dlpack__")?;
    Ok(Asked { tensor, there: There::On(ours) })
}

/// Calls `__dlpack__` with what all of its versions have in common and then with less, as the standard says: an argument that
/// a producer does not know is a TypeError. Without a stream, which its first version had, nobody is asked for device memory.
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
                // What it says of an argument that it does not know is no help to anybody.
                second.set_cause(py, Some(error));
            })
        }
        answer => answer,
    }
}

/// Where streams have to be thought of, as the tensor says.
fn device_of(shared: &Shared, tensor: &Managed) -> Option<Device> {
    tensor.tensor().and_then(|tensor| cuda_device(tensor.device, shared.session.device()))
}

/// The stream of ours on which work on a device begins.
pub fn stream_on(shared: &Shared, device: Device) -> PyResult<Stream> {
    let own = shared.session.stream();
    if device == own.device() {
        return Ok(own.clone());
    }
    own.memory().default_stream(device).or_raise()
}
