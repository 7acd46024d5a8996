//! Calls the DLPack C exchange API of other libraries: a function table in the attribute
//! `__dlpack_c_exchange_api__` of a type.

use std::ffi::c_void;
use std::ptr::NonNull;

use crossdock_plugin_api::Device;
use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::dlpack::abi::{DeviceType, ExchangeHeader, ExchangeTable, MAJOR};
use crate::dlpack::by_type::ByType;
use crate::dlpack::tensor::{Form, Managed};

/// The attribute of a tensor type.
pub const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";
/// The name of the capsule in the attribute.
pub const CAPSULE: &std::ffi::CStr = c"dlpack_exchange_api";

static APIS: ByType<Option<ExchangeApi>> = ByType::new();

/// A function table that lives as long as the process.
#[derive(Clone, Copy)]
pub struct ExchangeApi(&'static ExchangeTable);

// SAFETY: the table is never modified, and its functions are only called with the interpreter's
// lock held.
unsafe impl Send for ExchangeApi {}

impl ExchangeApi {
    /// Returns the function table of an object's type. `None` if the type has no table of a known
    /// version.
    pub fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        APIS.get(object, Self::look_up)
    }

    fn look_up(r#type: &Bound<'_, PyType>) -> Option<Self> {
        // If the attribute is not a capsule of this name, the type may implement other protocols.
        let capsule = r#type.getattr_opt(ATTRIBUTE).ok().flatten()?;
        // SAFETY: `PyCapsule_IsValid` accepts any object. `PyCapsule_GetPointer` requires a valid
        // capsule, which that check ensures.
        let mut header = unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), CAPSULE.as_ptr()) == 0 {
                return None;
            }
            ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()).cast::<ExchangeHeader>()
        };
        // SAFETY: DLPack guarantees that the pointer under this name is a table that lives as long
        // as the process. In every version, the table begins with a header, and `prev_api` is NULL
        // or a table of an older version.
        unsafe {
            while header.as_ref()?.version.major != MAJOR {
                header = header.as_ref()?.prev_api;
            }
            let api = header.cast::<ExchangeTable>().as_ref()?;
            let is_complete =
                api.managed_tensor_from_py_object_no_sync.is_some() && api.current_work_stream.is_some();
            is_complete.then_some(Self(api))
        }
    }

    /// Exports an object of the type. The tensor is ready on the stream that
    /// [`ExchangeApi::stream`] returns.
    pub fn tensor(self, object: &Bound<'_, PyAny>) -> PyResult<Managed> {
        let mut out = std::ptr::null_mut();
        let status = match self.0.managed_tensor_from_py_object_no_sync {
            // SAFETY: the object is of the table's type, `out` is valid for the call, and the
            // interpreter's lock is held.
            Some(f) => unsafe { f(object.as_ptr().cast(), &mut out) },
            None => -1,
        };
        match NonNull::new(out) {
            // SAFETY: on success the function passes ownership of a versioned tensor.
            Some(tensor) if status == 0 => Ok(unsafe { Managed::new(Form::Versioned, tensor.cast()) }),
            _ => Err(raised(object.py(), "managed_tensor_from_py_object_no_sync")),
        }
    }

    /// Returns the handle of the library's current stream on a CUDA device.
    pub fn stream(self, py: Python<'_>, device: Device) -> PyResult<*mut c_void> {
        let mut out = std::ptr::null_mut();
        let id = i32::try_from(device.id).unwrap_or(0);
        let status = match self.0.current_work_stream {
            // SAFETY: `out` is valid for the call, and the interpreter's lock is held.
            Some(f) => unsafe { f(DeviceType::CUDA, id, &mut out) },
            None => -1,
        };
        if status == 0 { Ok(out) } else { Err(raised(py, "current_work_stream")) }
    }
}

/// Returns the exception that a function raised, or a SystemError if it failed without raising.
fn raised(py: Python<'_>, function: &str) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| {
        PySystemError::new_err(format!("{ATTRIBUTE}: {function} failed without an exception"))
    })
}
