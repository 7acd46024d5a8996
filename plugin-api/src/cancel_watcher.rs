//! The thread that calls the functions that are subscribed to cancel flags.
//!
//! A flag may be set in a signal handler, which may neither lock a mutex nor call the functions.
//! It only sets the flag and wakes this thread. The thread is started by the first subscription.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Thread, ThreadId};

use crate::door;
use crate::error::{Error, Result};

type Function = Box<dyn Fn() + Send>;

/// A flag that the watcher reads.
pub(crate) trait Watched: Send + Sync {
    /// Whether the flag is set.
    fn is_set(&self) -> bool;
}

/// The watcher of one process. A child process after `fork` has no copy of the thread, and the
/// mutex may be locked in it. It therefore gets a watcher of its own. Watchers are never freed.
struct Watcher {
    process: u32,
    thread: OnceLock<Thread>,
    state: Mutex<State>,
    /// A function has returned.
    returned: Condvar,
}

#[derive(Default)]
struct State {
    last_id: u64,
    subscriptions: BTreeMap<u64, (Arc<dyn Watched>, Function)>,
    /// The subscription whose function is running.
    running: Option<u64>,
}

static WATCHER: AtomicPtr<Watcher> = AtomicPtr::new(std::ptr::null_mut());

/// The watcher of this process, if it has one. Async-signal-safe.
fn watcher() -> Option<&'static Watcher> {
    // SAFETY: the pointer is null, or points to a watcher, which is never freed.
    let watcher = unsafe { WATCHER.load(Ordering::SeqCst).as_ref() }?;
    (watcher.process == std::process::id()).then_some(watcher)
}

/// Wakes the watcher after a flag was set. Async-signal-safe: `unpark` changes an atomic and makes
/// one system call.
pub(crate) fn wake() {
    if let Some(thread) = watcher().and_then(|watcher| watcher.thread.get()) {
        thread.unpark();
    }
}

/// Calls `function` once when the flag is set, also if it is set already. Returns the id of the
/// subscription.
///
/// # Errors
/// If the system starts no thread.
pub(crate) fn subscribe(flag: Arc<dyn Watched>, function: Function) -> Result<u64> {
    let watcher = match watcher() {
        Some(watcher) => watcher,
        None => start()?,
    };
    let mut state = watcher.lock();
    state.last_id += 1;
    let id = state.last_id;
    let is_set = flag.clone();
    state.subscriptions.insert(id, (flag, function));
    drop(state);
    // The flag is read after the subscription is visible. If it was set before, its setter may not
    // have seen the thread, or the thread may not have seen the subscription.
    if is_set.is_set() {
        wake();
    }
    Ok(id)
}

/// Ends a subscription. Waits for its function if it is running, unless the function itself calls
/// this.
pub(crate) fn unsubscribe(id: u64) {
    let Some(watcher) = watcher() else { return };
    let mut state = watcher.lock();
    let removed = state.subscriptions.remove(&id);
    while state.running == Some(id) && !watcher.is_current_thread() {
        state = watcher.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    drop(state);
    // The function may own objects whose release takes long.
    drop(removed);
}

fn start() -> Result<&'static Watcher> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(watcher) = watcher() {
        return Ok(watcher);
    }
    let new: &'static Watcher = Box::leak(Box::new(Watcher {
        process: std::process::id(),
        thread: OnceLock::new(),
        state: Mutex::default(),
        returned: Condvar::new(),
    }));
    let thread = std::thread::Builder::new().name("crossdock-cancel".into()).spawn(move || new.run());
    let thread = thread.map_err(|error| {
        Error::internal(format!("cannot start the thread that watches cancel flags: {error}"))
    })?;
    new.thread.get_or_init(|| thread.thread().clone());
    WATCHER.store(std::ptr::from_ref(new).cast_mut(), Ordering::SeqCst);
    Ok(new)
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_current_thread(&self) -> bool {
        let current: ThreadId = std::thread::current().id();
        self.thread.get().is_some_and(|thread| thread.id() == current)
    }

    fn run(&self) {
        loop {
            while let Some(function) = self.next() {
                door::run_release(&function);
                // The function is dropped before `unsubscribe` returns.
                door::run_release(move || drop(function));
                self.lock().running = None;
                self.returned.notify_all();
            }
            std::thread::park();
        }
    }

    /// Removes a subscription to a flag that is set, and notes that its function runs.
    fn next(&self) -> Option<Function> {
        let mut state = self.lock();
        let is_set = |(_, (flag, _)): &(&u64, &(Arc<dyn Watched>, Function))| flag.is_set();
        let id = *state.subscriptions.iter().find(is_set)?.0;
        let (_, function) = state.subscriptions.remove(&id)?;
        state.running = Some(id);
        Some(function)
    }
}
