//! Creates and consumes PyCapsules of C structs.

use std::ffi::CStr;

use crossdock_plugin_api::{CapsuleObject, Owned};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::runtime::errors::usage;
use crate::runtime::process::{generation, must_leak};

/// The memory that a capsule's pointer refers to.
#[repr(C)]
struct Content<T: CapsuleObject> {
    object: Owned<T>,
    generation: u32,
}

/// Creates a capsule of a struct. Its destructor releases the struct if no consumer has moved it
/// out.
pub fn new_capsule<'py, T: CapsuleObject>(py: Python<'py>, object: Owned<T>) -> PyResult<Bound<'py, PyAny>> {
    let raw = Box::into_raw(Box::new(Content { object, generation: generation() }));
    // SAFETY: `Content` is `repr(C)` and begins with an `Owned<T>`, which has the layout of `T`.
    // The name is static, and `destroy` frees the box.
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), T::NAME.as_ptr(), Some(destroy::<T>));
        Bound::from_owned_ptr_or_err(py, capsule)
    };
    if capsule.is_err() {
        // SAFETY: `raw` came from `Box::into_raw`, and no capsule owns it.
        drop(unsafe { Box::from_raw(raw) });
    }
    capsule
}

/// # Safety
/// `capsule` was created by `new_capsule::<T>`.
unsafe extern "C" fn destroy<T: CapsuleObject>(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer under this name is the `Content<T>` that `new_capsule` boxed. If a
    // consumer moved the struct out, it marked the struct as released, and dropping it has no
    // effect.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<Content<T>>();
        if raw.is_null() {
            return ffi::PyErr_Clear();
        }
        if !must_leak((*raw).generation) {
            drop(Box::from_raw(raw));
        }
    }
}

/// Moves a struct out of a capsule. Errors name the protocol or function `who`.
///
/// # Errors
/// TypeError if the object is not a capsule with the struct's name; UsageError if the capsule was
/// consumed before.
pub fn take<T: CapsuleObject>(capsule: &Bound<'_, PyAny>, who: &str) -> PyResult<Owned<T>> {
    let name = T::NAME;
    // SAFETY: `PyCapsule_IsValid` accepts any object. `PyCapsule_GetPointer` requires a valid
    // capsule, which that check ensures.
    let pointer = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return Err(misnamed(capsule, name, who));
        }
        ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr())
    };
    // SAFETY: Arrow's PyCapsule interface guarantees that a capsule of this name points to this
    // struct, and that the consumer may move it out. The interpreter's lock is held, so no other
    // thread consumes it.
    let object = unsafe { Owned::<T>::take(pointer.cast()) };
    if object.is_released() {
        let name = name.to_string_lossy();
        return Err(usage(format!("{who}: the capsule '{name}' was already consumed: request a new one")));
    }
    Ok(object)
}

/// Creates the error for an object that is not a capsule of the expected name.
fn misnamed(object: &Bound<'_, PyAny>, expected: &CStr, who: &str) -> PyErr {
    let expected = expected.to_string_lossy();
    let got = name_of(object).map_or_else(
        || object.get_type().name().map_or_else(|_| "another object".into(), |name| format!("a {name}")),
        |name| format!("a capsule '{name}'"),
    );
    PyTypeError::new_err(format!("{who}: expected a capsule '{expected}', got {got}"))
}

/// Returns a capsule's name, or `None` if the object is not a capsule.
pub fn name_of(object: &Bound<'_, PyAny>) -> Option<String> {
    // SAFETY: `PyCapsule_GetName` requires a capsule, which `PyCapsule_CheckExact` ensures. The
    // capsule keeps its name alive while the name is copied here.
    unsafe {
        if ffi::PyCapsule_CheckExact(object.as_ptr()) == 0 {
            return None;
        }
        let name = ffi::PyCapsule_GetName(object.as_ptr());
        if name.is_null() {
            ffi::PyErr_Clear();
            return Some(String::new());
        }
        Some(CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}
