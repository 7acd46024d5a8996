//! Imports the number of a table's rows, which is on the device.

use crossdock::{PendingTable, Table as HostTable};
use crossdock_arrays::{IntType, PendingBatch};
use crossdock_memory::{Buffer, ForeignOwner};
use crossdock_plugin_api::{Device, abi};
use pyo3::prelude::*;

use crate::dlpack::abi::{Code, DataType, DeviceType, Tensor};
use crate::dlpack::producer::import_tensor;
use crate::objects::session::Shared;
use crate::runtime::errors::{OrRaise, usage, with_context};
use crate::runtime::process::{ProcessLocal, detach};

/// One integer on the session's device.
pub struct RowCounter {
    buffer: Buffer,
    of: IntType,
}

/// Imports `num_rows`, a tensor of one integer.
///
/// # Errors
/// UsageError if the tensor is on another device, or is not one integer of 4 or 8 bytes. The errors
/// of [`import_tensor`].
pub fn import(py: Python<'_>, shared: &Shared, object: &Bound<'_, PyAny>) -> PyResult<RowCounter> {
    let imported = import_tensor(py, shared, object).map_err(|error| with_context(py, "num_rows", error))?;
    let tensor = imported.tensor.tensor();
    let tensor = tensor.ok_or_else(|| usage("num_rows: the tensor has an unknown version of DLPack"))?;
    let device = checked_device(shared, tensor)?;
    let of = checked_type(tensor)?;
    let address = (tensor.data as u64).checked_add(tensor.byte_offset).filter(|address| *address != 0);
    let address = address.ok_or_else(|| usage("num_rows: the tensor has no memory"))?;
    // A kernel that reads an invalid address would make the CUDA context unusable.
    if device != Device::CPU && shared.session.memory().pointer(address).or_raise()?.0 != device {
        return Err(usage(format!("num_rows: the address {address:#x} is not on {device}")));
    }
    let ready = imported.ready()?;
    let owner = ForeignOwner::new(ProcessLocal::new(imported.tensor));
    // SAFETY: DLPack guarantees the tensor's one element at `address` after `ready`, until the
    // deleter is called. Dropping the owner calls the deleter.
    let buffer = unsafe { Buffer::foreign(&owner, device, address, Some(of.width_bytes as u64), ready) };
    Ok(RowCounter { buffer, of })
}

fn checked_device(shared: &Shared, tensor: &Tensor) -> PyResult<Device> {
    let id = i64::from(tensor.device.device_id);
    let device = match tensor.device.device_type {
        DeviceType::CPU => Device::CPU,
        DeviceType(device_type) => {
            Device::from_arrow(i32::try_from(device_type).unwrap_or(abi::DEVICE_EXT_DEV), id)
        }
    };
    let expected = shared.session.device();
    if device == expected {
        return Ok(device);
    }
    Err(usage(format!(
        "num_rows: the number is on {device}, expected {expected}, the session's device, on which the table is"
    )))
}

fn checked_type(tensor: &Tensor) -> PyResult<IntType> {
    let n_dimensions = usize::try_from(tensor.ndim).unwrap_or(0);
    let shape = match n_dimensions {
        0 => &[][..],
        _ if tensor.shape.is_null() => return Err(usage("num_rows: the tensor has no shape")),
        // SAFETY: the shape of a tensor has `ndim` elements.
        n => unsafe { std::slice::from_raw_parts(tensor.shape, n) },
    };
    if shape.iter().any(|n| *n != 1) {
        return Err(usage(format!("num_rows: the tensor has the shape {shape:?}, expected one element")));
    }
    match tensor.dtype {
        DataType { code: code @ (Code::INT | Code::UINT), bits: bits @ (32 | 64), lanes: 1 } => {
            Ok(IntType { width_bytes: usize::from(bits / 8), signed: code == Code::INT })
        }
        DataType { code, bits, lanes } => Err(usage(format!(
            "num_rows: the tensor has the type code {}, {bits} bits, {lanes} lanes; expected int32, uint32, int64 or uint64",
            code.0
        ))),
    }
}

impl RowCounter {
    /// Makes this number the number of rows of a table, whose present rows are the capacity.
    ///
    /// # Errors
    /// UsageError if the table has several batches.
    pub fn add_to(self, py: Python<'_>, shared: &Shared, table: &HostTable) -> PyResult<PendingTable> {
        let [batch] = table.batches() else {
            let n = table.batches().len();
            return Err(usage(format!("num_rows: the tensors form {n} batches, expected one")));
        };
        let session = &shared.session;
        let add = || {
            let batch = batch.clone().with_default_device(session.device())?;
            PendingBatch::try_new(batch, &self.buffer, self.of, session.stream())
        };
        Ok(PendingTable::new(session, detach(py, add).or_raise()?))
    }
}
