//! What a case does while the plugin is inside of the host: a function of its own that runs in each call of the plugin's.
//!
//! One for the process, which one case alone runs in: what is lent to a plugin does not know whose it is.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

/// One call.
#[derive(Clone, Copy)]
pub struct Called {
    pub function: &'static str,
    /// The host is asked for something, and may fail to do it. What cannot fail gives something back, or tells or counts it.
    pub may_fail: bool,
}

/// Is told of each call.
pub type Visit = dyn Fn(Called) + Send + Sync;

static VISIT: RwLock<Option<Arc<Visit>>> = RwLock::new(None);

thread_local! {
    /// What is called now is called by a visit.
    static IS_VISITING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, and `visit` within each call that the plugin makes meanwhile, on any thread.
pub fn visited<T>(visit: Arc<Visit>, f: impl FnOnce() -> T) -> T {
    let set = |visit| *VISIT.write().unwrap_or_else(PoisonError::into_inner) = visit;
    set(Some(visit));
    let ended = f();
    set(None);
    ended
}

/// Runs `f`, whose calls are not visited.
pub fn unvisited<T>(f: impl FnOnce() -> T) -> T {
    let before = IS_VISITING.replace(true);
    let ended = f();
    IS_VISITING.set(before);
    ended
}

/// The plugin has called a function. No lock of the suite's is held.
pub fn called(function: &'static str, may_fail: bool) {
    if IS_VISITING.get() {
        return;
    }
    let visit = VISIT.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(visit) = visit {
        unvisited(|| visit(Called { function, may_fail }));
    }
}
