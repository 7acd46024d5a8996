//! Python's capsules, out and in.

use std::ffi::CStr;

use crossdock_plugin_api::{Named, Owned};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::usage;
use crate::process::{generation, is_over};

/// What a capsule points at.
#[repr(C)]
struct Shell<T: Named> {
    object: Owned<T>,
    generation: u32,
}

/// A capsule of one of Arrow's structs, which it releases unless somebody takes it.
pub fn give<'py, T: Named>(py: Python<'py>, object: Owned<T>) -> PyResult<Bound<'py, PyAny>> {
    let raw = Box::into_raw(Box::new(Shell { object, generation: generation() }));
    // SAFETY: a shell begins with an `Owned<T>`, which is laid out as a `T`; the name is static, and the destructor frees what was boxed here.
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), T::NAME.as_ptr(), Some(destroy::<T>));
        Bound::from_owned_ptr_or_err(py, capsule)
    };
    if capsule.is_err() {
        // SAFETY: no capsule took it.
        drop(unsafe { Box::from_raw(raw) });
    }
    capsule
}

/// # Safety
/// A capsule that `give::<T>` made.
unsafe extern "C" fn destroy<T: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: by this function's own contract. Whoever moved the object out left a released one behind, and an Arrow
    // consumer does not rename the capsule.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<Shell<T>>();
        if raw.is_null() {
            return ffi::PyErr_Clear();
        }
        if !is_over((*raw).generation) {
            drop(Box::from_raw(raw));
        }
    }
}

/// Moves one of Arrow's structs out of a capsule; `who` gave it.
///
/// # Errors
/// TypeError for what is no capsule of this name, ValueError where it was consumed before.
pub fn take<T: Named>(capsule: &Bound<'_, PyAny>, who: &str) -> PyResult<Owned<T>> {
    let name = T::NAME;
    // SAFETY: any object may be asked.
    let pointer = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return Err(misnamed(capsule, name, who));
        }
        ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr())
    };
    // SAFETY: under this name the pointer is to this struct, by Arrow's PyCapsule interface, and the consumer moves it out.
    // The interpreter's lock is held, so nobody else does at the same time.
    let object = unsafe { Owned::<T>::take(pointer.cast()) };
    if object.is_released() {
        let name = name.to_string_lossy();
        return Err(usage(format!(
            "{who}: the capsule '{name}' has been consumed already: ask for another one"
        )));
    }
    Ok(object)
}

/// What was expected, and what came.
fn misnamed(object: &Bound<'_, PyAny>, expected: &CStr, who: &str) -> PyErr {
    let expected = expected.to_string_lossy();
    let got = name_of(object).map_or_else(
        || object.get_type().name().map_or_else(|_| "another object".into(), |name| format!("a {name}")),
        |name| format!("a capsule '{name}'"),
    );
    PyTypeError::new_err(format!("{who}: expected a capsule '{expected}', got {got}"))
}

/// A capsule's name; `None` for what is none.
pub fn name_of(object: &Bound<'_, PyAny>) -> Option<String> {
    // SAFETY: the check comes before the question; a name lives as long as its capsule, here at least.
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
