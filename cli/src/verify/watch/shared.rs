//! The object that implements a watched host, and the recorded violations.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock::Session;
use crossdock::api::{Code, Error, Host as Handle, abi};
use crossdock::memory::{Account, Backend, Loader, Tasks};

use super::super::host_calls;
use super::blocks::Block;
use super::events::Events;

/// A violation of a rule about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A handle that is invalid or was already released.
    Handle,
    /// A write outside a block.
    Bounds,
    /// Work on a stream that is not the call's stream.
    Stream,
    /// A use of the host after the instance was destroyed, while no reference to the host is held.
    UseAfterDestroy,
}

/// The message of an injected failure.
pub const INJECTED_FAILURE: &str = "injected failure of crossdock verify";

/// The host object that the plugin receives, and the notes about its use. `host` is the first
/// field, so that the object and its `crossdock_host` have the same address.
#[repr(C)]
pub(super) struct Shared {
    pub(super) host: Extended<abi::Host>,
    pub(super) memory: Extended<abi::Memory>,
    pub(super) log: abi::HostLog,
    pub(super) session: abi::HostSession,
    pub(super) decode: abi::HostDecode,
    pub(super) kernels: abi::HostKernels,
    pub(super) loader: abi::HostLoader,
    pub(super) tasks: abi::HostTasks,
    /// The number of groups of tasks that were not released.
    pub(super) groups: AtomicI64,
    /// The number of tasks that have not returned.
    pub(super) tasks_pending: AtomicI64,
    pub(super) decoder: Mutex<Option<Arc<Decoder>>>,
    pub(super) is_bare: bool,
    /// The only interfaces that the host offers, or `None` for all.
    pub(super) only: Option<Vec<String>>,
    pub(super) plugin: PathBuf,
    /// The host's own memory, or `None` after the host has ended.
    pub(super) backing: Mutex<Option<Backing>>,
    pub(super) references: AtomicI64,
    pub(super) has_ended: AtomicBool,
    /// The number of calls so far that may fail.
    pub(super) calls: AtomicU64,
    /// The number of the call that fails, or 0 if no call fails.
    pub(super) failing: AtomicU64,
    /// The address of the stream that work must use, or 0 for any stream.
    pub(super) stream: Mutex<usize>,
    pub(super) notes: Mutex<Notes>,
}

/// The host's own memory, to which a watched host forwards calls.
#[derive(Clone)]
pub(super) struct Backing {
    pub(super) backend: Backend,
    pub(super) account: Arc<Account>,
    pub(super) loader: Arc<Loader>,
    pub(super) tasks: Arc<Tasks>,
}

/// A struct with additional fields, as a later release could define it.
#[repr(C)]
pub(super) struct Extended<T> {
    pub(super) base: T,
    pub(super) tail: [u64; 8],
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) violations: Vec<(Violation, String)>,
    pub(super) blocks: Vec<Block>,
    /// The streams that the plugin created, on which any work is allowed.
    pub(super) streams: HashSet<usize>,
    pub(super) events: Events,
}

// SAFETY: the interface structs are not changed after the plugin receives them, and all other
// fields are `Sync`. The pointers inside refer to the object itself, which is never freed.
unsafe impl Sync for Shared {}
// SAFETY: the pointers inside refer to the object itself, which never moves, and all other fields
// are `Send`.
unsafe impl Send for Shared {}

/// A session and its host handle.
pub(super) struct Decoder {
    pub(super) _session: Session,
    pub(super) handle: Handle,
}

impl Shared {
    /// Returns the host's own memory, or `None` after the host has ended.
    pub(super) fn backing(&self) -> Option<Backing> {
        self.backing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, kind: Violation, details: String) {
        self.notes().violations.push((kind, details));
    }

    /// Notes the call of a function that cannot fail.
    pub(super) fn note_call(&self, function: &'static str) {
        host_calls::on_call(function, false);
        self.note_use(function);
    }

    fn note_use(&self, function: &str) {
        if self.has_ended.load(Ordering::SeqCst) {
            let details = format!("'{function}' was called after destroy, without a reference to the host");
            self.note(Violation::UseAfterDestroy, details);
        }
    }

    /// Notes the call of a function that can fail.
    ///
    /// # Errors
    /// The injected failure, if this is the call that must fail.
    pub(super) fn may_fail(&self, function: &'static str) -> Result<(), Error> {
        host_calls::on_call(function, true);
        self.note_use(function);
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.failing.load(Ordering::SeqCst) == call {
            return Err(Error::new(Code::OUT_OF_MEMORY, format!("{INJECTED_FAILURE}: {function}")));
        }
        Ok(())
    }

    /// Notes work on a stream.
    pub(super) fn note_work(&self, function: &str, stream: *mut abi::Stream) {
        let expected = *self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = self.notes();
        if expected != 0 && expected != stream as usize && !notes.streams.contains(&(stream as usize)) {
            let actual = if stream.is_null() { "NULL, the default stream" } else { "another stream" };
            let details = format!(
                "'{function}' got {actual}, expected the call's stream or one that the plugin created"
            );
            notes.violations.push((Violation::Stream, details));
        }
    }

    pub(super) fn check_bounds(&self) {
        let mut notes = self.notes();
        let damaged: Vec<_> = notes.blocks.iter().filter_map(Block::damage).collect();
        notes.violations.extend(damaged.into_iter().map(|details| (Violation::Bounds, details)));
    }
}
