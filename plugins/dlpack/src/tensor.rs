//! Strangers' tensors, checked as far as the host can see.

use crossdock_memory::{Buffer, ForeignOwner, Memory, Ready};
use crossdock_plugin_api::{Capsule, Device, Error, Result, abi};
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlpark::{legacy, versioned};

use crate::element::Element;
use crate::strides::{MAX_DIMS, Strides};

/// The capsule of the form without a version.
pub(crate) const LEGACY: &std::ffi::CStr = c"dltensor";
/// The capsule of the form with one.
pub(crate) const VERSIONED: &std::ffi::CStr = c"dltensor_versioned";

/// A managed tensor; its deleter runs when it is dropped.
enum Kept {
    Legacy(legacy::Dlpack),
    Versioned(versioned::Dlpack),
}

impl Kept {
    fn descriptor(&self) -> &DLTensor {
        // SAFETY: the tensor is managed, and lives until its deleter is called; nothing changes it meanwhile.
        unsafe {
            match self {
                Kept::Legacy(managed) => managed.tensor(),
                Kept::Versioned(managed) => managed.tensor(),
            }
        }
    }
}

/// A tensor whose description has been checked.
pub(crate) struct Tensor {
    managed: Kept,
    pub(crate) element: Element,
    pub(crate) strides: Strides,
    pub(crate) device: Device,
    /// Said to lie on the CPU, where DLPack has no streams: its bytes are there. Pinned memory, which devices write too, is
    /// the host's and ready in a stream's order.
    is_ready: bool,
    /// Of its first element; 0 if it has none.
    address: u64,
}

impl Tensor {
    /// Takes the tensor out of its capsule. A tensor that is refused is freed.
    pub(crate) fn take(capsule: Capsule, memory: &Memory) -> Result<Self> {
        let (form, raw) = capsule.take_any_self_freeing(&[VERSIONED, LEGACY])?;
        // SAFETY: under these names capsules hold such a tensor, which is ours once taken.
        let managed = unsafe {
            match form {
                0 => versioned::Dlpack::from_raw(raw.cast::<DLManagedTensorVersioned>().as_ptr())
                    .map(Kept::Versioned),
                _ => legacy::Dlpack::from_raw(raw.cast::<DLManagedTensor>().as_ptr()).map(Kept::Legacy),
            }
        };
        Self::check(managed.map_err(|error| Error::version(error.to_string()))?, memory)
    }

