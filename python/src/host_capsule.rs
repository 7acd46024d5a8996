//! The capsule `crossdock.host.v1`: a session's host for other extension modules, which link nothing of ours.

use std::ffi::CStr;

use crossdock_plugin_api::Host;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::process::{generation, is_over};

/// Its pointer is to a `crossdock_host` of crossdock.h, alive as long as the capsule; who needs it longer retains it.
const NAME: &CStr = c"crossdock.host.v1";

struct Lent {
    _host: Host,
    generation: u32,
}

/// A capsule of `host`.
pub fn lend(py: Python<'_>, host: Host) -> PyResult<Bound<'_, PyAny>> {
    let pointer = host.as_ptr().cast_mut().cast();
    let context = Box::into_raw(Box::new(Lent { _host: host, generation: generation() }));
    // SAFETY: the pointer is not NULL, the name static; the destructor frees what the context is.
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
/// A capsule that `lend` made.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: by this function's own contract; destroyed once.
    unsafe {
        let lent = ffi::PyCapsule_GetContext(capsule).cast::<Lent>();
        if !lent.is_null() && !is_over((*lent).generation) {
            drop(Box::from_raw(lent));
        }
    }
}
