//! Caches a value for each Python type.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyType;

/// Number of types to keep. The oldest is dropped, so that short-lived types do not accumulate.
const MAX_TYPES: usize = 64;

/// A cache with one value for each type. It keeps the types alive, so that no new type gets the
/// address of a cached type.
pub struct ByType<T>(Mutex<Vec<(Py<PyType>, T)>>);

impl<T: Clone> ByType<T> {
    /// Creates an empty cache.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the value of an object's type. Calls `look_up` if the cache has no value for the
    /// type.
    pub fn get(&self, object: &Bound<'_, PyAny>, look_up: impl FnOnce(&Bound<'_, PyType>) -> T) -> T {
        let r#type = object.get_type_ptr();
        {
            let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, value)) = entries.iter().find(|(key, _)| key.as_ptr().cast() == r#type) {
                return value.clone();
            }
        }
        let value = look_up(&object.get_type());
        let entry = (object.get_type().unbind(), value.clone());
        // Dropping a type may run Python code that needs this lock. Therefore the oldest entry is
        // dropped after the lock is released.
        let mut oldest = None;
        {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if entries.len() >= MAX_TYPES {
                oldest = Some(entries.remove(0));
            }
            entries.push(entry);
        }
        drop(oldest);
        value
    }
}
