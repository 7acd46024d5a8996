//! The list itself.

use std::sync::{Arc, PoisonError};

use super::sync::{Mutex, MutexGuard, ThreadId, current};

/// One of each, in the order of precedence. Who has a list keeps it, whatever becomes of the session's.
pub(crate) type Instances<T> = Arc<[Arc<T>]>;

/// Instances that are made once, by whoever asks first, while others wait.
pub(crate) struct List<T> {
    made: Mutex<Option<Instances<T>>>,
    /// Who is making them, with `made` locked.
    maker: Mutex<Option<ThreadId>>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { made: Mutex::new(None), maker: Mutex::new(None) }
    }
}

impl<T> List<T> {
    /// What there is; `make` is run where there is nothing yet, and may run plugins' code.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Vec<Arc<T>>) -> Instances<T> {
        let mut made = lock(&self.made);
        if let Some(made) = &*made {
            return made.clone();
        }
        *lock(&self.maker) = Some(current().id());
        let all = make();
        *lock(&self.maker) = None;
        made.insert(all.into()).clone()
    }

    /// Whether this thread makes them just now, and is in the code of one of them: it would wait for itself.
    pub(crate) fn is_made_here(&self) -> bool {
        *lock(&self.maker) == Some(current().id())
    }

    /// Puts another one in the place of one that was chosen before, if that is still there.
    pub(crate) fn replace(&self, old: &Arc<T>, new: &Arc<T>) {
        let mut made = lock(&self.made);
        if let Some(made) = &mut *made {
            let others = made.iter().map(|one| if Arc::ptr_eq(one, old) { new } else { one });
            *made = others.cloned().collect();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
