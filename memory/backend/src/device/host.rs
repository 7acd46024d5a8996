//! Devices that are the host itself: `cpu`, and `untouchable`, which hides the same memory behind other addresses.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Code, Device, Error, Result, abi};

use super::{
    DeviceBackend, DeviceDescription, EventHandle, Found, Stream, Transfer, kernel_name, whole_range,
};
use crate::resource::{Ranges, Resource};

pub(crate) struct HostDevice {
    description: DeviceDescription,
    memory: Box<dyn Resource>,
    addresses: Addresses,
}

/// What an address on the device means.
pub(crate) enum Addresses {
    /// Itself. Those of `hidden`, if the backend has such a device, are refused rather than run into.
    Plain { hidden: Option<Arc<Ranges>> },
    /// A name for memory that lies elsewhere.
    Aliases(Arc<Ranges>),
}

impl HostDevice {
    /// `cpu`. `hidden` are the addresses that the test device has published, if there is one.
    pub(crate) fn cpu(memory: Box<dyn Resource>, hidden: Option<Arc<Ranges>>) -> Self {
        let description = DeviceDescription {
            device: Device::CPU,
            name: "cpu".into(),
            description: "host memory".into(),
            memory_bytes: physical_memory_bytes(),
            host_accessible: true,
        };
        Self { description, memory, addresses: Addresses::Plain { hidden } }
    }

    /// `untouchable`, whose `memory` enters its blocks into `ranges`.
    pub(crate) fn untouchable(memory: Box<dyn Resource>, ranges: Arc<Ranges>) -> Self {
        let description = DeviceDescription {
            device: Device::UNTOUCHABLE,
            name: "untouchable".into(),
            description: "test device: host memory whose addresses fault when the host touches them".into(),
            memory_bytes: physical_memory_bytes(),
            host_accessible: false,
        };
        Self { description, memory, addresses: Addresses::Aliases(ranges) }
    }

    /// What pinned memory is called: it belongs to no device, and is read and written by all of them.
    pub(crate) const PINNED: Device = Device { id: 0, r#type: abi::DEVICE_CUDA_HOST, reserved: 0 };

    /// `cuda_host`: host memory that the driver has pinned.
    pub(crate) fn pinned(memory: Box<dyn Resource>) -> Self {
        let description = DeviceDescription {
            device: Self::PINNED,
            name: Self::PINNED.to_string(),
            description: "host memory pinned for CUDA".into(),
            memory_bytes: physical_memory_bytes(),
            host_accessible: true,
        };
        Self { description, memory, addresses: Addresses::Plain { hidden: None } }
    }

    /// `args` with addresses that the twin may dereference.
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

    fn resolve(&self, address: *const c_void, bytes: usize) -> Result<*mut u8> {
        let plain = whole_range(address, bytes, &self.description.name)?;
        let number = address as usize;
        match &self.addresses {
            _ if bytes == 0 => Ok(plain),
            Addresses::Plain { hidden } => match hidden.as_ref().and_then(|ranges| ranges.find(number)) {
                None => Ok(plain),
                Some(_) => Err(Error::invalid_argument(format!(
                    "address {address:p} belongs to untouchable, and was passed as one on {}",
                    self.description.name
                ))),
            },
            Addresses::Aliases(ranges) => {
                let range = ranges.find(number).ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "address {address:p} lies in no live block of {}",
                        self.description.name
                    ))
                })?;
                range.reach(number, bytes).ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "{bytes} bytes from byte {} on lie outside their block of {} bytes on {}",
                        number - range.base,
                        range.bytes,
                        self.description.name
                    ))
                })
            }
        }
    }

    fn find(&self, address: *const c_void) -> Found {
        match &self.addresses {
            // Nothing in an address of the host says which allocation it lies in, and a map of all blocks would cost
            // every allocation more than the answer is worth.
            Addresses::Plain { .. } => Found::No,
            Addresses::Aliases(ranges) => ranges
                .find(address as usize)
                .map_or(Found::No, |range| Found::Block { base: range.base, bytes: range.bytes }),
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
            // SAFETY: the caller has resolved both ranges; they may overlap.
            unsafe { std::ptr::copy(*from, *to, *bytes) };
        }
        Ok(())
    }

    unsafe fn fill(&self, _stream: &Stream, to: *mut u8, value: u8, bytes: usize) -> Result<()> {
        if bytes > 0 {
            // SAFETY: the caller has resolved the range.
            unsafe { std::ptr::write_bytes(to, value, bytes) };
        }
        Ok(())
    }

    unsafe fn launch(
        &self,
        _stream: &Stream,
        kernel: &abi::Kernel,
        _grid: abi::Grid,
        args: &[abi::Arg],
    ) -> Result<()> {
        let device = &self.description.name;
        let twin = kernel.host_twin.ok_or_else(|| {
            Error::unsupported(format!("{} has no host twin, so {device} cannot run it", kernel_name(kernel)))
        })?;
        let args = self.resolve_args(args).map_err(|e| e.context(kernel_name(kernel)))?;
        // SAFETY: the addresses in `args` may be dereferenced; that they are what the twin declares is the word of
        // `launch`'s caller. No lock is held here.
        match unsafe { twin(args.as_ptr(), args.len()) } {
            abi::OK => Ok(()),
            code => Err(Error::new(
                Code(code),
                format!("{} failed on {device}: {}", kernel_name(kernel), Code(code).text()),
            )),
        }
    }

    fn stream_create(&self) -> Result<*mut c_void> {
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
        // Host devices make no events; those of others are waited for before it comes to this.
        Err(Error::invalid_argument(format!("event {event:p} was not made by this memory")))
    }

    fn stream_wait_raw(&self, _stream: &Stream, sync_event: *mut c_void) -> Result<()> {
        Err(Error::invalid_argument(format!(
            "sync_event {sync_event:p} cannot be waited for on {}: on a host device it must be NULL",
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

/// Bytes of memory that the machine has; 0 where it does not say.
pub fn physical_memory_bytes() -> u64 {
    // SAFETY: both names are known to the platform; an answer of -1 is dealt with.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0))
}
