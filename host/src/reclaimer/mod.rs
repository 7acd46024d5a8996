//! Destroys plugin instances, usually on a thread of its own.
//!
//! An instance may be destroyed only after everything that it exported is released. The plugin
//! itself may release the last exported object, while its functions are still on the stack. The
//! instance must not be destroyed on this stack.
//!
//! Where none of its functions can be on the stack, [`destroy_here`] destroys an instance at once.
//! The other thread would free memory while this thread allocates, and both would wait for the same
//! lock of the allocator.

mod queue;
mod sync;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossdock_memory_backend::{Backend, before_exit, fork_count};
use queue::{Counted, ReclaimQueue};

/// The maximum number of idle instances. While more instances are idle, creating an instance
/// blocks. Otherwise, threads that create instances faster than one thread destroys them would
/// exhaust memory and threads.
const MAX_IDLE: usize = 64;
/// The time after which a running `destroy` no longer blocks the creation of instances.
const MAX_DESTROY_TIME: Duration = Duration::from_secs(1);
const MAX_CREATE_DELAY: Duration = Duration::from_secs(10);

/// An instance whose handle is closed, or a process without instances. Dropping it destroys it.
pub(crate) trait PendingDestroy: Send {
    /// Whether everything that the instance exported is released.
    fn is_idle(&self) -> bool;

    /// The [`fork_count`] of the process that created the instance. A forked child must not destroy
    /// its copy of the instance.
    fn forks(&self) -> u32;

    /// Returns the account's name and the number of references that exported objects hold to the
    /// instance's host object. `None` if there are no references, or if the instance's memory
    /// belongs to another backend.
    fn leaked_references(&self, backend: &Backend) -> Option<(String, usize)>;
}

impl Counted for Box<dyn PendingDestroy> {
    fn is_idle(&self) -> bool {
        (**self).is_idle()
    }
}

struct Reclaimer {
    /// The [`fork_count`] of the process that the reclaimer works for.
    forks: u32,
    queue: ReclaimQueue<Box<dyn PendingDestroy>>,
    is_started: Mutex<bool>,
    thread: OnceLock<libc::pthread_t>,
}

/// Returns the reclaimer of this process. A forked child gets a new reclaimer, because threads of
/// the parent do not exist in the child: the old reclaimer would have no thread, and its locks
/// could stay locked.
fn reclaimer() -> &'static Reclaimer {
    static RECLAIMER: AtomicPtr<Reclaimer> = AtomicPtr::new(std::ptr::null_mut());
    let forks = fork_count();
    let mut current = RECLAIMER.load(Ordering::Acquire);
    // SAFETY: `current` is null or came from `Box::into_raw` below; a published reclaimer is never
    // freed.
    if unsafe { current.as_ref() }.is_none_or(|reclaimer| reclaimer.forks != forks) {
        let (queue, is_started, thread) = (ReclaimQueue::default(), Mutex::default(), OnceLock::new());
        let new = Box::into_raw(Box::new(Reclaimer { forks, queue, is_started, thread }));
        match RECLAIMER.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => current = new,
            Err(winner) => {
                // SAFETY: `new` came from `Box::into_raw` above, and the failed exchange did not
                // publish it.
                drop(unsafe { Box::from_raw(new) });
                current = winner;
            }
        }
    }
    // SAFETY: `current` is non-null here: it was checked, or replaced by a published reclaimer,
    // which is never freed.
    unsafe { &*current }
}

impl Reclaimer {
    fn run(&self) {
        self.thread.get_or_init(this_thread);
        loop {
            // Dropping an instance runs plugin code and log subscribers. If they panic, the panic
            // hook has already reported it.
            drop(catch_unwind(AssertUnwindSafe(|| self.queue.round())));
        }
    }

    fn is_started(&self) -> bool {
        *self.is_started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static DESTROYS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, which drops the last handle of an instance. If the instance is idle then, it is
/// destroyed on this thread. No function of the instance may be on the stack.
pub(crate) fn destroy_here(f: impl FnOnce()) {
    let before = DESTROYS_HERE.replace(true);
    f();
    DESTROYS_HERE.set(before);
}

/// Destroys the instance as soon as everything that it exported is released.
pub(crate) fn destroy_when_idle(instance: Box<dyn PendingDestroy>) {
    if instance.forks() != fork_count() {
        std::mem::forget(instance);
        return;
    }
    // `destroy` may drop other instances, whose functions may be on the stack.
    let is_here = DESTROYS_HERE.try_with(|here| here.take()).unwrap_or(false);
    if is_here && instance.is_idle() {
        drop(catch_unwind(AssertUnwindSafe(|| drop(instance))));
        DESTROYS_HERE.set(true);
        return;
    }
    let reclaimer = reclaimer();
    let mut is_started = reclaimer.is_started.lock().unwrap_or_else(PoisonError::into_inner);
    reclaimer.queue.add(instance);
    if !*is_started {
        let thread = std::thread::Builder::new().name("crossdock-reclaimer".into());
        // If the system cannot start a thread, the next call tries again.
        *is_started = thread.spawn(|| reclaimer.run()).is_ok();
        // An instance may own the last reference to devices, which must be closed before the
        // process exits.
        before_exit(|until| settle_until(Some(until)));
    }
}

/// Blocks while too many instances are idle. Called before an instance is created.
pub(crate) fn wait_for_room() {
    if let Some(queue) = queue_to_wait_for() {
        queue.wait_for_room(MAX_IDLE, MAX_DESTROY_TIME, MAX_CREATE_DELAY);
    }
}

/// Notes that a reference to a host object was released, so that a pending instance may be idle.
pub(crate) fn reference_gone() {
    reclaimer().queue.reference_gone();
}

/// Waits until every instance that is idle at the time of the call is destroyed.
pub(crate) fn settle() {
    settle_until(None);
}

/// Like [`settle`], for at most `time`.
pub(crate) fn settle_within(time: Duration) {
    settle_until(Some(Instant::now() + time));
}

/// Returns the pending instances of `backend` that still have external references. Each result
/// consists of the account's name and the number of references.
pub(crate) fn leaked_references(backend: &Backend) -> Vec<(String, usize)> {
    reclaimer().queue.filter_map(|instance| instance.leaked_references(backend))
}

fn settle_until(until: Option<Instant>) {
    if let Some(queue) = queue_to_wait_for() {
        queue.settle(until);
    }
}

/// Returns the queue, or `None` where waiting would never end: on the reclaimer's own thread, and
/// if this thread was not started.
fn queue_to_wait_for() -> Option<&'static ReclaimQueue<Box<dyn PendingDestroy>>> {
    let reclaimer = reclaimer();
    // A plugin's `destroy` may end the process. The exit handlers then run on the reclaimer's
    // thread and call this function.
    if reclaimer.thread.get() == Some(&this_thread()) {
        return None;
    }
    reclaimer.is_started().then_some(&reclaimer.queue)
}

/// The current thread's id. Unlike `std::thread::current`, this function works after thread-local
/// storage is destroyed.
fn this_thread() -> libc::pthread_t {
    // SAFETY: `pthread_self` has no requirements.
    unsafe { libc::pthread_self() }
}
