//! A host that watches what a plugin does with it.
//!
//! Each instance is given an object of its own, which is never freed: what is done with it after its end is seen, and harms
//! nobody.

mod blocks;
mod decode;
mod events;
mod kernels;
mod memory;
mod shared;

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossdock::api::{Device, abi};
use crossdock::memory::Backend;

use super::kept::keep;
pub use shared::{AS_ASKED, Breach};
use shared::{Own, Shared, Tailed};

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
        let kernels = abi::HostKernels { find: Some(kernels::find), ..abi::HostKernels::new() };
        let shared = keep(Shared {
            host: Tailed { own: host, tail: [u64::MAX; 8] },
            memory: Tailed { own: memory::table(), tail: [u64::MAX; 8] },
            log,
            session,
            decode,
            kernels,
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
        shared.kernels.private_data = at.cast();
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
    } else if id == abi::HOST_KERNELS_ID {
        std::ptr::from_ref(&shared.kernels).cast()
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
