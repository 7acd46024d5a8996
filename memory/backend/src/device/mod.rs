//! What a device must be able to do. Host devices are one implementation; others come as files beside it.

mod host;
mod stream;

use std::ffi::{CStr, c_void};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::resource::Resource;

pub(crate) use host::HostDevice;
pub use host::physical_memory_bytes;
pub(crate) use stream::Stream;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Type and number.
    pub device: Device,
    /// "cpu", "untouchable".
    pub name: String,
    /// What a person would call it.
    pub description: String,
    /// Bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Whether the host may dereference its addresses.
    pub host_accessible: bool,
}

/// The address that an event handle points at. Host devices have none: what was enqueued there has run.
pub(crate) type EventHandle = *mut abi::Event;

/// One device, behind [`crate::Backend`]. Addresses and ranges come from strangers: each function checks what it can
/// and refuses by name. Functions return when the work is enqueued, which on host devices means done.
pub(crate) trait DeviceBackend: Send + Sync {
    fn describe(&self) -> &DeviceDescription;

    /// Where its memory comes from, policies included.
    fn memory(&self) -> &dyn Resource;

    /// Where memory comes from that other processes can be given, if there is such.
    fn shareable(&self) -> Option<&dyn Resource> {
        None
    }

    /// Where memory comes from that goes to other processes as a file, if there is such.
    fn exportable(&self) -> Option<&dyn Resource> {
        None
    }

    /// The address at which this device's own functions reach `bytes` bytes at the published `address`.
    fn resolve(&self, address: *const c_void, bytes: usize) -> Result<*mut u8>;

    /// Whether `address` is known to be this device's: its block's base and length where they are known too.
    fn find(&self, address: *const c_void) -> Found;

    /// Where the host may dereference the range; null: nowhere.
    fn host_address(&self, address: *const c_void, bytes: usize) -> *mut c_void;

    /// All of them, in any order among themselves. Memory that the devices cannot reach by themselves has been read, or
    /// written, when this returns.
    ///
    /// # Safety
    /// All addresses were resolved for their bytes, which stay allocated until the copies have run.
    unsafe fn copy(&self, stream: &Stream, transfers: &[Transfer]) -> Result<()>;

    /// # Safety
    /// As [`DeviceBackend::copy`].
    unsafe fn fill(&self, stream: &Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()>;

    /// # Safety
    /// The kernel's struct is whole, and the arguments are those that it declares: no more than a launch has room for, each of a
    /// kind that is known.
    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &abi::Kernel,
        grid: abi::Grid,
        args: &[abi::Arg],
    ) -> Result<()>;

    /// A new queue's own handle.
    fn stream_create(&self) -> Result<*mut c_void>;
    /// The handle to call a stranger's stream by.
    ///
    /// # Safety
    /// A live stream of the device, or null, or anything on a device that has none.
    unsafe fn stream_adopt(&self, raw: *mut c_void) -> Result<*mut c_void>;
    /// Whether a stranger's stream has run all that it was given, where that can be told for less than an event costs.
    ///
    /// # Safety
    /// As [`DeviceBackend::stream_adopt`].
    unsafe fn stream_is_idle(&self, _raw: *mut c_void) -> bool {
        true
    }

    /// Whether a stream of the device's is under graph capture.
    ///
    /// # Safety
    /// As [`DeviceBackend::stream_is_idle`].
    unsafe fn raw_stream_is_capturing(&self, _raw: *mut c_void) -> bool {
        false
    }
    fn stream_destroy(&self, stream: &Stream);
    fn stream_synchronize(&self, stream: &Stream) -> Result<()>;
    fn stream_wait(&self, stream: &Stream, event: EventHandle) -> Result<()>;
    fn stream_wait_raw(&self, stream: &Stream, sync_event: *mut c_void) -> Result<()>;
    /// What `stream` is given from now on comes after what `earlier`, of the same device, has been given so far.
    fn stream_follow(&self, stream: &Stream, earlier: &Stream) -> Result<()>;
    fn stream_is_capturing(&self, stream: &Stream) -> Result<bool>;
    /// Others were told a stream's own handle.
    fn note_exposed(&self) {}
    /// Null where everything has run.
    fn event_record(&self, stream: &Stream) -> Result<EventHandle>;
}

/// One copy, its addresses resolved.
pub(crate) struct Transfer {
    pub to: *mut u8,
    pub from: *const u8,
    pub bytes: usize,
    pub to_cuda: bool,
    pub from_cuda: bool,
}

/// Where an address was found to lie.
pub(crate) struct Place {
    /// Among the backend's devices.
    pub index: usize,
    pub device: Device,
    pub base: usize,
    pub bytes: usize,
}

/// What a device knows about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is not one of its own, or cannot be told.
    No,
    Block {
        base: usize,
        bytes: usize,
    },
}

/// An address whose range may be one at all: not null, and without a turn at the end of all addresses.
pub(crate) fn whole_range(address: *const c_void, bytes: usize, device: &str) -> Result<*mut u8> {
    let number = address as usize;
    if number.checked_add(bytes).is_none_or(|_| bytes > isize::MAX as usize) || (bytes > 0 && number == 0) {
        return Err(Error::invalid_argument(format!(
            "{bytes} bytes at address {address:p} cannot lie on {device}"
        )));
    }
    Ok(address.cast_mut().cast())
}

/// "kernel 'x'".
pub(crate) fn kernel_name(kernel: &abi::Kernel) -> String {
    if kernel.name.is_null() {
        return "a kernel without a name".into();
    }
    // SAFETY: the struct's author made it a NUL-terminated constant.
    let name = unsafe { CStr::from_ptr(kernel.name) };
    format!("kernel '{}'", name.to_string_lossy())
}
