//! The memory of a host, as one plugin instance uses it.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Host, Result, abi};

use crate::host_kernels::{ADVICE, HostKernelCache};
use crate::owner::Owner;
use crate::{ALIGNMENT, BufferMut, Stream};

/// The memory interface of a host. Cheap to clone. It holds a reference to the host, so that
/// allocations may outlive the plugin's own handle of the host.
#[derive(Clone)]
pub struct Memory(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// The host's object, the first argument of every function.
    object: NonNull<abi::Memory>,
    /// The functions that both this plugin and the host have.
    table: abi::Memory,
    /// Caches the kernels of the host.
    pub(crate) host_kernels: HostKernelCache,
    _host: Host,
}

// SAFETY: every function of the tables may be called on any thread, and the tables live as long as
// `_host`.
unsafe impl Send for Inner {}
// SAFETY: every function of the tables may be called on several threads at the same time.
unsafe impl Sync for Inner {}

/// Describes a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Type and number.
    pub device: Device,
    /// Name, such as "cpu" or "cuda:0".
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Memory of the device in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Whether the host can dereference the device's addresses.
    pub host_accessible: bool,
}

/// Calls a function of the table. Returns an error if this host lacks the function.
macro_rules! call {
    ($memory:expr, $f:ident, $($arg:expr),*) => {{
        let table = $memory.table();
        match table.$f {
            // SAFETY: the function is called with the object of its own table, and with handles
            // that this table created. The pointers are to locals, or to ranges that the caller
            // borrows for the call.
            Some(f) => $crate::memory::check(|err| unsafe { f($memory.object(), $($arg,)* err) }),
            None => Err(crossdock_plugin_api::Error::unsupported(concat!(
                "this host's memory interface has no function '", stringify!($f), "'"))),
        }
    }};
}
pub(crate) use call;

#[inline]
pub(crate) fn check(f: impl FnOnce(*mut abi::Error) -> abi::Code) -> Result<()> {
    Error::check(f)
}

impl Memory {
    /// Returns the memory interface that `host` offers.
    pub fn from_host(host: &Host) -> Result<Self> {
        // SAFETY: `abi::Memory` is what the header defines for this id.
        let memory = unsafe { host.interface::<abi::Memory>(abi::HOST_MEMORY_ID) };
        let (object, table) = memory.ok_or_else(|| {
            Error::version(
                "the host does not offer 'crossdock.host.memory/1', or offers a version that is too old",
            )
        })?;
        Ok(Self(Arc::new(Inner {
            object,
            table,
            host_kernels: HostKernelCache::new(host),
            _host: host.clone(),
        })))
    }

    /// Checks that the host also offers kernels that are launched by name. Plugins that cannot work
    /// without such kernels call this function in `create`.
    ///
    /// # Errors
    /// `VERSION` if the host does not offer `crossdock.host.kernels/1`.
    pub fn with_host_kernels(self) -> Result<Self> {
        if self.0.host_kernels.is_available() {
            return Ok(self);
        }
        Err(Error::version(format!(
            "the host offers no 'crossdock.host.kernels/1', which this plugin needs to launch kernels: {ADVICE}"
        )))
    }

    #[inline]
    pub(crate) fn table(&self) -> &abi::Memory {
        &self.0.table
    }

    /// The host's object, which lives as long as the host that `Inner` holds a reference to.
    #[inline]
    pub(crate) fn object(&self) -> *const abi::Memory {
        self.0.object.as_ptr()
    }