    fn check(managed: Kept, memory: &Memory) -> Result<Self> {
        let tensor = managed.descriptor();
        let element = Element::of_tensor(tensor.dtype)?;
        let ndim = match usize::try_from(tensor.ndim) {
            Ok(0) => {
                return Err(Error::unsupported(
                    "a scalar: a column needs a first dimension, its rows; reshape it to (1,)",
                ));
            }
            Ok(ndim) if ndim <= MAX_DIMS => ndim,
            _ => {
                let what = format!("{} dimensions, expected 1 to {MAX_DIMS}", tensor.ndim);
                return Err(Error::bad_data(what));
            }
        };
        if tensor.shape.is_null() {
            return Err(Error::bad_data(format!("a NULL shape with {ndim} dimensions")));
        }
        if !tensor.shape.is_aligned() || !tensor.strides.is_aligned() {
            return Err(Error::bad_data("a shape or strides at an address that no int64_t may have"));
        }
        // SAFETY: not null, aligned, and as many as the tensor has dimensions, by DLPack's contract; the same for the strides,
        // which may be NULL before version 1.2.
        let (shape, strides) = unsafe {
            let strides = std::ptr::NonNull::new(tensor.strides);
            (
                std::slice::from_raw_parts(tensor.shape, ndim),
                strides.map(|strides| std::slice::from_raw_parts(strides.as_ptr(), ndim)),
            )
        };
        let address = (tensor.data as u64).checked_add(tensor.byte_offset).ok_or_else(|| {
            Error::bad_data(format!("byte_offset {} reaches beyond the address space", tensor.byte_offset))
        })?;
        let strides = Strides::new(shape, strides, element.width(), address)?;
        if strides.elements() > 0 && tensor.data.is_null() {
            return Err(Error::bad_data(format!("data is NULL with shape {shape:?}")));
        }
        let address = if strides.elements() == 0 { 0 } else { address };
        let device = device_of(tensor.device, address, memory)?;
        let is_ready = tensor.device.device_type == DLDeviceType::CPU;
        Ok(Self { managed, element, strides, device, is_ready, address })
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> usize {
        self.strides.rows()
    }

    /// Whether its bytes are there without anybody's waiting.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether its elements may stand in Arrow's buffers where they are: in this order side by side, and aligned.
    pub(crate) fn is_in_place(&self, order: &[usize]) -> bool {
        self.strides.is_contiguous(order) && self.address.is_multiple_of(self.element.width() as u64)
    }

    /// Of elements side by side: where the first lies, and bytes of all.
    pub(crate) fn span(&self) -> (u64, usize) {
        (self.address, self.strides.extent(self.element.width()).1)
    }

    /// All of its memory as a buffer that keeps it alive, and where in that its first element lies.
    pub(crate) fn into_buffer(self, ready: Ready) -> (Buffer, usize) {
        let (low, extent) = self.strides.extent(self.element.width());
        let (device, address) = (self.device, self.address);
        let owner = ForeignOwner::new(self.managed);
        // SAFETY: the tensor's producer vouches for the memory that its shape and strides span, until its deleter is called,
        // which is when the owner is dropped.
        let buffer =
            unsafe { Buffer::foreign(&owner, device, address - low as u64, Some(extent as u64), ready) };
        (buffer, low)
    }
}

/// Where a tensor lies. Pinned host memory is host memory. What is said of CUDA memory is put to the driver, before a kernel
/// that believes it takes the whole context with it: managed memory may be said to be device 0's and be any device's, or none's.
fn device_of(device: DLDevice, address: u64, memory: &Memory) -> Result<Device> {
    let declared = match device.device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => return Ok(Device::CPU),
        DLDeviceType(other) => {
            Device::from_arrow(i32::try_from(other).unwrap_or(i32::MAX), device.device_id.into())
        }
    };
    let asks = declared.r#type == abi::DEVICE_CUDA && address != 0;
    if asks && memory.pointer(address)?.0 == declared {
        return Ok(declared);
    }
    // This looks for a driver, if nobody has before.
    let devices = memory.devices()?;
    if declared.r#type == abi::DEVICE_CUDA_MANAGED && address != 0 {
        let found = memory.pointer(address)?.0;
        return Ok(match found.r#type {
            abi::DEVICE_CUDA | abi::DEVICE_CUDA_MANAGED => Device::cuda(found.id),
            _ => Device::CPU,
        });
    }
    if !devices.iter().any(|info| info.device == declared) {
        let known: Vec<_> = devices.iter().map(|info| info.name.as_str()).collect();
        return Err(Error::device(format!("it lies on {declared}, expected one of {}", known.join(", "))));
    }
    if !asks {
        return Ok(declared);
    }
    let found = memory.pointer(address)?.0;
    match found.r#type {
        // Managed memory, and host memory that is mapped into devices', is every device's.
        abi::DEVICE_CUDA_MANAGED | abi::DEVICE_CUDA_HOST => Ok(declared),
        abi::DEVICE_CUDA if found == declared => Ok(declared),
        abi::DEVICE_CUDA => Err(Error::bad_data(format!(
            "it is said to lie on {declared}, and the driver says that {address:#x} is memory of {found}"
        ))),
        _ => Err(Error::bad_data(format!(
            "it is said to lie on {declared}, and the driver knows of no memory of a device at {address:#x}"
        ))),
    }
}

/// A device as DLPack numbers it.
pub(crate) fn to_dlpack(device: Device) -> Result<DLDevice> {
    let wrong = |_| Error::internal(format!("{device} has no number in DLPack"));
    Ok(DLDevice {
        device_type: DLDeviceType(u32::try_from(device.r#type).map_err(wrong)?),
        device_id: i32::try_from(device.id.max(0)).map_err(wrong)?,
    })
}
