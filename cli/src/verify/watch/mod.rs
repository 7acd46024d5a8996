//! A host that watches what a plugin does with it.
//!
//! Each instance is given an object of its own, which is never freed: what is done with it after its end is seen, and harms
//! nobody.

mod blocks;
mod decode;
mod events;
mod memory;

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock::api::{Code, Device, Error, abi};
use crossdock::memory::{Account, Backend};

use super::inside;
use super::kept::keep;
use blocks::Block;
use events::Events;

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

/// What is offered to a plugin, and what goes wrong on purpose.
#[derive(Clone, Copy, Default)]
pub struct Wishes {
    /// No interface at all.
    pub bare: bool,
    /// Structs of a release to come, in the host and in its memory, with fields at their ends that nobody knows yet.
    pub longer: bool,
}

/// The handle to it.
#[derive(Clone, Copy)]
pub struct Watch(&'static Shared);

/// What the plugin sees, and what is noted. `host` comes first: the object's address is the `crossdock_host`'s.
#[repr(C)]
struct Shared {
    host: Tailed<abi::Host>,
    memory: Tailed<abi::Memory>,
    log: abi::HostLog,
    session: abi::HostSession,
    decode: abi::HostDecode,
    decoder: Mutex<Option<Arc<decode::Decoder>>>,
    bare: bool,
    plugin: PathBuf,
    /// What does the work, until the end.
    own: Mutex<Option<Own>>,
    references: AtomicI64,
    is_gone: AtomicBool,
    /// How many calls that may fail there have been, and which of them is to fail; 0 for none.
    calls: AtomicU64,
    failing: AtomicU64,
    /// The stream that work is to go onto; null where anything goes.
    stream: Mutex<usize>,
    notes: Mutex<Notes>,
}

#[derive(Clone)]
struct Own {
    backend: Backend,
    account: Arc<Account>,
}

/// A struct, and behind it what a longer one of a later release would have.
#[repr(C)]
struct Tailed<T> {
    own: T,
    tail: [u64; 8],
}

#[derive(Default)]
struct Notes {
    breaches: Vec<(Breach, String)>,
    blocks: Vec<Block>,
    /// Those that the plugin made, which it may order as it likes.
    streams: HashSet<usize>,
    events: Events,
}

// SAFETY: the structs of functions are written before anybody sees them and never again; the rest is Sync by itself. Pointers
// inside are to the object itself, which lives for ever.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// What a call that was made to fail says.
pub const AS_ASKED: &str = "made to fail by crossdock verify";

impl Watch {
    pub fn new(backend: &Backend, plugin: &Path, device: Device, wishes: Wishes) -> Self {
        let account = backend.account("plugin");
        let host = abi::Host {
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            retain: Some(retain),
            release: Some(release),
            get_interface: Some(get_interface),
            ..abi::Host::new()
        };
        let session = abi::HostSession { device, threads: 2, ..abi::HostSession::new() };
        let log = abi::HostLog { write: Some(write_log), ..abi::HostLog::new() };
        let decode = abi::HostDecode { decode: Some(decode::decode), ..abi::HostDecode::new() };
        let shared = keep(Shared {
            host: Tailed { own: host, tail: [u64::MAX; 8] },
            memory: Tailed { own: memory::table(), tail: [u64::MAX; 8] },
            log,
            session,
            decode,
            decoder: Mutex::default(),
            bare: wishes.bare,
            plugin: plugin.to_path_buf(),
            own: Mutex::new(Some(Own { backend: backend.clone(), account })),
            references: AtomicI64::new(0),
            is_gone: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            failing: AtomicU64::new(0),
            stream: Mutex::new(0),
            notes: Mutex::default(),
        });
        if wishes.longer {
            shared.host.own.struct_size = size_of_val(&shared.host);
            shared.memory.own.struct_size = size_of_val(&shared.memory);
        }
        let at = std::ptr::from_mut(shared);
        shared.memory.own.private_data = at.cast();
        shared.log.private_data = at.cast();
        shared.decode.private_data = at.cast();
        Self(shared)
    }

    /// The bare object, for a plugin's `create`.
    pub fn as_ptr(self) -> *const abi::Host {
        std::ptr::from_ref(self.0).cast()
    }

    /// How many references somebody holds.
    pub fn references(self) -> i64 {
        self.0.references.load(Ordering::SeqCst)
    }

    /// The instance is destroyed: where nobody holds a reference, nobody may use it from now on.
    pub fn end(self) {
        if self.references() == 0 {
            self.0.is_gone.store(true, Ordering::SeqCst);
            *self.0.own.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *self.0.decoder.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Makes the `nth` call from now on that may fail do so, once; 1 is the next one, 0 takes it back.
    pub fn fail(self, nth: u64) {
        let failing = if nth == 0 { 0 } else { self.0.calls.load(Ordering::SeqCst) + nth };
        self.0.failing.store(failing, Ordering::SeqCst);
    }

    /// Whether the call that was made to fail has come.
    pub fn has_failed(self) -> bool {
        let failing = self.0.failing.load(Ordering::SeqCst);
        failing != 0 && self.0.calls.load(Ordering::SeqCst) >= failing
    }

    /// Work is to go onto this stream until this is called again; null: onto any.
    pub fn expect_stream(self, stream: *mut abi::Stream) {
        *self.0.stream.lock().unwrap_or_else(PoisonError::into_inner) = stream as usize;
    }

    /// What was seen of this kind.
    pub fn breaches(self, kind: Breach) -> Vec<String> {
        self.0.check_bounds();
        let notes = self.0.notes();
        notes.breaches.iter().filter(|(of, _)| *of == kind).map(|(_, words)| words.clone()).collect()
    }

    /// Blocks that were not given back, in words.
    pub fn blocks_held(self) -> Option<String> {
        let notes = self.0.notes();
        let bytes: usize = notes.blocks.iter().map(|block| block.bytes).sum();
        let n = notes.blocks.len();
        (n > 0).then(|| format!("{n} not given back, of {bytes} bytes in all"))
    }

    /// Streams and events that were not given back, in words.
    pub fn work_held(self) -> Option<String> {
        let notes = self.0.notes();
        let (streams, events) = (notes.streams.len(), notes.events.len());
        (streams + events > 0).then(|| format!("{streams} streams and {events} events not given back"))
    }
}

impl Shared {
    fn own(&self) -> Option<Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, kind: Breach, words: String) {
        self.notes().breaches.push((kind, words));
    }

    /// A function of the host was called.
    fn called(&self, function: &'static str) {
        inside::called(function, false);
        self.used(function);
    }

    fn used(&self, function: &str) {
        if self.is_gone.load(Ordering::SeqCst) {
            let words = format!("'{function}' was called after the instance's end, without a reference");
            self.note(Breach::Late, words);
        }
    }

    /// One that may fail was called: whether it is to.
    fn may_fail(&self, function: &'static str) -> Result<(), Error> {
        inside::called(function, true);
        self.used(function);
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.failing.load(Ordering::SeqCst) == call {
            return Err(Error::new(Code::OUT_OF_MEMORY, format!("{AS_ASKED}: {function}")));
        }
        Ok(())
    }

    /// Work was given to a stream.
    fn worked(&self, function: &str, on: *mut abi::Stream) {
        let expected = *self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = self.notes();
        if expected != 0 && expected != on as usize && !notes.streams.contains(&(on as usize)) {
            let which = if on.is_null() { "NULL, the default stream" } else { "another stream" };
            let words =
                format!("'{function}' was given {which}, expected the call's, or one that the plugin made");
            notes.breaches.push((Breach::Stream, words));
        }
    }

    fn check_bounds(&self) {
        let mut notes = self.notes();
        let damaged: Vec<_> = notes.blocks.iter().filter_map(Block::damage).collect();
        notes.breaches.extend(damaged.into_iter().map(|words| (Breach::Bounds, words)));
    }
}

/// # Safety
/// `host` is null or the address of a [`Shared`].
unsafe fn of_host<'a>(host: *const abi::Host) -> Option<&'a Shared> {
    // SAFETY: the caller's word; the struct is the object's first field.
    unsafe { host.cast::<Shared>().as_ref() }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: the plugin calls this on the object that it was given, which lives for ever.
    if let Some(shared) = unsafe { of_host(host) } {
        shared.called("retain");
        shared.references.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: as above.
    if let Some(shared) = unsafe { of_host(host) } {
        shared.called("release");
        if shared.references.fetch_sub(1, Ordering::SeqCst) <= 0 {
            shared.note(Breach::Handle, "the host was released more often than retained".into());
        }
    }
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: as above.
    let Some(shared) = (unsafe { of_host(host) }) else { return std::ptr::null() };
    shared.called("get_interface");
    if id.is_null() || shared.bare {
        return std::ptr::null();
    }
    // SAFETY: ids are NUL-terminated.
    let id = unsafe { CStr::from_ptr(id) };
    if id == abi::HOST_MEMORY_ID {
        std::ptr::from_ref(&shared.memory).cast()
    } else if id == abi::HOST_LOG_ID {
        std::ptr::from_ref(&shared.log).cast()
    } else if id == abi::HOST_SESSION_ID {
        std::ptr::from_ref(&shared.session).cast()
    } else if id == abi::HOST_DECODE_ID {
        std::ptr::from_ref(&shared.decode).cast()
    } else {
        std::ptr::null()
    }
}

unsafe extern "C" fn write_log(log: *const abi::HostLog, _level: i32, _message: abi::Str) {
    // SAFETY: the plugin calls this on the log that it was given, whose `private_data` is its object.
    if let Some(shared) = unsafe { log.as_ref().and_then(|log| log.private_data.cast::<Shared>().as_ref()) } {
        shared.called("log.write");
    }
}
