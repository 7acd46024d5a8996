//! Creates the capsule `crossdock.host.v1`: a session's host, for extension modules that link
//! nothing of Crossdock.

use std::ffi::CStr;

use crossdock_plugin_api::Host;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::runtime::process::{generation, must_leak};

/// The name of the capsule. Its pointer is a `crossdock_host*` (crossdock.h), valid while the
/// capsule lives. A consumer that needs it longer retains it.
const NAME: &CStr = c"crossdock.host.v1";

/// The context of the capsule.
struct CapsuleHost {
    _host: Host,
    generation: u32,
}

/// Creates a capsule of `host`.
pub fn new_capsule(py: Python<'_>, host: Host) -> PyResult<Bound<'_, PyAny>> {
    let pointer = host.as_ptr().cast_mut().cast();
    let context = Box::into_raw(Box::new(CapsuleHost { _host: host, generation: generation() }));
    // SAFETY: `pointer` is not NULL and the name is static. The context is a `Box` that `destroy`
    // or an error path frees.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, NAME.as_ptr(), None);
        if capsule.is_null() || ffi::PyCapsule_SetContext(capsule, context.cast()) != 0 {
            drop(Box::from_raw(context));
            return Err(PyErr::fetch(py));
        }
        let capsule = Bound::from_owned_ptr(py, capsule);
        match ffi::PyCapsule_SetDestructor(capsule.as_ptr(), Some(destroy)) {
            0 => Ok(capsule),
            _ => {
                drop(Box::from_raw(context));
                Err(PyErr::fetch(py))
            }
        }
    }
}

/// # Safety
/// `capsule` was created by `new_capsule`.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: `new_capsule` set the context to a `Box`, and Python calls a destructor once.
    unsafe {
        let context = ffi::PyCapsule_GetContext(capsule).cast::<CapsuleHost>();
        if !context.is_null() && !must_leak((*context).generation) {
            drop(Box::from_raw(context));
        }
    }
}
