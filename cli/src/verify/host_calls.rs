//! A hook that runs in each call that the plugin makes to the host.
//!
//! There is one hook per process, because objects that are passed to a plugin have no reference to
//! their case. One hook suffices, because a process runs only one case.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

/// A call of the plugin to the host, or to an object that the host passed to it.
#[derive(Clone, Copy)]
pub struct HostCall {
    pub function: &'static str,
    /// Whether the function can fail. Functions that release, destroy or count something cannot
    /// fail.
    pub may_fail: bool,
}

/// The hook: it runs inside each call.
pub type Visitor = dyn Fn(HostCall) + Send + Sync;

static VISITOR: RwLock<Option<Arc<Visitor>>> = RwLock::new(None);

thread_local! {
    /// Whether this thread is running the visitor. Calls that the visitor makes are not visited.
    static IS_VISITING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`. In the meantime, `visitor` runs within each call that the plugin makes to the host, on
/// any thread.
pub fn with_visitor<T>(visitor: Arc<Visitor>, f: impl FnOnce() -> T) -> T {
    let set = |visitor| *VISITOR.write().unwrap_or_else(PoisonError::into_inner) = visitor;
    set(Some(visitor));
    let result = f();
    set(None);
    result
}

/// Runs `f` without visiting the calls that it makes to the host.
pub fn without_visitor<T>(f: impl FnOnce() -> T) -> T {
    let before = IS_VISITING.replace(true);
    let result = f();
    IS_VISITING.set(before);
    result
}

/// Runs the visitor for a call. The caller must not hold a lock.
pub fn on_call(function: &'static str, may_fail: bool) {
    if IS_VISITING.get() {
        return;
    }
    let visitor = VISITOR.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(visitor) = visitor {
        without_visitor(|| visitor(HostCall { function, may_fail }));
    }
}
