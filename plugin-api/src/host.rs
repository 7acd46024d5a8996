//! The host as a plugin sees it: a reference-counted handle that answers interface ids.

use std::ffi::CStr;
use std::ptr::NonNull;

use crate::abi;
use crate::error::{Error, Result};

/// A counted reference to the `crossdock_host` that made this instance. Whatever the plugin lends out holds one, so
/// that the host's memory outlives it.
pub struct Host(NonNull<abi::Host>);

// SAFETY: the object's functions are callable from any thread by contract, and its count is the host's to keep atomic.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    /// Retains a borrowed host.
    ///
    /// # Safety
    /// `host` is null or a live `crossdock_host`.
    pub unsafe fn retain(host: *const abi::Host) -> Result<Self> {
        let host = NonNull::new(host.cast_mut())
            .ok_or_else(|| Error::invalid_argument("the host handle is NULL"))?;
        // SAFETY: live by the caller's word.
        let table = unsafe { host.as_ref() };
        if table.struct_size < size_of::<abi::Host>() || table.retain.is_none() || table.release.is_none() {
            return Err(Error::version(format!(
                "the host handle is {} bytes with ABI {}.{}, expected at least {} bytes with ABI {}.{}",
                table.struct_size,
                table.abi_major,
                table.abi_minor,
                size_of::<abi::Host>(),
                abi::ABI_MAJOR,
                abi::ABI_MINOR
            )));
        }
        if let Some(retain) = table.retain {
            // SAFETY: the host's own function on itself.
            unsafe { retain(host.as_ptr()) };
        }
        Ok(Self(host))
    }

    /// An interface that the host offers, or `None`. `T` must be the struct that `id` names and begins with
    /// `struct_size`.
    ///
    /// # Safety
    /// `T` is the struct that the header defines for `id`.
    pub unsafe fn interface<T>(&self, id: &CStr) -> Option<NonNull<T>> {
        // SAFETY: the object is alive because `self` holds a reference.
        let get = unsafe { self.0.as_ref() }.get_interface?;
        // SAFETY: as above, with a NUL-terminated id.
        let table = unsafe { get(self.0.as_ptr(), id.as_ptr()) };
        let table = NonNull::new(table.cast_mut().cast::<T>())?;
        // SAFETY: every interface begins with its `struct_size`.
        let size = unsafe { *table.as_ptr().cast::<usize>() };
        (size >= size_of::<T>()).then_some(table)
    }

    /// Writes a line to the host's log; nothing happens where it offers none.
    pub fn log(&self, level: i32, message: &str) {
        // SAFETY: `HostLog` is what the header defines for this id; the string lives for the call.
        unsafe {
            if let Some(log) = self.interface::<abi::HostLog>(abi::HOST_LOG_ID)
                && let Some(write) = log.as_ref().write
            {
                write(log.as_ptr(), level, abi::Str::new(message));
            }
        }
    }

    /// What the session is set to: its device, its memory limit (bytes, 0 for none), and how many threads a plugin
    /// may keep busy. `None` where the host does not say.
    pub fn session(&self) -> Option<SessionSettings> {
        // SAFETY: `HostSession` is what the header defines for this id.
        let session = unsafe { self.interface::<abi::HostSession>(abi::HOST_SESSION_ID) }?;
        // SAFETY: lives as long as the host object, which `self` retains.
        let session = unsafe { session.as_ref() };
        Some(SessionSettings {
            device: session.device,
            memory_limit_bytes: session.memory_limit,
            threads: session.threads.max(1) as usize,
        })
    }

    /// How many threads to keep busy: what the session says, else what the machine has.
    pub fn threads(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, |n| n.get());
        self.session().map_or_else(machine, |s| s.threads)
    }
}

/// What a session is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Where results go by default.
    pub device: abi::Device,
    /// Bytes; 0 for no limit.
    pub memory_limit_bytes: u64,
    /// At least 1.
    pub threads: usize,
}

impl Clone for Host {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a reference, and `retain` was checked to be there.
        unsafe {
            if let Some(retain) = self.0.as_ref().retain {
                retain(self.0.as_ptr());
            }
        }
        Self(self.0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: gives back the one reference that `self` holds.
        unsafe {
            if let Some(release) = self.0.as_ref().release {
                release(self.0.as_ptr());
            }
        }
    }
}
