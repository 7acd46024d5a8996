//! Imports external tensors, and checks their fields.

use crossdock_memory::{Buffer, ForeignOwner, Memory, Ready};
use crossdock_plugin_api::{Capsule, Device, Error, Result, abi};
use dlpark::ffi::{DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlpark::{legacy, versioned};

use crate::element::Element;
use crate::strides::{MAX_DIMS, Strides};

/// Name of capsules that contain a `DLManagedTensor`.
pub(crate) const LEGACY: &std::ffi::CStr = c"dltensor";
/// Name of capsules that contain a `DLManagedTensorVersioned`.
pub(crate) const VERSIONED: &std::ffi::CStr = c"dltensor_versioned";

/// A managed tensor of either kind. Dropping it calls the deleter.
enum ManagedTensor {
    Legacy(legacy::Dlpack),
    Versioned(versioned::Dlpack),
}

impl ManagedTensor {
    fn tensor(&self) -> &DLTensor {
        // SAFETY: only dropping `self` calls the deleter, so the tensor outlives the reference.
        // DLPack forbids consumers to modify a tensor's fields.
        unsafe {
            match self {
                ManagedTensor::Legacy(managed) => managed.tensor(),
                ManagedTensor::Versioned(managed) => managed.tensor(),
            }
        }
    }
}

/// A tensor whose fields have been checked.
pub(crate) struct Tensor {
    managed: ManagedTensor,
    pub(crate) element: Element,
    pub(crate) strides: Strides,
    pub(crate) device: Device,
    /// Whether the declared device is the CPU, for which DLPack has no streams. Pinned memory is on
    /// the CPU too, but devices write to it, so it is ready only after the work of a stream.
    is_ready: bool,
    /// Address of the first element. It is 0 if there are no elements.
    address: u64,
}

impl Tensor {
    /// Takes the tensor out of its capsule. If the tensor is rejected, it is freed.
    pub(crate) fn take(capsule: Capsule, memory: &Memory) -> Result<Self> {
        let (form, raw) = capsule.take_any_self_freeing(&[VERSIONED, LEGACY])?;
        // SAFETY: DLPack defines which struct a capsule with each of these names contains.
        // `take_any_self_freeing` has passed the ownership of the struct.
        let managed = unsafe {
            match form {
                0 => versioned::Dlpack::from_raw(raw.cast::<DLManagedTensorVersioned>().as_ptr())
                    .map(ManagedTensor::Versioned),
                _ => legacy::Dlpack::from_raw(raw.cast::<DLManagedTensor>().as_ptr())
                    .map(ManagedTensor::Legacy),
            }
        };
        Self::check(managed.map_err(|error| Error::version(error.to_string()))?, memory)
    }

    fn check(managed: ManagedTensor, memory: &Memory) -> Result<Self> {
        let tensor = managed.tensor();
        let element = Element::from_dtype(tensor.dtype)?;
        let ndim = match usize::try_from(tensor.ndim) {
            Ok(0) => {
                return Err(Error::unsupported(
                    "the tensor is a scalar, but a column needs a dimension for its rows: reshape it to (1,)",
                ));
            }
            Ok(ndim) if ndim <= MAX_DIMS => ndim,
            _ => {
                let what = format!("the tensor has {} dimensions, expected 1 to {MAX_DIMS}", tensor.ndim);
                return Err(Error::bad_data(what));
            }
        };
        if tensor.shape.is_null() {
            return Err(Error::bad_data(format!("shape is NULL with {ndim} dimensions")));
        }
        if !tensor.shape.is_aligned() || !tensor.strides.is_aligned() {
            return Err(Error::bad_data("shape or strides are not aligned for int64_t"));
        }
        // SAFETY: the checks before this line rejected misaligned pointers and a NULL shape. DLPack
        // requires that shape and strides have `ndim` elements, except that strides may be NULL in
        // versions before 1.2.
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

    pub(crate) fn rows(&self) -> usize {
        self.strides.rows()
    }

    /// Whether the elements can be read without waiting for a stream.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether an Arrow buffer can refer to the elements, because they are aligned and contiguous
    /// in this order.
    pub(crate) fn is_in_place(&self, order: &[usize]) -> bool {
        self.strides.is_contiguous(order) && self.address.is_multiple_of(self.element.width() as u64)
    }

    /// Address and size in bytes of the elements, which must be contiguous.
    pub(crate) fn span(&self) -> (u64, usize) {
        (self.address, self.strides.extent(self.element.width()).1)
    }

    /// Returns a buffer that contains all memory of the tensor and keeps the tensor alive, and the
    /// offset of the first element in the buffer in bytes.
    pub(crate) fn into_buffer(self, ready: Ready) -> (Buffer, usize) {
        let (low, extent) = self.strides.extent(self.element.width());
        let (device, address) = (self.device, self.address);
        let owner = ForeignOwner::new(self.managed);
        // SAFETY: DLPack requires that the memory that shape and strides describe is valid until
        // the deleter is called. Only dropping `owner` calls the deleter.
        let buffer =
            unsafe { Buffer::foreign(&owner, device, address - low as u64, Some(extent as u64), ready) };
        (buffer, low)
    }
}

/// Returns the device of a tensor. Pinned host memory is on the CPU.
///
/// If a CUDA device is declared, the driver is asked to confirm it, because a kernel that reads a
/// wrong address would make the whole context unusable. For managed memory, producers always
/// declare device 0, even if another device is the preferred location of the memory.
fn device_of(device: DLDevice, address: u64, memory: &Memory) -> Result<Device> {
    let declared = match device.device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => return Ok(Device::CPU),
        DLDeviceType(other) => {
            Device::from_arrow(i32::try_from(other).unwrap_or(i32::MAX), device.device_id.into())
        }
    };
    let is_cuda_address = declared.r#type == abi::DEVICE_CUDA && address != 0;
    if is_cuda_address && memory.pointer(address)?.0 == declared {
        return Ok(declared);
    }
    // The first call of `devices` loads the driver.
    let devices = memory.devices()?;
    if declared.r#type == abi::DEVICE_CUDA_MANAGED && address != 0 {
        let actual = memory.pointer(address)?.0;
        return Ok(match actual.r#type {
            abi::DEVICE_CUDA | abi::DEVICE_CUDA_MANAGED => Device::cuda(actual.id),
            _ => Device::CPU,
        });
    }
    if !devices.iter().any(|info| info.device == declared) {
        let known: Vec<_> = devices.iter().map(|info| info.name.as_str()).collect();
        return Err(Error::device(format!(
            "the tensor is on {declared}, expected one of {}",
            known.join(", ")
        )));
    }
    if !is_cuda_address {
        return Ok(declared);
    }
    let actual = memory.pointer(address)?.0;
    match actual.r#type {
        // All devices can access managed memory and mapped host memory.
        abi::DEVICE_CUDA_MANAGED | abi::DEVICE_CUDA_HOST => Ok(declared),
        abi::DEVICE_CUDA if actual == declared => Ok(declared),
        abi::DEVICE_CUDA => Err(Error::bad_data(format!(
            "the tensor's declared device is {declared}, but the driver reports memory of {actual} at {address:#x}"
        ))),
        _ => Err(Error::bad_data(format!(
            "the tensor's declared device is {declared}, but the driver reports no device memory at {address:#x}"
        ))),
    }
}

/// Converts to DLPack's device numbers.
pub(crate) fn to_dlpack(device: Device) -> Result<DLDevice> {
    let out_of_range = |_| Error::internal(format!("DLPack has no device type for {device}"));
    Ok(DLDevice {
        device_type: DLDeviceType(u32::try_from(device.r#type).map_err(out_of_range)?),
        device_id: i32::try_from(device.id.max(0)).map_err(out_of_range)?,
    })
}
