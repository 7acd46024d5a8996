//! Moves Arrow's structs out of Python's capsules, and into new ones.

use crossdock_plugin_api::{CapsuleObject, Owned};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Moves the struct out of a capsule.
///
/// # Errors
/// TypeError if the object is not a capsule with this name. ValueError if the struct was already
/// moved out of the capsule.
pub fn from_capsule<T: CapsuleObject>(capsule: &Bound<'_, PyAny>) -> PyResult<Owned<T>> {
    // SAFETY: `PyCapsule_GetPointer` accepts any object, and returns NULL unless it is a capsule of
    // this name. Capsules of this name contain a valid `T`, which their consumer may move out.
    let object = unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), T::NAME.as_ptr());
        if pointer.is_null() {
            let _ = PyErr::take(capsule.py());
            return Err(PyTypeError::new_err(format!("expected a capsule {:?}, got {capsule}", T::NAME)));
        }
        Owned::<T>::take(pointer.cast())
    };
    if object.is_released() {
        return Err(PyValueError::new_err(format!("the capsule {:?} was already consumed", T::NAME)));
    }
    Ok(object)
}

/// Returns a capsule that contains the struct. The capsule's destructor releases the struct, unless
/// a consumer has moved it out.
pub fn to_capsule<T: CapsuleObject>(py: Python<'_>, object: Owned<T>) -> PyResult<Bound<'_, PyAny>> {
    let raw = Box::into_raw(Box::new(object));
    // SAFETY: an `Owned<T>` has the layout of a `T`, which the capsule's name requires. The box is
    // freed once: by the destructor, or below if no capsule was created.
    unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), T::NAME.as_ptr(), Some(destroy::<T>));
        Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| drop(Box::from_raw(raw)))
    }
}

unsafe extern "C" fn destroy<T: CapsuleObject>(capsule: *mut ffi::PyObject) {
    // SAFETY: only `to_capsule` sets this destructor, for a boxed `Owned<T>`, and Python calls it
    // only once.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<Owned<T>>();
        if !raw.is_null() {
            drop(Box::from_raw(raw));
        }
    }
}
