//! What was found out about types of objects, which is not asked again of each object.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyType;

/// From so many types on the oldest is forgotten, so that types that are made and dropped do not pile up.
const TYPES: usize = 64;

/// What was found on each type, which is kept as long: its address is not another's meanwhile.
pub struct ByType<T>(Mutex<Vec<(Py<PyType>, T)>>);

impl<T: Clone> ByType<T> {
    /// Of none yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// What `look_up` found, or finds now, on an object's type.
    pub fn of(&self, object: &Bound<'_, PyAny>, look_up: impl FnOnce(&Bound<'_, PyType>) -> T) -> T {
        let r#type = object.get_type_ptr();
        {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, found)) = known.iter().find(|(of, _)| of.as_ptr().cast() == r#type) {
                return found.clone();
            }
        }
        let found = look_up(&object.get_type());
        let entry = (object.get_type().unbind(), found.clone());
        // What is dropped may run Python's code, which is not to find this lock taken.
        let mut oldest = None;
        {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= TYPES {
                oldest = Some(known.remove(0));
            }
            known.push(entry);
        }
        drop(oldest);
        found
    }
}
