//! Destroys plugin instances, on a thread of its own: an instance may end only when nothing that it lent out is alive,
//! and the last of that may be released by the plugin itself, on a stack that is inside it.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossdock_memory_backend::before_exit;
use crossdock_plugin_api::Instance;

use crate::host_object::HostObject;
use crate::traced::Ended;

/// An instance whose handle is closed.
pub(crate) struct Retired {
    // Dropped in this order: the instance's `destroy` may still use its host.
    pub(crate) instance: Ended<Instance>,
    pub(crate) host: HostObject,
    /// How many references to the host object there were when the instance was made: ours and the instance's own.
    /// Those beyond belong to what it lent out.
    pub(crate) own_references: usize,
}

impl Retired {
    fn is_idle(&self) -> bool {
        self.host.references() <= self.own_references
    }
}

#[derive(Default)]
struct State {
    waiting: Vec<Retired>,
    /// How many are being destroyed just now.
    busy: usize,
    /// The process whose thread it is; a forked child has none.
    process: Option<u32>,
    thread: Option<libc::pthread_t>,
}

#[derive(Default)]
struct Janitor {
    state: Mutex<State>,
    changed: Condvar,
    /// How many instances are retired and not destroyed, so that a release needs no lock while there are none.
    retired: AtomicUsize,
}

fn janitor() -> &'static Janitor {
    static JANITOR: OnceLock<Janitor> = OnceLock::new();
    JANITOR.get_or_init(Janitor::default)
}

impl Janitor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        state.thread = Some(this_thread());
        loop {
            let (idle, waiting): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.waiting).into_iter().partition(Retired::is_idle);
            state.waiting = waiting;
            if idle.is_empty() {
                state = self.wait(state);
                continue;
            }
            state.busy = idle.len();
            drop(state);
            drop(idle);
            state = self.state();
            self.retired.fetch_sub(state.busy, Ordering::SeqCst);
            state.busy = 0;
            self.changed.notify_all();
        }
    }
}

/// Destroys the instance as soon as nothing that it lent out is alive.
pub(crate) fn retire(retired: Retired) {
    let janitor = janitor();
    let process = std::process::id();
    let mut state = janitor.state();
    if state.process.is_some_and(|p| p != process) {
        // A forked child has no janitor, and what it inherited is not its own to destroy.
        std::mem::forget(retired);
        return;
    }
    janitor.retired.fetch_add(1, Ordering::SeqCst);
    state.waiting.push(retired);
    if state.process.is_none() {
        let thread = std::thread::Builder::new().name("crossdock-janitor".into());
        // Without a thread (the system has none left) the instance waits for the next one that is retired.
        state.process = thread.spawn(|| self::janitor().run()).is_ok().then_some(process);
        // The last owner of devices may go with an instance.
        before_exit(|until| settle_until(Some(until)));
    }
    drop(state);
    janitor.changed.notify_all();
}

/// A reference to some host object went: it may have been the last one that a retired instance waited for.
pub(crate) fn reference_gone() {
    let janitor = janitor();
    fence(Ordering::SeqCst);
    if janitor.retired.load(Ordering::SeqCst) > 0 {
        // The lock, so that the thread is either before its look at the counts or waiting already.
        drop(janitor.state());
        janitor.changed.notify_all();
    }
}

/// Waits until every instance that can be destroyed by now has been.
pub(crate) fn settle() {
    settle_until(None);
}

fn settle_until(until: Option<Instant>) {
    let janitor = janitor();
    let mut state = janitor.state();
    // A plugin may end the process while it is being destroyed.
    if state.thread == Some(this_thread()) {
        return;
    }
    while state.process == Some(std::process::id())
        && (state.busy > 0 || state.waiting.iter().any(Retired::is_idle))
    {
        state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return,
            Some(left) => janitor.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            None => janitor.wait(state),
        };
    }
}

/// Also where the thread's own variables are gone, as at the end of a process.
fn this_thread() -> libc::pthread_t {
    // SAFETY: a plain question.
    unsafe { libc::pthread_self() }
}
