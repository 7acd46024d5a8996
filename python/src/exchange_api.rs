//! Others' DLPack C exchange API: a table of functions that hangs on a type, as `__dlpack_c_exchange_api__`.

use std::ffi::c_void;
use std::ptr::NonNull;

use crossdock_plugin_api::Device;
use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::by_type::ByType;
use crate::dlpack_abi::{DeviceType, ExchangeHeader, ExchangeTable, MAJOR};
use crate::dlpack_tensor::{Form, Managed};

/// The attribute of the type.
pub const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";
/// The capsule that is there.
pub const CAPSULE: &std::ffi::CStr = c"dlpack_exchange_api";

static KNOWN: ByType<Option<ExchangeApi>> = ByType::new();

/// A table that lives as long as the process.
#[derive(Clone, Copy)]
pub struct ExchangeApi(&'static ExchangeTable);

// SAFETY: a table of functions that nobody changes; whoever calls one holds the interpreter's lock.
unsafe impl Send for ExchangeApi {}

impl ExchangeApi {
    /// That of an object's type, if it has one that is understood.
    pub fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        KNOWN.of(object, Self::look_up)
    }

    fn look_up(r#type: &Bound<'_, PyType>) -> Option<Self> {
        // A type whose attribute is something else speaks the other protocols.
        let capsule = r#type.getattr_opt(ATTRIBUTE).ok().flatten()?;
        // SAFETY: any object may be asked.
        let mut header = unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), CAPSULE.as_ptr()) == 0 {
                return None;
            }
            ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()).cast::<ExchangeHeader>()
        };
        // SAFETY: under this name is a table, which lives as long as the process and begins with a header in every version;
        // the tables of older versions that it leads to likewise.
        unsafe {
            while header.as_ref()?.version.major != MAJOR {
                header = header.as_ref()?.prev_api;
            }
            let api = header.cast::<ExchangeTable>().as_ref()?;
            let whole =
                api.managed_tensor_from_py_object_no_sync.is_some() && api.current_work_stream.is_some();
            whole.then_some(Self(api))
        }
    }

    /// The tensor of an object of the type. It is ready on the stream that [`ExchangeApi::stream`] tells.
    pub fn tensor(self, object: &Bound<'_, PyAny>) -> PyResult<Managed> {
        let mut out = std::ptr::null_mut();
        let status = match self.0.managed_tensor_from_py_object_no_sync {
            // SAFETY: the table's function on an object of its type, with the interpreter's lock held.
            Some(f) => unsafe { f(object.as_ptr().cast(), &mut out) },
            None => -1,
        };
        match NonNull::new(out) {
            // SAFETY: on success the tensor is ours.
            Some(tensor) if status == 0 => Ok(unsafe { Managed::new(Form::Versioned, tensor.cast()) }),
            _ => Err(raised(object.py(), "managed_tensor_from_py_object_no_sync")),
        }
    }

    /// The handle of the stream that its library works on, on a CUDA device.
    pub fn stream(self, py: Python<'_>, device: Device) -> PyResult<*mut c_void> {
        let mut out = std::ptr::null_mut();
        let id = i32::try_from(device.id).unwrap_or(0);
        let status = match self.0.current_work_stream {
            // SAFETY: the table's function, with the interpreter's lock held.
            Some(f) => unsafe { f(DeviceType::CUDA, id, &mut out) },
            None => -1,
        };
        if status == 0 { Ok(out) } else { Err(raised(py, "current_work_stream")) }
    }
}

/// What a function has raised; one that failed without raising is its library's mistake.
fn raised(py: Python<'_>, function: &str) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| {
        PySystemError::new_err(format!("{ATTRIBUTE}: {function} failed, and raised nothing"))
    })
}