    /// Returns all devices that can run work.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut n = 0;
        call!(self, devices, std::ptr::null_mut(), 0, &mut n)?;
        let mut infos: Vec<abi::DeviceInfo> = (0..n.min(1024)).map(|_| abi::DeviceInfo::new()).collect();
        let mut written = 0;
        call!(self, devices, infos.as_mut_ptr(), infos.len(), &mut written)?;
        infos.truncate(written);
        infos
            .iter()
            .map(|info| {
                // SAFETY: the strings belong to the host and are valid as long as the host, which
                // is alive.
                let (name, description) = unsafe { (info.name.get()?, info.description.get()?) };
                Ok(DeviceInfo {
                    device: info.device,
                    name: name.to_string(),
                    description: description.to_string(),
                    memory_bytes: info.memory_bytes,
                    host_accessible: info.host_accessible != 0,
                })
            })
            .collect()
    }

    /// Returns the device's default stream.
    pub fn default_stream(&self, device: Device) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        call!(self, stream_default, device, &mut raw)?;
        Ok(Stream::new(self.clone(), device, raw, false))
    }

    /// Creates a stream of the device.
    pub fn create_stream(&self, device: Device) -> Result<Stream> {
        self.create_stream_with_priority(device, 0)
    }

    /// Creates a stream of the device. A lower number is a higher priority, 0 is the default, and a
    /// number outside the device's range is replaced by the nearest number of the range. Devices
    /// without priorities ignore it.
    pub fn create_stream_with_priority(&self, device: Device, priority: i32) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        call!(self, stream_create, device, priority, 0, &mut raw)?;
        Ok(Stream::new(self.clone(), device, raw, true))
    }

    /// Wraps an external stream: `raw` is a `CUstream`, 1 for the legacy default stream, or 2 for
    /// the per-thread default stream of the calling thread. Work on the external stream is ordered
    /// as on any other stream. Buffers that are allocated on the stream may outlive it. Dropping
    /// the last clone does not destroy the external stream. On host devices `raw` is ignored,
    /// because their work is complete when the call returns.
    ///
    /// # Errors
    /// If `raw` is NULL on a CUDA device, or belongs to another device or context, or if the host
    /// lacks this function.
    ///
    /// # Safety
    /// On a CUDA device `raw` is a live stream, and stays alive while the result or a clone of it
    /// is in use. Buffers allocated on the stream and events recorded on it may outlive the stream.
    pub unsafe fn adopt_stream(&self, device: Device, raw: *mut c_void) -> Result<Stream> {
        let mut out = std::ptr::null_mut();
        call!(self, stream_adopt, device, raw, &mut out)?;
        Ok(Stream::new(self.clone(), device, out, true))
    }

    /// Allocates `bytes` uninitialised bytes on the stream's device, aligned to [`ALIGNMENT`]. Work
    /// that is enqueued on `stream` after this call may use them.
    pub fn alloc(&self, stream: &Stream, bytes: usize) -> Result<BufferMut> {
        let mut out = abi::Allocation::default();
        call!(self, alloc, stream.device(), bytes, ALIGNMENT, stream.raw(), 0, &mut out)?;
        Ok(BufferMut::new(
            Owner::block(self.clone(), out.block),
            self.clone(),
            out.address as u64,
            bytes,
            stream.device(),
        ))
    }

    /// Allocates `bytes` bytes of host memory that devices copy from and to at full speed (pinned
    /// memory).
    pub fn alloc_pinned(&self, bytes: usize) -> Result<BufferMut> {
        let mut out = abi::Allocation::default();
        call!(self, alloc_pinned, bytes, &mut out)?;
        Ok(BufferMut::new(
            Owner::block(self.clone(), out.block),
            self.clone(),
            out.address as u64,
            bytes,
            Device::CPU,
        ))
    }

    /// Allocates a buffer on the stream's device, and calls `fill` to write its bytes. `fill`
    /// writes in place if the host can dereference the buffer's address. Otherwise it writes to
    /// pinned memory, which is then copied to the buffer on `stream`. Work on other streams must
    /// wait for the event that [`BufferMut::freeze`] records.
    pub fn alloc_with(
        &self,
        stream: &Stream,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<BufferMut> {
        let mut buffer = self.alloc(stream, bytes)?;
        if let Some(slice) = buffer.host_slice_mut() {
            fill(slice)?;
            return Ok(buffer);
        }
        let mut staging = self.alloc_pinned(bytes)?;
        let slice = staging
            .host_slice_mut()
            .ok_or_else(|| Error::internal("the host cannot reach the pinned memory that it allocated"))?;
        fill(slice)?;
        stream.copy(&mut buffer, 0, &staging.freeze_now(), 0, bytes)?;
        Ok(buffer)
    }

    /// Returns the device that an address belongs to and, if known, the whole allocation: `(device,
    /// (base, bytes))`.
    pub fn pointer(&self, address: u64) -> Result<(Device, Option<(u64, u64)>)> {
        let mut out = abi::Pointer::new();
        call!(self, pointer, address as *const _, &mut out)?;
        Ok((out.device, (!out.base.is_null() && out.bytes > 0).then_some((out.base as u64, out.bytes))))
    }

    /// Returns the address at which the host can dereference the `bytes` bytes at `address` of
    /// `device`. Returns `None` if the host cannot dereference them, or if `bytes` is 0.
    #[inline]
    pub(crate) fn host_address(&self, device: Device, address: u64, bytes: usize) -> Option<NonNull<u8>> {
        if bytes == 0 {
            return None;
        }
        let f = self.table().host_address?;
        // SAFETY: `host_address` is called with the object of its own table, and treats the address
        // as a number.
        NonNull::new(unsafe { f(self.object(), device, address as *const _, bytes) }.cast())
    }
}
