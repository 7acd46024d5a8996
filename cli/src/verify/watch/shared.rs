//! The object that a watched host is, and what is noted in it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock::Session;
use crossdock::api::{Code, Error, Host as Handle, abi};
use crossdock::memory::{Account, Backend};

use super::super::inside;
use super::blocks::Block;
use super::events::Events;

/// What kind of rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A handle that is nobody's, or was given back before.
    Handle,
    /// Bytes written beside a block.
    Bounds,
    /// Work on another stream than the call's.
    Stream,
    /// Use of the host after its end.
    Late,
}

/// What a call that was made to fail says.
pub const AS_ASKED: &str = "made to fail by crossdock verify";

/// What the plugin sees, and what is noted. `host` comes first: the object's address is the `crossdock_host`'s.
#[repr(C)]
pub(super) struct Shared {
    pub(super) host: Tailed<abi::Host>,
    pub(super) memory: Tailed<abi::Memory>,
    pub(super) log: abi::HostLog,
    pub(super) session: abi::HostSession,
    pub(super) decode: abi::HostDecode,
    pub(super) kernels: abi::HostKernels,
    pub(super) decoder: Mutex<Option<Arc<Decoder>>>,
    pub(super) bare: bool,
    pub(super) plugin: PathBuf,
    /// What does the work, until the end.
    pub(super) own: Mutex<Option<Own>>,
    pub(super) references: AtomicI64,
    pub(super) is_gone: AtomicBool,
    /// How many calls that may fail there have been, and which of them is to fail; 0 for none.
    pub(super) calls: AtomicU64,
    pub(super) failing: AtomicU64,
    /// The stream that work is to go onto; null where anything goes.
    pub(super) stream: Mutex<usize>,
    pub(super) notes: Mutex<Notes>,
}

#[derive(Clone)]
pub(super) struct Own {
    pub(super) backend: Backend,
    pub(super) account: Arc<Account>,
}

/// A struct, and behind it what a longer one of a later release would have.
#[repr(C)]
pub(super) struct Tailed<T> {
    pub(super) own: T,
    pub(super) tail: [u64; 8],
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) breaches: Vec<(Breach, String)>,
    pub(super) blocks: Vec<Block>,
    /// Those that the plugin made, which it may order as it likes.
    pub(super) streams: HashSet<usize>,
    pub(super) events: Events,
}

// SAFETY: the structs of functions are written before anybody sees them and never again; the rest is Sync by itself. Pointers
// inside are to the object itself, which lives for ever.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// A session, and itself as plugins see it.
pub(super) struct Decoder {
    pub(super) _session: Session,
    pub(super) handle: Handle,
}

impl Shared {
    pub(super) fn own(&self) -> Option<Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, kind: Breach, words: String) {
        self.notes().breaches.push((kind, words));
    }

    /// A function of the host was called.
    pub(super) fn called(&self, function: &'static str) {
        inside::called(function, false);
        self.used(function);
    }

    pub(super) fn used(&self, function: &str) {
        if self.is_gone.load(Ordering::SeqCst) {
            let words = format!("'{function}' was called after the instance's end, without a reference");
            self.note(Breach::Late, words);
        }
    }

    /// One that may fail was called: whether it is to.
    pub(super) fn may_fail(&self, function: &'static str) -> Result<(), Error> {
        inside::called(function, true);
        self.used(function);
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.failing.load(Ordering::SeqCst) == call {
            return Err(Error::new(Code::OUT_OF_MEMORY, format!("{AS_ASKED}: {function}")));
        }
        Ok(())
    }

    /// Work was given to a stream.
    pub(super) fn worked(&self, function: &str, on: *mut abi::Stream) {
        let expected = *self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = self.notes();
        if expected != 0 && expected != on as usize && !notes.streams.contains(&(on as usize)) {
            let which = if on.is_null() { "NULL, the default stream" } else { "another stream" };
            let words =
                format!("'{function}' was given {which}, expected the call's, or one that the plugin made");
            notes.breaches.push((Breach::Stream, words));
        }
    }

    pub(super) fn check_bounds(&self) {
        let mut notes = self.notes();
        let damaged: Vec<_> = notes.blocks.iter().filter_map(Block::damage).collect();
        notes.breaches.extend(damaged.into_iter().map(|words| (Breach::Bounds, words)));
    }
}
