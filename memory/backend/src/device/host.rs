//! Implements the host devices: `cpu`, `cuda_host` for pinned memory, and the test device
//! `untouchable`.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Code, Device, Error, Result, abi};

use super::{
    Block, DeviceBackend, DeviceDescription, EventHandle, Stream, Transfer, check_range, kernel_name,
};
use crate::read_at::{LoadPiece, ReadAt, read_on_threads};
use crate::resource::{Ranges, Resource};
use crate::tasks::InstanceTasks;

pub(crate) struct HostDevice {
    description: DeviceDescription,
    memory: Box<dyn Resource>,
    shared: Option<Box<dyn Resource>>,
    addresses: Addresses,
}

/// The meaning of the device's addresses.
pub(crate) enum Addresses {
    /// The addresses are host addresses. Addresses in `hidden`, which lists the blocks of
    /// `untouchable`, are rejected.
    Plain { hidden: Option<Arc<Ranges>> },
    /// The addresses are aliases of memory that the host accesses at other addresses.
    Aliases(Arc<Ranges>),
}

impl HostDevice {
    /// Creates `cpu`. `shared` is its memory for other processes. `hidden` lists the blocks of the
    /// test device, if that device exists.
    pub(crate) fn cpu(
        memory: Box<dyn Resource>,
        shared: Box<dyn Resource>,
        hidden: Option<Arc<Ranges>>,
    ) -> Self {
        let description = DeviceDescription {
            device: Device::CPU,
            name: "cpu".into(),
            description: "host memory".into(),
            memory_bytes: physical_memory_bytes(),
            host_accessible: true,
        };
        Self { description, memory, shared: Some(shared), addresses: Addresses::Plain { hidden } }
    }

    /// Creates `untouchable`. `memory` registers its blocks in `ranges`.
    pub(crate) fn untouchable(memory: Box<dyn Resource>, ranges: Arc<Ranges>) -> Self {
        let description = DeviceDescription {
            device: Device::UNTOUCHABLE,
            name: "untouchable".into(),
            description: "test device: host memory whose addresses fault when the host touches them".into(),
            memory_bytes: physical_memory_bytes(),
            host_accessible: false,
        };
        Self { description, memory, shared: None, addresses: Addresses::Aliases(ranges) }
    }

    /// The device of pinned memory. All CUDA devices can read and write this memory.
    pub(crate) const PINNED: Device = Device { id: 0, r#type: abi::DEVICE_CUDA_HOST, reserved: 0 };

    /// Creates `cuda_host`, the device of host memory that the driver has pinned.
    pub(crate) fn pinned(memory: Box<dyn Resource>) -> Self {
        let description = DeviceDescription {
            device: Self::PINNED,
            name: Self::PINNED.to_string(),
            description: "host memory pinned for CUDA".into(),
            memory_bytes: physical_memory_bytes(),
            host_accessible: true,
        };
        Self { description, memory, shared: None, addresses: Addresses::Plain { hidden: None } }
    }

    /// Returns `args` with addresses that a CPU implementation can dereference.
    fn resolve_args(&self, args: &[abi::Arg]) -> Result<Vec<abi::Arg>> {
        let resolve = |(i, arg): (usize, &abi::Arg)| {
            let bytes = usize::try_from(arg.bytes).unwrap_or(usize::MAX);
            if arg.kind == abi::ARG_VALUE || bytes == 0 {
                return Ok(*arg);
            }
            let address = self.resolve(arg.value as usize as *const c_void, bytes);
            let address = address.map_err(|e| e.context(format_args!("argument {i}")))?;
            Ok(abi::Arg { value: address as u64, ..*arg })
        };
        args.iter().enumerate().map(resolve).collect()
    }
}

impl DeviceBackend for HostDevice {
    fn describe(&self) -> &DeviceDescription {
        &self.description
    }

    fn memory(&self) -> &dyn Resource {
        &*self.memory
    }

    fn shared(&self) -> Option<&dyn Resource> {
        self.shared.as_deref()
    }

