//! Arrow's structs in Python's capsules.

use crossdock_plugin_api::{Named, Owned};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Moves the struct out of a capsule.
pub fn take<T: Named>(capsule: &Bound<'_, PyAny>) -> PyResult<Owned<T>> {
    // SAFETY: any object may be asked; under this name the pointer is to this struct, which its consumer moves out.
    let object = unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), T::NAME.as_ptr());
        if pointer.is_null() {
            let _ = PyErr::take(capsule.py());
            return Err(PyTypeError::new_err(format!("expected a capsule {:?}, got {capsule}", T::NAME)));
        }
        Owned::<T>::take(pointer.cast())
    };
    if object.is_released() {
        return Err(PyValueError::new_err(format!("the capsule {:?} has been consumed already", T::NAME)));
    }
    Ok(object)
}

/// Puts a struct into a capsule, which releases it unless somebody takes it.
pub fn give<T: Named>(py: Python<'_>, object: Owned<T>) -> PyResult<Bound<'_, PyAny>> {
    let raw = Box::into_raw(Box::new(object));
    // SAFETY: an `Owned<T>` is laid out as a `T`; the capsule's destructor frees the box, and where there is no capsule, we do.
    unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), T::NAME.as_ptr(), Some(destroy::<T>));
        Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| drop(Box::from_raw(raw)))
    }
}

unsafe extern "C" fn destroy<T: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that `give` made, destroyed once.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<Owned<T>>();
        if !raw.is_null() {
            drop(Box::from_raw(raw));
        }
    }
}
