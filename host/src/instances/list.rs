//! Creates a list of instances once, and replaces instances in it.

use std::sync::{Arc, PoisonError};

use super::sync::{Mutex, MutexGuard, ThreadId, current};

/// The instances in order of precedence. Later changes of the session's list do not affect a clone.
pub(crate) type Instances<T> = Arc<[Arc<T>]>;

/// A list of instances. The first caller creates the instances, while other callers wait.
pub(crate) struct List<T> {
    instances: Mutex<Option<Instances<T>>>,
    /// The threads that are creating the list (while they hold the lock of `instances`) or a
    /// replacement for an instance.
    creators: Mutex<Vec<ThreadId>>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { instances: Mutex::new(None), creators: Mutex::new(Vec::new()) }
    }
}

impl<T> List<T> {
    /// Returns the instances. The first call runs `create`, which may run plugin code.
    pub(crate) fn get_or_create(&self, create: impl FnOnce() -> Vec<Arc<T>>) -> Instances<T> {
        let mut instances = lock(&self.instances);
        if let Some(instances) = &*instances {
            return instances.clone();
        }
        let all = self.while_creating(create);
        instances.insert(all.into()).clone()
    }

    /// Runs `create`, which creates one or all instances and may run plugin code.
    pub(crate) fn while_creating<R>(&self, create: impl FnOnce() -> R) -> R {
        let thread = current().id();
        lock(&self.creators).push(thread);
        let created = create();
        let mut creators = lock(&self.creators);
        if let Some(at) = creators.iter().position(|creator| *creator == thread) {
            creators.swap_remove(at);
        }
        drop(creators);
        created
    }

    /// Whether the current thread is running plugin code inside [`Self::while_creating`]. Using the
    /// list there would deadlock or recurse.
    pub(crate) fn is_creating_here(&self) -> bool {
        lock(&self.creators).contains(&current().id())
    }

    /// Replaces `old` by `new`, if `old` is still in the list.
    pub(crate) fn replace(&self, old: &Arc<T>, new: &Arc<T>) {
        let mut instances = lock(&self.instances);
        if let Some(instances) = &mut *instances {
            let replaced = instances.iter().map(|one| if Arc::ptr_eq(one, old) { new } else { one });
            *instances = replaced.cloned().collect();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