    fn resolve(&self, address: *const c_void, bytes: usize) -> Result<*mut u8> {
        let pointer = check_range(address, bytes, &self.description.name)?;
        let number = address as usize;
        match &self.addresses {
            _ if bytes == 0 => Ok(pointer),
            Addresses::Plain { hidden } => match hidden.as_ref().and_then(|ranges| ranges.find(number)) {
                None => Ok(pointer),
                Some(_) => Err(Error::invalid_argument(format!(
                    "address {address:p} belongs to the untouchable device, but was passed as an address of {}",
                    self.description.name
                ))),
            },
            Addresses::Aliases(ranges) => {
                let range = ranges.find(number).ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "address {address:p} is not in a live block of {}",
                        self.description.name
                    ))
                })?;
                range.translate(number, bytes).ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "{bytes} bytes at offset {} lie outside their block of {} bytes on {}",
                        number - range.base,
                        range.bytes,
                        self.description.name
                    ))
                })
            }
        }
    }

    fn find_block(&self, address: *const c_void) -> Option<Block> {
        match &self.addresses {
            // To find the block of a host address, the backend would have to maintain a map of all
            // blocks, which would slow down each allocation.
            Addresses::Plain { .. } => None,
            Addresses::Aliases(ranges) => {
                ranges.find(address as usize).map(|range| Block { base: range.base, bytes: range.bytes })
            }
        }
    }

    fn host_address(&self, address: *const c_void, _bytes: usize) -> *mut c_void {
        match self.addresses {
            Addresses::Plain { .. } => address.cast_mut(),
            Addresses::Aliases(_) => std::ptr::null_mut(),
        }
    }

    unsafe fn copy(&self, _stream: &Stream, transfers: &[Transfer]) -> Result<()> {
        for Transfer { to, from, bytes, .. } in transfers.iter().filter(|transfer| transfer.bytes > 0) {
            // SAFETY: by the contract of `copy` both ranges were resolved; `ptr::copy` allows
            // overlap.
            unsafe { std::ptr::copy(*from, *to, *bytes) };
        }
        Ok(())
    }

    unsafe fn load(
        &self,
        _stream: &Stream,
        source: &dyn ReadAt,
        pieces: &[LoadPiece],
        tasks: &InstanceTasks,
    ) -> Result<()> {
        // SAFETY: by the contract of `load` the targets were resolved, so the host can write them.
        unsafe { read_on_threads(source, pieces, tasks) }
    }

    unsafe fn fill(&self, _stream: &Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()> {
        if bytes > 0 {
            // SAFETY: by the contract of `fill` the range was resolved.
            unsafe { std::ptr::write_bytes(to, value, bytes) };
        }
        Ok(())
    }

    unsafe fn launch(
        &self,
        _stream: &Stream,
        kernel: &abi::Kernel,
        _size: &abi::Launch,
        args: &[abi::Arg],
        _all_args: *const abi::Arg,
    ) -> Result<()> {
        let device = &self.description.name;
        let cpu_implementation = kernel.host_function.ok_or_else(|| {
            Error::unsupported(format!(
                "{} has no CPU implementation, so {device} cannot run the kernel",
                kernel_name(kernel)
            ))
        })?;
        let args = self.resolve_args(args).map_err(|e| e.context(kernel_name(kernel)))?;
        // SAFETY: `resolve_args` made the addresses dereferenceable, and by `launch`'s contract the
        // arguments match the kernel. No lock is held here.
        match unsafe { cpu_implementation(args.as_ptr(), args.len()) } {
            abi::OK => Ok(()),
            code => Err(Error::new(
                Code(code),
                format!("{} failed on {device}: {}", kernel_name(kernel), Code(code).text()),
            )),
        }
    }

    fn stream_create(&self, _priority: i32) -> Result<*mut c_void> {
        Ok(std::ptr::null_mut())
    }

    unsafe fn stream_adopt(&self, _raw: *mut c_void) -> Result<*mut c_void> {
        Ok(std::ptr::null_mut())
    }

    fn stream_destroy(&self, _stream: &Stream) {}

    fn stream_synchronize(&self, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    fn stream_wait(&self, _stream: &Stream, event: EventHandle) -> Result<()> {
        // Host devices have no events; [`crate::Account`] waits for other devices' events itself.
        Err(Error::invalid_argument(format!("event {event:p} does not belong to this host")))
    }

    fn stream_wait_raw(&self, _stream: &Stream, sync_event: *mut c_void) -> Result<()> {
        Err(Error::invalid_argument(format!(
            "{} cannot wait for sync_event {sync_event:p}: on a host device, sync_event must be NULL",
            self.description.name
        )))
    }

    fn stream_follow(&self, _stream: &Stream, _earlier: &Stream) -> Result<()> {
        Ok(())
    }

    fn stream_is_capturing(&self, _stream: &Stream) -> Result<bool> {
        Ok(false)
    }

    fn event_record(&self, _stream: &Stream) -> Result<EventHandle> {
        Ok(std::ptr::null_mut())
    }
}

/// The machine's physical memory in bytes; 0 if unknown.
pub fn physical_memory_bytes() -> u64 {
    // SAFETY: `sysconf` has no requirements; an unknown name returns -1, which becomes 0 below.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0))
}
