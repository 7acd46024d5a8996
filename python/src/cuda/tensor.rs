//! Imports external arrays as device memory.

use std::sync::Arc;

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::abi;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::cuda::allocation::Allocation;
use crate::cuda::array_interface::tensor_from;
use crate::cuda::context::DeviceState;
use crate::cuda::memory::DeviceMemory;
use crate::dlpack::abi::Tensor;
use crate::dlpack::producer::import_tensor;
use crate::dlpack::tensor::cuda_device;
use crate::runtime::errors::{OrRaise, usage};

/// Checks with the driver that a range is memory of the context's device.
///
/// # Errors
/// UsageError that names `who`, the address, and the actual device or allocation.
pub fn check_range(state: &DeviceState, address: u64, bytes: u64, who: &str) -> PyResult<()> {
    let expected = state.device();
    let (device, range) = state.stream.memory().pointer(address).or_raise()?;
    // Every device can access managed memory.
    if device != expected && device.r#type != abi::DEVICE_CUDA_MANAGED {
        let what = match device.r#type {
            abi::DEVICE_CPU => "not device memory".to_owned(),
            _ => format!("memory of {device}"),
        };
        return Err(usage(format!(
            "{who}: address {address:#x} is {what}, expected memory of {expected}; use buffer_from_data to copy host data"
        )));
    }
    let Some((base, whole)) = range else { return Ok(()) };
    let end = address.checked_sub(base).and_then(|offset| offset.checked_add(bytes));
    if end.is_none_or(|end| end > whole) {
        return Err(usage(format!(
            "{who}: {bytes} bytes at {address:#x} exceed their allocation of {whole} bytes at {base:#x}"
        )));
    }
    Ok(())
}

/// Imports the memory of an array in place. `None` if it is empty.
pub fn memory_of(state: &Arc<DeviceState>, obj: &Bound<'_, PyAny>) -> PyResult<Option<DeviceMemory>> {
    let py = obj.py();
    let dlpack = obj.hasattr("__dlpack_device__")? && obj.hasattr("__dlpack__")?;
    let imported = match dlpack {
        true => import_tensor(py, &state.shared, obj)?,
        false if obj.hasattr("__cuda_array_interface__")? => tensor_from(&state.shared, obj)?,
        false => {
            return Err(PyTypeError::new_err(format!(
                "buffer_from_object: {} has neither __dlpack__ nor __cuda_array_interface__; use buffer_from_data to copy host \
                 data",
                obj.get_type().name()?
            )));
        }
    };
    let tensor = imported.into_ordered(py, &state.shared)?;
    let description = tensor
        .tensor()
        .ok_or_else(|| usage("buffer_from_object: the tensor's major DLPack version is not supported"))?;
    let expected = state.device();
    if cuda_device(description.device, expected) != Some(expected) {
        let (kind, id) = (description.device.device_type.0, description.device.device_id);
        return Err(usage(format!(
            "buffer_from_object: the array is on DLPack device ({kind}, {id}), expected {expected}; use buffer_from_data to copy \
             host data"
        )));
    }
    let (start, bytes) = span(description)?;
    if bytes == 0 {
        return Ok(None);
    }
    let address = (description.data as u64).wrapping_add(description.byte_offset).wrapping_add_signed(start);
    check_range(state, address, bytes, "buffer_from_object")?;
    let writable = !tensor.is_read_only();
    let owner = ForeignOwner::new(crate::runtime::process::ProcessLocal::new(tensor));
    // SAFETY: `check_range` proved that the range is device memory, which the tensor owns until its
    // deleter is called. `into_ordered` made the context's stream wait for the producer.
    let buffer = unsafe { Buffer::foreign(&owner, expected, address, Some(bytes), Ready::Now) };
    Ok(Some(DeviceMemory::new(Allocation::external(state.clone(), buffer, writable))))
}

/// Returns the range of bytes of a tensor without gaps: its start relative to the first element,
/// which is negative for negative strides, and its length. The dimensions may be in any order.
fn span(tensor: &Tensor) -> PyResult<(i64, u64)> {
    let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
    let bits = u64::from(tensor.dtype.bits) * u64::from(tensor.dtype.lanes);
    let elements_of = |list: *mut i64| {
        // SAFETY: DLPack guarantees `ndim` elements for shape and strides. They may be unaligned.
        (0..ndim).map(move |i| unsafe { list.add(i).read_unaligned() })
    };
    if ndim > 0 && tensor.shape.is_null() {
        return Err(usage(format!("buffer_from_object: the tensor has {ndim} dimensions and a NULL shape")));
    }
    let shape: Vec<i64> = elements_of(tensor.shape).collect();
    if shape.contains(&0) {
        return Ok((0, 0));
    }
    let elements = shape.iter().try_fold(1i64, |n, size| n.checked_mul(*size)).filter(|n| *n > 0);
    let invalid = |why: &str| usage(format!("buffer_from_object: an array of shape {shape:?} {why}"));
    let elements = elements.ok_or_else(|| invalid("has a negative size or too many elements"))?;
    let (mut first, mut last) = (0i64, 0i64);
    if !tensor.strides.is_null() {
        for (size, stride) in shape.iter().zip(elements_of(tensor.strides)) {
            let reach = stride.checked_mul(size - 1);
            let (side, reach) = match reach {
                Some(reach) if reach < 0 => (&mut first, reach),
                Some(reach) => (&mut last, reach),
                None => return Err(invalid("has strides that overflow")),
            };
            *side = side.checked_add(reach).ok_or_else(|| invalid("has strides that overflow"))?;
        }
        if i128::from(last) - i128::from(first) + 1 != i128::from(elements) {
            return Err(invalid("is not contiguous: copy it first"));
        }
    }
    if bits == 0 || bits % 8 != 0 {
        return Err(invalid(&format!("has elements of {bits} bits, expected whole bytes")));
    }
    let width = (bits / 8) as i64;
    let too_large = || invalid("is too large");
    let bytes = elements.checked_mul(width).ok_or_else(too_large)?;
    Ok((first.checked_mul(width).ok_or_else(too_large)?, bytes as u64))
}
