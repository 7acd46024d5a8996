//! The handle: every other type of this crate holds one.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Host, Result, abi};

use crate::host_kernels::{ADVICE, Found};
use crate::owner::Owner;
use crate::{ALIGNMENT, BufferMut, Stream};

/// A host's memory, as one plugin instance sees it. Cheap to clone; holds a reference to the host, so that whatever
/// it allocated may outlive the plugin's handle.
#[derive(Clone)]
pub struct Memory(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// What its functions are given.
    object: NonNull<abi::Memory>,
    /// As much of it as this plugin knows, and this host has.
    table: abi::Memory,
    /// The host's kernels that were launched.
    pub(crate) found: Found,
    _host: Host,
}

// SAFETY: every function of the tables is callable from any thread, and they live as long as `_host`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// What one device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Type and number.
    pub device: Device,
    /// "cpu", "cuda:0".
    pub name: String,
    /// What a person would call it.
    pub description: String,
    /// Bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Whether the host may dereference its addresses.
    pub host_accessible: bool,
}

/// Calls a function of the table, or says that this host lacks it.
macro_rules! call {
    ($memory:expr, $f:ident, $($arg:expr),*) => {{
        let table = $memory.table();
        match table.$f {
            // SAFETY: the table's own function on itself; the handles in the arguments were made by this table, and
            // the pointers are to locals or to ranges that the safe caller borrows for the call.
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
    /// The memory that `host` offers.
    pub fn from_host(host: &Host) -> Result<Self> {
        // SAFETY: `abi::Memory` is what the header defines for this id.
        let memory = unsafe { host.interface::<abi::Memory>(abi::HOST_MEMORY_ID) };
        let (object, table) = memory.ok_or_else(|| {
            Error::version("the host offers no 'crossdock.host.memory/1', or one too short to be of use")
        })?;
        Ok(Self(Arc::new(Inner { object, table, found: Found::new(host), _host: host.clone() })))
    }

    /// The same memory, where its host has kernels that are launched by name. For plugins that cannot work without
    /// them, in `create`.
    ///
    /// # Errors
    /// `VERSION` where the host does not offer `crossdock.host.kernels/1`.
    pub fn with_host_kernels(self) -> Result<Self> {
        if self.0.found.is_offered() {
            return Ok(self);
        }
        Err(Error::version(format!(
            "the host offers no 'crossdock.host.kernels/1', by which this plugin launches kernels: {ADVICE}"
        )))
    }

    #[inline]
    pub(crate) fn table(&self) -> &abi::Memory {
        &self.0.table
    }

    /// The host's own object, which lives as long as the host that `Inner` holds a reference to.
    #[inline]
    pub(crate) fn object(&self) -> *const abi::Memory {
        self.0.object.as_ptr()
    }

    /// All devices that work can be sent to.
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
                // SAFETY: the strings are the host's and live as long as it.
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

    /// The device's default stream.
    pub fn default_stream(&self, device: Device) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        call!(self, stream_default, device, &mut raw)?;
        Ok(Stream::new(self.clone(), device, raw, false))
    }

    /// A new stream of the device.
    pub fn create_stream(&self, device: Device) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        call!(self, stream_create, device, &mut raw)?;
        Ok(Stream::new(self.clone(), device, raw, true))
    }

    /// A stream over a stranger's own one: `raw` is a `CUstream`, 1 for the legacy default stream or 2 for the per-thread
    /// one of whichever thread calls. Work is ordered with it like with any other; what is allocated on it may outlive it.
    /// Dropping the last clone leaves the stranger's stream as it is. On host devices, whose work is done at once, `raw` means
    /// nothing.
    ///
    /// # Errors
    /// `raw` is null on a CUDA device, or of another device or context; or the host is older than this function.
    ///
    /// # Safety
    /// On a CUDA device `raw` is a live stream, and stays one whenever the result, or a clone of it, is used. A buffer that was
    /// allocated on it, and events that were recorded on it, may live longer.
    pub unsafe fn adopt_stream(&self, device: Device, raw: *mut c_void) -> Result<Stream> {
        let mut out = std::ptr::null_mut();
        call!(self, stream_adopt, device, raw, &mut out)?;
        Ok(Stream::new(self.clone(), device, out, true))
    }

    /// `bytes` bytes on the stream's device, uninitialised, usable in the stream's order, aligned to [`ALIGNMENT`].
    pub fn alloc(&self, stream: &Stream, bytes: usize) -> Result<BufferMut> {
        let mut out = abi::Allocation::default();
        call!(self, alloc, stream.device(), bytes, ALIGNMENT, stream.raw(), &mut out)?;
        Ok(BufferMut::new(
            Owner::block(self.clone(), out.block),
            self.clone(),
            out.address as u64,
            bytes,
            stream.device(),
        ))
    }

    /// `bytes` bytes of host memory that devices copy from and to at full speed.
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

    /// A buffer on the stream's device whose bytes `fill` writes: in place where the host may, else through pinned
    /// memory and a copy on the stream. Work that follows on other streams waits for [`BufferMut::freeze`]'s event.
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

    /// The device, and where known the whole allocation, that an address belongs to: `(device, base, bytes)`.
    pub fn pointer(&self, address: u64) -> Result<(Device, Option<(u64, u64)>)> {
        let mut out = abi::Pointer::new();
        call!(self, pointer, address as *const _, &mut out)?;
        Ok((out.device, (!out.base.is_null() && out.bytes > 0).then_some((out.base as u64, out.bytes))))
    }

    /// Where the host may dereference `bytes` bytes at `address`, if anywhere. Zero bytes: nowhere.
    #[inline]
    pub(crate) fn host_address(&self, device: Device, address: u64, bytes: usize) -> Option<NonNull<u8>> {
        if bytes == 0 {
            return None;
        }
        let f = self.table().host_address?;
        // SAFETY: the table's own function on itself; it looks at the address as a number.
        NonNull::new(unsafe { f(self.object(), device, address as *const _, bytes) }.cast())
    }
}
