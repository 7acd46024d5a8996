//! The host, for use by a plugin.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::NonNull;

use crate::abi;
use crate::call::Call;
use crate::child_types::{self, ChildType};
use crate::encoded::{EncodedArray, NodeParts};
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::sized_struct::{self, SizedStruct};

/// A counted reference to the host of a plugin instance. An exported object that uses the host's
/// memory must hold a reference until the object is released.
pub struct Host {
    object: NonNull<abi::Host>,
    retain: Count,
    release: Count,
    get_interface: Option<GetInterface>,
}

type Count = unsafe extern "C" fn(*const abi::Host);
type GetInterface = unsafe extern "C" fn(*const abi::Host, *const c_char) -> *const c_void;

// SAFETY: the header allows calls of all functions of the host object on any thread.
unsafe impl Send for Host {}
// SAFETY: the header allows calls of all functions of the host object on any thread.
unsafe impl Sync for Host {}

impl Host {
    /// Adds a reference to a host that the caller borrows.
    ///
    /// # Errors
    /// Returns an error if `host` is null, has another ABI version, or lacks a function.
    ///
    /// # Safety
    /// `host` is null or points to a `crossdock_host` that is not freed during the call.
    pub unsafe fn retain(host: *const abi::Host) -> Result<Self> {
        let host = NonNull::new(host.cast_mut())
            .ok_or_else(|| Error::invalid_argument("the host handle is NULL"))?;
        // SAFETY: the pointer is not null, so the caller guarantees that it points to a live host
        // object, which begins with its `struct_size`.
        let table = unsafe { sized_struct::read(host.as_ptr().cast_const()) }?;
        if (table.abi_major, table.abi_minor) != (abi::ABI_MAJOR, abi::ABI_MINOR) {
            return Err(Error::version(format!(
                "the host has ABI version {}.{}, expected {}.{}: get the plugin's build for this host",
                table.abi_major,
                table.abi_minor,
                abi::ABI_MAJOR,
                abi::ABI_MINOR
            )));
        }
        let (Some(retain), Some(release)) = (table.retain, table.release) else {
            return Err(Error::invalid_argument("the host handle has no 'retain' or no 'release'"));
        };
        // SAFETY: the function belongs to the host object, which is alive.
        unsafe { retain(host.as_ptr()) };
        Ok(Self { object: host, retain, release, get_interface: table.get_interface })
    }

    /// Returns an interface of the host, or `None` if the host does not have it. The result is the
    /// address of the interface and a copy of its struct. The address is the first argument of each
    /// function of the interface. Fields that the host's version lacks are zero in the copy.
    ///
    /// # Safety
    /// `T` is the struct that the header defines for `id`.
    pub unsafe fn interface<T: SizedStruct>(&self, id: &CStr) -> Option<(NonNull<T>, T)> {
        // SAFETY: the host object is alive because `self` holds a reference, and a `CStr` is
        // NUL-terminated.
        let table = unsafe { self.get_interface?(self.object.as_ptr(), id.as_ptr()) };
        let table = NonNull::new(table.cast_mut().cast::<T>())?;
        // SAFETY: the pointer is not null, so the header guarantees that it points to a struct that
        // begins with its `struct_size` and lives as long as the host object.
        Some((table, unsafe { sized_struct::read(table.as_ptr().cast_const()) }.ok()?))
    }

    /// The address of the host object. It is valid for as long as a reference exists.
    pub fn as_ptr(&self) -> *const abi::Host {
        self.object.as_ptr()
    }

    /// Writes a line to the host's log if the host has one. `level` is one of the constants
    /// `abi::LOG_*`.
    pub fn log(&self, level: i32, message: &str) {
        // SAFETY: the header defines `HostLog` for this id, and the string is valid for the call.
        unsafe {
            if let Some((log, table)) = self.interface::<abi::HostLog>(abi::HOST_LOG_ID)
                && let Some(write) = table.write
            {
                write(log.as_ptr(), level, abi::Str::new(message));
            }
        }
    }

    /// The settings of the session; `None` if the host does not have this interface.
    pub fn session(&self) -> Option<SessionSettings> {
        // SAFETY: the header defines `HostSession` for this id.
        let (_, session) = unsafe { self.interface::<abi::HostSession>(abi::HOST_SESSION_ID) }?;
        Some(SessionSettings {
            device: session.device,
            memory_limit_bytes: session.memory_limit,
            threads: session.threads.max(1) as usize,
        })
    }

    /// Decodes an array, or the rows `rows` of it, with the plugins of the instance's session.
    /// Returns a batch of one column on the call's device.
    ///
    /// # Errors
    /// Returns `UNSUPPORTED` if the host does not have this interface, or the host's error.
    pub fn decode(
        &self,
        call: &Call<'_>,
        array: EncodedArray,
        rows: Option<Range<u64>>,
    ) -> Result<Owned<abi::Batch>> {
        let unsupported = || Error::unsupported("this host does not decode encoded arrays");
        // SAFETY: the header defines `HostDecode` for this id.
        let (decoder, table) =
            unsafe { self.interface::<abi::HostDecode>(abi::HOST_DECODE_ID) }.ok_or_else(unsupported)?;
        let decode = table.decode.ok_or_else(unsupported)?;
        let (mut array, mut out) = (array.into_raw(), abi::Batch::new());
        let rows = rows.map(|rows| abi::RowRange { begin: rows.start, end: rows.end });
        let rows = rows.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the function belongs to `decoder`, and all pointers are valid for the call. The
        // host takes ownership of the array by moving it out.
        Error::check(|err| unsafe {
            decode(decoder.as_ptr(), call.as_ptr(), array.as_mut_ptr(), rows, &mut out, err)
        })?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        Ok(unsafe { Owned::from_out(out) })
    }

    /// The types and the lengths of a node's children, as the plugin that decodes the node derives
    /// them. The type of the node must be an Arrow schema.
    ///
    /// # Errors
    /// Returns `UNSUPPORTED` if no plugin of the session decodes the node, if the plugin cannot
    /// derive the types, or if the host does not have this interface; or the plugin's error.
    pub fn child_types(&self, node: &NodeParts) -> Result<Vec<ChildType>> {
        let unsupported = || Error::unsupported("this host does not derive the types of encoded arrays");
        // SAFETY: the header defines `HostDecode` for this id.
        let (decoder, table) =
            unsafe { self.interface::<abi::HostDecode>(abi::HOST_DECODE_ID) }.ok_or_else(unsupported)?;
        let children = table.children.ok_or_else(unsupported)?;
        node.alone(|node| {
            // SAFETY: the function belongs to `decoder`. `derive` passes a valid node and lists.
            child_types::derive(node, |node, schemas, lengths, err| unsafe {
                children(decoder.as_ptr(), node, schemas, lengths, err)
            })
        })
    }

    /// The number of threads to use at once: the session's setting, or the number of threads that
    /// the machine can run if the host has no session settings.
    pub fn threads(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, |n| n.get());
        self.session().map_or_else(machine, |s| s.threads)
    }
}

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The default device for results.
    pub device: abi::Device,
    /// The memory limit in bytes; 0 means no limit.
    pub memory_limit_bytes: u64,
    /// The number of threads that a plugin may use at once. It is at least 1.
    pub threads: usize,
}

impl Clone for Host {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a reference, so the host object is alive.
        unsafe { (self.retain)(self.object.as_ptr()) };
        Self { ..*self }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: `self` holds one reference, and it is released only here.
        unsafe { (self.release)(self.object.as_ptr()) };
    }
}
