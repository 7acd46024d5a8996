//! Others' arrays as buffers.

use std::sync::Arc;

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::abi;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::cuda_allocation::Allocation;
use crate::cuda_array_interface::tensor_from;
use crate::cuda_context::Place;
use crate::cuda_memory::DeviceMemory;
use crate::dlpack_abi::Tensor;
use crate::dlpack_in_producer::ask;
use crate::dlpack_tensor::cuda_device;
use crate::errors::{OrRaise, usage};

/// Refuses what is no memory of the place's device, as the driver knows it.
pub fn check_range(place: &Place, address: u64, bytes: u64, who: &str) -> PyResult<()> {
    let own = place.device();
    let (device, range) = place.stream.memory().pointer(address).or_raise()?;
    // Managed memory is every device's.
    if device != own && device.r#type != abi::DEVICE_CUDA_MANAGED {
        let what = match device.r#type {
            abi::DEVICE_CPU => "no memory of a CUDA device".to_owned(),
            _ => format!("memory of {device}"),
        };
        return Err(usage(format!(
            "{who}: address {address:#x} is {what}, and the context is of {own}; host data is copied there with \
             buffer_from_data"
        )));
    }
    let Some((base, whole)) = range else { return Ok(()) };
    let end = address.checked_sub(base).and_then(|offset| offset.checked_add(bytes));
    if end.is_none_or(|end| end > whole) {
        return Err(usage(format!(
            "{who}: {bytes} bytes at {address:#x} lie outside their allocation, which is {whole} bytes from {base:#x} on"
        )));
    }
    Ok(())
}

/// The memory of an array, in place; `None` where it has none.
pub fn memory_of(place: &Arc<Place>, obj: &Bound<'_, PyAny>) -> PyResult<Option<DeviceMemory>> {
    let py = obj.py();
    let dlpack = obj.hasattr("__dlpack_device__")? && obj.hasattr("__dlpack__")?;
    let asked = match dlpack {
        true => ask(py, &place.shared, obj)?,
        false if obj.hasattr("__cuda_array_interface__")? => tensor_from(&place.shared, obj)?,
        false => {
            return Err(PyTypeError::new_err(format!(
                "buffer_from_object: a {} has neither __dlpack__ nor __cuda_array_interface__; host data is copied to the \
                 device with buffer_from_data",
                obj.get_type().name()?
            )));
        }
    };
    let tensor = asked.in_order(py, &place.shared)?;
    let described =
        tensor.tensor().ok_or_else(|| usage("the tensor is of a DLPack version that nobody knows here"))?;
    let own = place.device();
    if cuda_device(described.device, own) != Some(own) {
        let (kind, id) = (described.device.device_type.0, described.device.device_id);
        return Err(usage(format!(
            "buffer_from_object: the array lies on DLPack's device ({kind}, {id}), and the context is of {own}; host data is \
             copied there with buffer_from_data"
        )));
    }
    let (start, bytes) = span(described)?;
    if bytes == 0 {
        return Ok(None);
    }
    let address = (described.data as u64).wrapping_add(described.byte_offset).wrapping_add_signed(start);
    check_range(place, address, bytes, "buffer_from_object")?;
    let writable = !tensor.is_read_only();
    let owner = ForeignOwner::new(crate::process::Own::new(tensor));
    // SAFETY: what the tensor describes, which the driver knows, and which is the tensor's until its deleter is called. The
    // place's stream has been made to wait for its producer.
    let buffer = unsafe { Buffer::foreign(&owner, own, address, Some(bytes), Ready::Now) };
    Ok(Some(DeviceMemory::new(Allocation::shown(place.clone(), buffer, writable))))
}

/// Where the bytes of a tensor without gaps begin, from its first element on, and how many there are. The order of its
/// dimensions does not matter, nor their direction.
fn span(tensor: &Tensor) -> PyResult<(i64, u64)> {
    let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
    let bits = u64::from(tensor.dtype.bits) * u64::from(tensor.dtype.lanes);
    let dimensions = |of: *mut i64| {
        // SAFETY: as many entries as dimensions, by DLPack; perhaps not aligned.
        (0..ndim).map(move |i| unsafe { of.add(i).read_unaligned() })
    };
    if ndim > 0 && tensor.shape.is_null() {
        return Err(usage("the tensor has dimensions, and no shape"));
    }
    let shape: Vec<i64> = dimensions(tensor.shape).collect();
    if shape.contains(&0) {
        return Ok((0, 0));
    }
    let elements = shape.iter().try_fold(1i64, |n, size| n.checked_mul(*size)).filter(|n| *n > 0);
    let refused = |why: &str| usage(format!("buffer_from_object: an array of shape {shape:?} {why}"));
    let elements = elements.ok_or_else(|| refused("has no number of elements"))?;
    let (mut first, mut last) = (0i64, 0i64);
    if !tensor.strides.is_null() {
        for (size, stride) in shape.iter().zip(dimensions(tensor.strides)) {
            let reach = stride.checked_mul(size - 1);
            let (side, reach) = match reach {
                Some(reach) if reach < 0 => (&mut first, reach),
                Some(reach) => (&mut last, reach),
                None => return Err(refused("and its strides reaches too far")),
            };
            *side = side.checked_add(reach).ok_or_else(|| refused("and its strides reaches too far"))?;
        }
        if i128::from(last) - i128::from(first) + 1 != i128::from(elements) {
            return Err(refused("has gaps between its elements, and a buffer has none: copy it first"));
        }
    }
    if bits == 0 || bits % 8 != 0 {
        return Err(refused(&format!("of elements of {bits} bits is no number of bytes each")));
    }
    let width = (bits / 8) as i64;
    let too_large = || refused("has more bytes than there can be");
    let bytes = elements.checked_mul(width).ok_or_else(too_large)?;
    Ok((first.checked_mul(width).ok_or_else(too_large)?, bytes as u64))
}
