//! Destroys plugin instances, on a thread of its own: an instance may end only when nothing that it lent out is alive,
//! and the last of that may be released by the plugin itself, on a stack that is inside it.

mod sync;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossdock_memory_backend::{Backend, before_exit};
use crossdock_plugin_api::Instance;

use crate::host_object::HostObject;
use crate::traced::Ended;
use waiting::{Counted, Waiting};

/// With so many instances yet to be destroyed, whoever makes another waits: threads that make them faster than one thread
/// destroys them, with the threads and memory of each, would leave the machine without.
const MOST_IDLE: usize = 64;
/// For no longer: a plugin whose `destroy` blocks does not keep others from their work.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// An instance whose handle is closed.
pub(crate) struct Retired {
    // Dropped in this order: the instance's `destroy` may still use its host.
    pub(crate) instance: Ended<Instance>,
    pub(crate) host: HostObject,
    /// How many references to the host object there were when the instance was made: ours and the instance's own.
    /// Those beyond belong to what it lent out.
    pub(crate) own_references: usize,
}

impl Counted for Retired {
    fn is_idle(&self) -> bool {
        self.host.references() <= self.own_references
    }
}

#[derive(Default)]
struct Janitor {
    retired: Waiting<Retired>,
    /// The process whose thread it is; a forked child has none.
    process: Mutex<Option<u32>>,
    thread: OnceLock<libc::pthread_t>,
}

fn janitor() -> &'static Janitor {
    static JANITOR: OnceLock<Janitor> = OnceLock::new();
    JANITOR.get_or_init(Janitor::default)
}

impl Janitor {
    fn run(&self) {
        self.thread.get_or_init(this_thread);
        loop {
            self.retired.round();
        }
    }
}

/// Destroys the instance as soon as nothing that it lent out is alive.
pub(crate) fn retire(retired: Retired) {
    let janitor = janitor();
    let this = std::process::id();
    let mut process = janitor.process.lock().unwrap_or_else(PoisonError::into_inner);
    if process.is_some_and(|process| process != this) {
        // A forked child has no janitor, and what it inherited is not its own to destroy.
        std::mem::forget(retired);
        return;
    }
    janitor.retired.add(retired);
    if process.is_none() {
        let thread = std::thread::Builder::new().name("crossdock-janitor".into());
        // Without a thread (the system has none left) the instance waits for the next one that is retired.
        *process = thread.spawn(|| self::janitor().run()).is_ok().then_some(this);
        // The last owner of devices may go with an instance.
        before_exit(|until| settle_until(Some(until)));
    }
}

/// To be called before an instance is made.
pub(crate) fn wait_for_room() {
    if let Some(retired) = theirs() {
        retired.wait_for_room(MOST_IDLE, Some(Instant::now() + ROOM_WITHIN));
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
    let janitor = janitor();
    let process = *janitor.process.lock().unwrap_or_else(PoisonError::into_inner);
    if process != Some(std::process::id()) {
        return Vec::new();
    }
    janitor.retired.ask(|retired| {
        let account = retired.host.account();
        let references = retired.host.references().saturating_sub(retired.own_references);
        (references > 0 && account.is_of(backend)).then(|| (account.name().to_string(), references))
    })
}

fn settle_until(until: Option<Instant>) {
    if let Some(retired) = theirs() {
        retired.settle(until);
    }
}

/// What the janitor's thread has before it, for others to wait for: not for that thread itself, and not where there is none.
fn theirs() -> Option<&'static Waiting<Retired>> {
    let janitor = janitor();
    // A plugin may end the process while it is being destroyed.
    if janitor.thread.get() == Some(&this_thread()) {
        return None;
    }
    let process = *janitor.process.lock().unwrap_or_else(PoisonError::into_inner);
    (process == Some(std::process::id())).then_some(&janitor.retired)
}

/// Also where the thread's own variables are gone, as at the end of a process.
fn this_thread() -> libc::pthread_t {
    // SAFETY: a plain question.
    unsafe { libc::pthread_self() }
}
