//! Defines the interface that every device implements, and implements it for host devices.

mod host;
mod stream;

use std::ffi::{CStr, c_void};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::read_at::{LoadPiece, ReadAt};
use crate::resource::Resource;
use crate::tasks::InstanceTasks;

pub(crate) use host::HostDevice;
pub use host::physical_memory_bytes;
pub(crate) use stream::Stream;

/// Describes a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Type and number.
    pub device: Device,
    /// Name, such as "cpu" or "untouchable".
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Memory of the device in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Whether the host can dereference the device's addresses.
    pub host_accessible: bool,
}

/// The handle of an event. Host devices have no events, because their work is complete when the
/// call returns.
pub(crate) type EventHandle = *mut abi::Event;

/// One device of a [`crate::Backend`]. Addresses and ranges come from plugins, so each function
/// checks them if it can. Functions return when their work is enqueued. On host devices the work is
/// complete at that time.
pub(crate) trait DeviceBackend: Send + Sync {
    fn describe(&self) -> &DeviceDescription;

    /// The source of the device's memory, with all policies applied.
    fn memory(&self) -> &dyn Resource;

    /// The source of memory for CUDA IPC, if there is one.
    fn shareable(&self) -> Option<&dyn Resource> {
        None
    }

    /// The source of memory that is exported as a file, if there is one.
    fn exportable(&self) -> Option<&dyn Resource> {
        None
    }

    /// The source of memory that is exported as a file and reused after it was freed, if there is
    /// one.
    fn shared(&self) -> Option<&dyn Resource> {
        None
    }

    /// Returns the address at which this device's own functions access the `bytes` bytes at the
    /// public address `address`.
    fn resolve(&self, address: *const c_void, bytes: usize) -> Result<*mut u8>;

    /// Returns the block that `address` belongs to, if the device can find it.
    fn find_block(&self, address: *const c_void) -> Option<Block>;

    /// Returns the address at which the host can dereference the range; NULL if the host cannot.
    fn host_address(&self, address: *const c_void, bytes: usize) -> *mut c_void;

    /// Enqueues the copies, which may run in any order. Host memory that the device cannot access
    /// itself has been read or written when this function returns.
    ///
    /// # Safety
    /// [`DeviceBackend::resolve`] returned all addresses for their lengths, and the memory stays
    /// allocated until the copies have run.
    unsafe fn copy(&self, stream: &Stream, transfers: &[Transfer]) -> Result<()>;

    /// Whether a copy from this host memory may still read it when [`DeviceBackend::copy`] has
    /// returned.
    fn reads_later(&self, _address: *const c_void) -> bool {
        false
    }

    /// Reads ranges of `source`. When the function returns, all bytes have been read, and their
    /// copies are enqueued.
    ///
    /// # Safety
    /// [`DeviceBackend::resolve`] returned all targets for their lengths, and the memory stays
    /// allocated until the copies have run.
    unsafe fn load(
        &self,
        stream: &Stream,
        source: &dyn ReadAt,
        pieces: &[LoadPiece],
        tasks: &InstanceTasks,
    ) -> Result<()>;

    /// # Safety
    /// [`DeviceBackend::resolve`] returned `to` for `bytes` bytes, which stay allocated until the
    /// fill has run.
    unsafe fn fill(&self, stream: &Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()>;

    /// # Safety
    /// The kernel's struct is complete. The arguments match the kernel's declaration and have known
    /// kinds. `all_args` is the address of a copy of the arguments on the device if there are more
    /// than [`abi::MAX_KERNEL_ARGS`] and the device is a CUDA device, else NULL. The sizes of
    /// `size` are valid.
    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &abi::Kernel,
        size: &abi::Launch,
        args: &[abi::Arg],
        all_args: *const abi::Arg,
    ) -> Result<()>;

    /// Creates a stream with the priority nearest to `priority`, and returns its native handle.
    fn stream_create(&self, priority: i32) -> Result<*mut c_void>;
    /// Checks an external stream, and returns the handle to use for it.
    ///
    /// # Safety
    /// `raw` is NULL or a live stream of the device, or any value if the device has no streams.
    unsafe fn stream_adopt(&self, raw: *mut c_void) -> Result<*mut c_void>;
    /// Whether an external stream is known to have run all its work. Returns `false` if the query
    /// would take longer than recording an event.
    ///
    /// # Safety
    /// `raw` meets the requirements of [`DeviceBackend::stream_adopt`].
    unsafe fn stream_is_idle(&self, _raw: *mut c_void) -> bool {
        true
    }

    /// Whether a native stream is under graph capture.
    ///
    /// # Safety
    /// `raw` meets the requirements of [`DeviceBackend::stream_adopt`].
    unsafe fn raw_stream_is_capturing(&self, _raw: *mut c_void) -> bool {
        false
    }
    fn stream_destroy(&self, stream: &Stream);
    fn stream_synchronize(&self, stream: &Stream) -> Result<()>;
    fn stream_wait(&self, stream: &Stream, event: EventHandle) -> Result<()>;
    fn stream_wait_raw(&self, stream: &Stream, sync_event: *mut c_void) -> Result<()>;
    /// Makes later work on `stream` wait for the work enqueued so far on `earlier`, a stream of the
    /// same device.
    fn stream_follow(&self, stream: &Stream, earlier: &Stream) -> Result<()>;
    fn stream_is_capturing(&self, stream: &Stream) -> Result<bool>;
    /// Notes that the native handle of a stream was passed to other code.
    fn note_exposed(&self) {}
    /// Records an event. Returns NULL if all work on the stream has run.
    fn event_record(&self, stream: &Stream) -> Result<EventHandle>;
}

/// One copy with resolved addresses.
pub(crate) struct Transfer {
    pub to: *mut u8,
    pub from: *const u8,
    pub bytes: usize,
    pub to_cuda: bool,
    pub from_cuda: bool,
}

/// The device and block of an address.
pub(crate) struct Location {
    /// Index among the backend's devices.
    pub index: usize,
    pub device: Device,
    pub base: usize,
    pub bytes: usize,
}

/// A block of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub base: usize,
    pub bytes: usize,
}

/// Rejects ranges that cannot exist: those that begin at NULL, wrap around, or are longer than
/// `isize::MAX` bytes.
pub(crate) fn check_range(address: *const c_void, bytes: usize, device: &str) -> Result<*mut u8> {
    let number = address as usize;
    if number.checked_add(bytes).is_none_or(|_| bytes > isize::MAX as usize) || (bytes > 0 && number == 0) {
        return Err(Error::invalid_argument(format!(
            "{bytes} bytes at address {address:p} cannot lie on {device}"
        )));
    }
    Ok(address.cast_mut().cast())
}

/// The kernel's name for errors: "kernel 'x'".
pub(crate) fn kernel_name(kernel: &abi::Kernel) -> String {
    if kernel.name.is_null() {
        return "an unnamed kernel".into();
    }
    // SAFETY: by the documentation of `crossdock_kernel` the name is a NUL-terminated constant.
    let name = unsafe { CStr::from_ptr(kernel.name) };
    format!("kernel '{}'", name.to_string_lossy())
}
