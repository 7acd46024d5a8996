//! Tables of the objects that the host refers to by id.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crossdock_plugin_api::{Call, CancelFlag, Error, Result};

use crate::locks::lock;

/// Objects by id.
pub struct ObjectTable<T>(Mutex<HashMap<u64, T>>);

impl<T: Clone> ObjectTable<T> {
    pub fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<u64, T>> {
        lock(&self.0)
    }

    pub fn insert(&self, id: u64, object: T) {
        self.objects().insert(id, object);
    }

    /// # Errors
    /// There is no such object.
    pub fn get(&self, id: u64) -> Result<T> {
        let released = || Error::invalid_argument("the object has been released");
        self.objects().get(&id).cloned().ok_or_else(released)
    }

    pub fn remove(&self, id: u64) {
        let object = self.objects().remove(&id);
        // The object is dropped after the lock is released, because a drop may take long.
        drop(object);
    }
}

impl ObjectTable<CancelFlag> {
    /// Returns the id of the host's call to which the cancel flag of `call` belongs, or 0 if the
    /// plugin itself began `call`.
    pub fn call_id(&self, call: &Call<'_>) -> u64 {
        self.objects().iter().find(|(_, flag)| flag.is(call.cancel())).map_or(0, |(id, _)| *id)
    }
}
