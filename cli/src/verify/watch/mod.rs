//! A host that watches how a plugin uses it.
//!
//! Each instance gets its own host object. The object is never freed, so that a use after the
//! destruction of the instance is recorded, and does not corrupt memory.

mod blocks;
mod decode;
mod events;
mod kernels;
mod loader;
mod memory;
mod shared;
mod tasks;

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock::api::{Device, abi};
use crossdock::memory::{Backend, Loader, TaskPool, Tasks};

use super::leak::leak;
use shared::{Backing, Extended, Shared};
pub use shared::{INJECTED_FAILURE, Violation};

/// The properties of a watched host.
#[derive(Clone, Copy, Default)]
pub struct HostOptions {
    /// Whether the host offers no interfaces.
    pub is_bare: bool,
    /// Whether the host offers only the interfaces that the plugin's metadata lists as required.
    pub is_minimal: bool,
    /// Whether the structs of the host and its memory have additional fields, as in a later
    /// release.
    pub is_extended: bool,
}

/// The number of threads of the session.
const THREADS: usize = 2;

/// A watched host.
#[derive(Clone, Copy)]
pub struct Watch(&'static Shared);

impl Watch {
    pub fn new(backend: &Backend, plugin: &Path, device: Device, options: HostOptions) -> Self {
        let account = backend.account("plugin");
        let host = abi::Host {
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            retain: Some(retain),
            release: Some(release),
            get_interface: Some(get_interface),
            ..abi::Host::new()
        };
        let session = abi::HostSession { device, threads: THREADS as u32, ..abi::HostSession::new() };
        let tasks = TaskPool::new(THREADS).for_instance();
        let backing = Backing {
            backend: backend.clone(),
            loader: Arc::new(Loader::new(account.clone(), tasks.clone())),
            tasks: Arc::new(Tasks::new(tasks, account.clone())),
            account,
        };
        let log = abi::HostLog { write: Some(write_log), ..abi::HostLog::new() };
        let decode = abi::HostDecode {
            decode: Some(decode::decode),
            children: Some(decode::children),
            ..abi::HostDecode::new()
        };
        let loader = abi::HostLoader { load: Some(loader::load), ..abi::HostLoader::new() };
        let kernels = abi::HostKernels { find: Some(kernels::find), ..abi::HostKernels::new() };
        let shared = leak(Shared {
            host: Extended { base: host, tail: [u64::MAX; 8] },
            memory: Extended { base: memory::table(), tail: [u64::MAX; 8] },
            log,
            session,
            decode,
            kernels,
            loader,
            tasks: tasks::table(),
            groups: AtomicI64::new(0),
            tasks_pending: AtomicI64::new(0),
            decoder: Mutex::default(),
            is_bare: options.is_bare,
            only: options.is_minimal.then(|| required(plugin)),
            plugin: plugin.to_path_buf(),
            backing: Mutex::new(Some(backing)),
            references: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            failing: AtomicU64::new(0),
            stream: Mutex::new(0),
            notes: Mutex::default(),
        });
        if options.is_extended {
            shared.host.base.struct_size = size_of_val(&shared.host);
            shared.memory.base.struct_size = size_of_val(&shared.memory);
        }
        let address = std::ptr::from_mut(shared);
        shared.memory.base.private_data = address.cast();
        shared.log.private_data = address.cast();
        shared.decode.private_data = address.cast();
        shared.kernels.private_data = address.cast();
        shared.loader.private_data = address.cast();
        shared.tasks.private_data = address.cast();
        Self(shared)
    }

    /// The C object, for a plugin's `create`.
    pub fn as_ptr(self) -> *const abi::Host {
        std::ptr::from_ref(self.0).cast()
    }

    /// The number of references to the host.
    pub fn references(self) -> i64 {
        self.0.references.load(Ordering::SeqCst)
    }

    /// Ends the host if no reference is left. After that, any use of the host is a violation. The
    /// instance must already be destroyed.
    pub fn end(self) {
        if self.references() == 0 {
            self.0.has_ended.store(true, Ordering::SeqCst);
            *self.0.backing.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *self.0.decoder.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Injects a failure into the `nth` call from now, counting only calls that may fail. 1 is the
    /// next such call, and 0 cancels the failure.
    pub fn fail(self, nth: u64) {
        let failing = if nth == 0 { 0 } else { self.0.calls.load(Ordering::SeqCst) + nth };
        self.0.failing.store(failing, Ordering::SeqCst);
    }

    /// Whether the injected failure has happened.
    pub fn has_failed(self) -> bool {
        let failing = self.0.failing.load(Ordering::SeqCst);
        failing != 0 && self.0.calls.load(Ordering::SeqCst) >= failing
    }

    /// Requires that work uses this stream, until the next call of this function. NULL allows any
    /// stream.
    pub fn expect_stream(self, stream: *mut abi::Stream) {
        *self.0.stream.lock().unwrap_or_else(PoisonError::into_inner) = stream as usize;
    }

    /// Describes the violations of this kind.
    pub fn violations(self, kind: Violation) -> Vec<String> {
        self.0.check_bounds();
        let notes = self.0.notes();
        let of_kind = notes.violations.iter().filter(|(other, _)| *other == kind);
        of_kind.map(|(_, details)| details.clone()).collect()
    }

    /// Describes blocks that were not freed.
    pub fn blocks_held(self) -> Option<String> {
        let notes = self.0.notes();
        let bytes: usize = notes.blocks.iter().map(|block| block.bytes).sum();
        let n = notes.blocks.len();
        (n > 0).then(|| format!("{n} blocks not freed, {bytes} bytes in total"))
    }

    /// Describes tasks that have not returned, and groups of tasks that were not released.
    pub fn tasks_held(self) -> Option<String> {
        let groups = self.0.groups.load(Ordering::SeqCst);
        let tasks = self.0.tasks_pending.load(Ordering::SeqCst);
        (groups + tasks > 0)
            .then(|| format!("{tasks} tasks that have not returned, {groups} groups not released"))
    }

    /// Describes streams and events that were not destroyed.
    pub fn streams_and_events_held(self) -> Option<String> {
        let notes = self.0.notes();
        let (streams, events) = (notes.streams.len(), notes.events.len());
        (streams + events > 0).then(|| format!("{streams} streams and {events} events not destroyed"))
    }
}

/// The ids of the interfaces that the plugin requires; none if its metadata cannot be read, which
/// another case reports.
fn required(plugin: &Path) -> Vec<String> {
    crossdock::load::inspect(plugin).map(|inspection| inspection.metadata.required).unwrap_or_default()
}

/// # Safety
/// `host` is null or the address of a [`Shared`].
unsafe fn of_host<'a>(host: *const abi::Host) -> Option<&'a Shared> {
    // SAFETY: the caller passes NULL or the address of a `Shared`, whose first field is the host.
    unsafe { host.cast::<Shared>().as_ref() }
}

unsafe extern "C" fn retain(host: *const abi::Host) {
    // SAFETY: `host` is the object that the plugin got, a `Shared` that is never freed.
    if let Some(shared) = unsafe { of_host(host) } {
        shared.note_call("retain");
        shared.references.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn release(host: *const abi::Host) {
    // SAFETY: `host` is the object that the plugin got, a `Shared` that is never freed.
    if let Some(shared) = unsafe { of_host(host) } {
        shared.note_call("release");
        if shared.references.fetch_sub(1, Ordering::SeqCst) <= 0 {
            shared.note(Violation::Handle, "the host was released more often than retained".into());
        }
    }
}

unsafe extern "C" fn get_interface(host: *const abi::Host, id: *const c_char) -> *const c_void {
    // SAFETY: `host` is the object that the plugin got, a `Shared` that is never freed.
    let Some(shared) = (unsafe { of_host(host) }) else { return std::ptr::null() };
    shared.note_call("get_interface");
    if id.is_null() || shared.is_bare {
        return std::ptr::null();
    }
    // SAFETY: `id` is not NULL, and the plugin passes a NUL-terminated string.
    let id = unsafe { CStr::from_ptr(id) };
    let is_hidden = |only: &Vec<String>| !only.iter().any(|offered| offered.as_bytes() == id.to_bytes());
    if shared.only.as_ref().is_some_and(is_hidden) {
        return std::ptr::null();
    }
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
    } else if id == abi::HOST_LOADER_ID {
        std::ptr::from_ref(&shared.loader).cast()
    } else if id == abi::HOST_TASKS_ID {
        std::ptr::from_ref(&shared.tasks).cast()
    } else {
        std::ptr::null()
    }
}

unsafe extern "C" fn write_log(log: *const abi::HostLog, _level: i32, _message: abi::Str) {
    // SAFETY: `log` is NULL or the interface of a `Shared`, whose `private_data` is the `Shared`,
    // which is never freed.
    if let Some(shared) = unsafe { log.as_ref().and_then(|log| log.private_data.cast::<Shared>().as_ref()) } {
        shared.note_call("log.write");
    }
}
