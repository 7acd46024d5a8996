//! The list itself.

use std::sync::{Arc, PoisonError};

use super::sync::{Mutex, MutexGuard, ThreadId, current};

/// One of each, in the order of precedence. Who has a list keeps it, whatever becomes of the session's.
pub(crate) type Instances<T> = Arc<[Arc<T>]>;

/// Instances that are made once, by whoever asks first, while others wait.
pub(crate) struct List<T> {
    made: Mutex<Option<Instances<T>>>,
    /// Who is making them, with `made` locked, or another one in the place of one.
    makers: Mutex<Vec<ThreadId>>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { made: Mutex::new(None), makers: Mutex::new(Vec::new()) }
    }
}

impl<T> List<T> {
    /// What there is; `make` is run where there is nothing yet, and may run plugins' code.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Vec<Arc<T>>) -> Instances<T> {
        let mut made = lock(&self.made);
        if let Some(made) = &*made {
            return made.clone();
        }
        let all = self.making(make);
        made.insert(all.into()).clone()
    }

    /// Makes one or all of them, which runs plugins' code.
    pub(crate) fn making<R>(&self, make: impl FnOnce() -> R) -> R {
        let own = current().id();
        lock(&self.makers).push(own);
        let made = make();
        let mut makers = lock(&self.makers);
        if let Some(at) = makers.iter().position(|maker| *maker == own) {
            makers.swap_remove(at);
        }
        drop(makers);
        made
    }

    /// Whether this thread makes any just now, and is in the code of one of them: it would wait for itself, or go round.
    pub(crate) fn is_made_here(&self) -> bool {
        lock(&self.makers).contains(&current().id())
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
