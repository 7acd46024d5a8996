//! The host as a plugin sees it: a reference-counted handle that answers interface ids.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::abi;
use crate::call::Call;
use crate::encoded::EncodedArray;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::told::{self, Told};

/// A counted reference to the `crossdock_host` that made this instance. Whatever the plugin lends out holds one, so
/// that the host's memory outlives it.
pub struct Host {
    object: NonNull<abi::Host>,
    retain: Count,
    release: Count,
    get_interface: Option<GetInterface>,
}

type Count = unsafe extern "C" fn(*const abi::Host);
type GetInterface = unsafe extern "C" fn(*const abi::Host, *const c_char) -> *const c_void;

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
        let table = unsafe { told::read(host.as_ptr().cast_const()) }?;
        if (table.abi_major, table.abi_minor) != (abi::ABI_MAJOR, abi::ABI_MINOR) {
            return Err(Error::version(format!(
                "the host speaks ABI {}.{}, expected {}.{}: get the plugin's build for this host",
                table.abi_major,
                table.abi_minor,
                abi::ABI_MAJOR,
                abi::ABI_MINOR
            )));
        }
        let (Some(retain), Some(release)) = (table.retain, table.release) else {
            return Err(Error::invalid_argument("the host handle has no 'retain' or no 'release'"));
        };
        // SAFETY: the host's own function on itself.
        unsafe { retain(host.as_ptr()) };
        Ok(Self { object: host, retain, release, get_interface: table.get_interface })
    }

    /// An interface that the host offers, or `None`: its address, which its functions want, and a copy of as much of it as
    /// both sides know.
    ///
    /// # Safety
    /// `T` is the struct that the header defines for `id`.
    pub unsafe fn interface<T: Told>(&self, id: &CStr) -> Option<(NonNull<T>, T)> {
        // SAFETY: the object is alive because `self` holds a reference; the id is NUL-terminated.
        let table = unsafe { self.get_interface?(self.object.as_ptr(), id.as_ptr()) };
        let table = NonNull::new(table.cast_mut().cast::<T>())?;
        // SAFETY: every interface begins with its true size.
        Some((table, unsafe { told::read(table.as_ptr().cast_const()) }.ok()?))
    }

    /// The object itself, alive as long as this reference, or another one.
    pub fn as_ptr(&self) -> *const abi::Host {
        self.object.as_ptr()
    }

    /// Writes a line to the host's log; nothing happens where it offers none.
    pub fn log(&self, level: i32, message: &str) {
        // SAFETY: `HostLog` is what the header defines for this id; the string lives for the call.
        unsafe {
            if let Some((log, table)) = self.interface::<abi::HostLog>(abi::HOST_LOG_ID)
                && let Some(write) = table.write
            {
                write(log.as_ptr(), level, abi::Str::new(message));
            }
        }
    }

    /// What the session is set to: its device, its memory limit (bytes, 0 for none), and how many threads a plugin
    /// may keep busy. `None` where the host does not say.
    pub fn session(&self) -> Option<SessionSettings> {
        // SAFETY: `HostSession` is what the header defines for this id.
        let (_, session) = unsafe { self.interface::<abi::HostSession>(abi::HOST_SESSION_ID) }?;
        Some(SessionSettings {
            device: session.device,
            memory_limit_bytes: session.memory_limit,
            threads: session.threads.max(1) as usize,
        })
    }

    /// Has the session that the instance belongs to decode an array, by the plugins that it has for its encodings: a batch of
    /// one column on the call's device.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the host offers no decoding; what is wrong with the array.
    pub fn decode(&self, call: &Call<'_>, array: EncodedArray) -> Result<Owned<abi::Batch>> {
        let none = || Error::unsupported("this host decodes no encoded arrays");
        // SAFETY: `HostDecode` is what the header defines for this id.
        let (decoder, table) =
            unsafe { self.interface::<abi::HostDecode>(abi::HOST_DECODE_ID) }.ok_or_else(none)?;
        let decode = table.decode.ok_or_else(none)?;
        let (mut array, mut out) = (array.into_raw(), abi::Batch::new());
        // SAFETY: the host's own function; the array is handed over, the rest is borrowed for the call.
        Error::check(|err| unsafe {
            decode(decoder.as_ptr(), call.as_ptr(), array.as_mut_ptr(), &mut out, err)
        })?;
        // SAFETY: on success the batch is ours.
        Ok(unsafe { Owned::given(out) })
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
        // SAFETY: `self` holds a reference, so that the object is alive.
        unsafe { (self.retain)(self.object.as_ptr()) };
        Self { ..*self }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: gives back the one reference that `self` holds.
        unsafe { (self.release)(self.object.as_ptr()) };
    }
}
