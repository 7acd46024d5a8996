//! Destroys plugin instances, on a thread of its own: an instance may end only when nothing that it lent out is alive,
//! and the last of that may be released by the plugin itself, on a stack that is inside it.

mod sync;
#[cfg(test)]
mod tests;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossdock_memory_backend::{Backend, before_exit, fork_count};
use waiting::{Counted, Waiting};

/// With so many instances yet to be destroyed, whoever makes another waits: threads that make them faster than one thread
/// destroys them, with the threads and memory of each, would leave the machine without.
const MOST_IDLE: usize = 64;
/// Where one takes longer, nobody waits: a plugin whose `destroy` blocks does not keep others from their work.
const ONE_WITHIN: Duration = Duration::from_secs(1);
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// An instance whose handle is closed. Dropping it destroys the instance.
pub(crate) trait Retired: Send {
    /// Whether nothing that it lent out is alive.
    fn is_idle(&self) -> bool;

    /// The process that made it ([`fork_count`]): a forked child's copy is not its own to destroy.
    fn forks(&self) -> u32;

    /// By what account over this memory references are held that are not the instance's own, and how many.
    fn held(&self, backend: &Backend) -> Option<(String, usize)>;
}

impl Counted for Box<dyn Retired> {
    fn is_idle(&self) -> bool {
        (**self).is_idle()
    }
}

struct Janitor {
    /// Of the process whose it is ([`fork_count`]).
    forks: u32,
    retired: Waiting<Box<dyn Retired>>,
    is_started: Mutex<bool>,
    thread: OnceLock<libc::pthread_t>,
}

/// This process's. A forked child has not its parent's thread, nor those who hold its parent's locks, so it gets one of its own.
fn janitor() -> &'static Janitor {
    static JANITOR: AtomicPtr<Janitor> = AtomicPtr::new(std::ptr::null_mut());
    let forks = fork_count();
    let mut there = JANITOR.load(Ordering::Acquire);
    // SAFETY: none yet, or one that was made below, and none of these is ever dropped.
    if unsafe { there.as_ref() }.is_none_or(|janitor| janitor.forks != forks) {
        let (retired, is_started, thread) = (Waiting::default(), Mutex::default(), OnceLock::new());
        let new = Box::into_raw(Box::new(Janitor { forks, retired, is_started, thread }));
        match JANITOR.compare_exchange(there, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => there = new,
            Err(others) => {
                // SAFETY: made above, and given to nobody.
                drop(unsafe { Box::from_raw(new) });
                there = others;
            }
        }
    }
    // SAFETY: as above.
    unsafe { &*there }
}

impl Janitor {
    fn run(&self) {
        self.thread.get_or_init(this_thread);
        loop {
            // What is dropped may be others' code too, as who listens to the log. A panic has been reported.
            drop(catch_unwind(AssertUnwindSafe(|| self.retired.round())));
        }
    }

    fn is_started(&self) -> bool {
        *self.is_started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Destroys the instance as soon as nothing that it lent out is alive.
pub(crate) fn retire(retired: Box<dyn Retired>) {
    if retired.forks() != fork_count() {
        std::mem::forget(retired);
        return;
    }
    let janitor = janitor();
    let mut is_started = janitor.is_started.lock().unwrap_or_else(PoisonError::into_inner);
    janitor.retired.add(retired);
    if !*is_started {
        let thread = std::thread::Builder::new().name("crossdock-janitor".into());
        // Without a thread (the system has none left) the instance waits for the next one that is retired.
        *is_started = thread.spawn(|| janitor.run()).is_ok();
        // The last owner of devices may go with an instance.
        before_exit(|until| settle_until(Some(until)));
    }
}

/// To be called before an instance is made.
pub(crate) fn wait_for_room() {
    if let Some(retired) = theirs() {
        retired.wait_for_room(MOST_IDLE, ONE_WITHIN, ROOM_WITHIN);
    }
}

/// A reference to some host object went: it may have been the last one that a retired instance waited for.
pub(crate) fn reference_gone() {
    janitor().retired.reference_gone();
}

/// Waits until every instance that can be destroyed by now has been.
pub(crate) fn settle() {
    settle_until(None);
}

/// The same, for so long at most.
pub(crate) fn settle_within(time: Duration) {
    settle_until(Some(Instant::now() + time));
}

/// Instances over this memory that are not destroyed, for somebody still holds what they lent out, or a reference that they took: by
/// what account, and how many such references.
pub(crate) fn held(backend: &Backend) -> Vec<(String, usize)> {
    janitor().retired.ask(|retired| retired.held(backend))
}

fn settle_until(until: Option<Instant>) {
    if let Some(retired) = theirs() {
        retired.settle(until);
    }
}

/// What the janitor's thread has before it, for others to wait for: not for that thread itself, and not where there is none.
fn theirs() -> Option<&'static Waiting<Box<dyn Retired>>> {
    let janitor = janitor();
    // A plugin may end the process while it is being destroyed.
    if janitor.thread.get() == Some(&this_thread()) {
        return None;
    }
    janitor.is_started().then_some(&janitor.retired)
}

/// Also where the thread's own variables are gone, as at the end of a process.
fn this_thread() -> libc::pthread_t {
    // SAFETY: a plain question.
    unsafe { libc::pthread_self() }
}
