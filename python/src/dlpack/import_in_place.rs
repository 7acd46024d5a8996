//! Imports plain tensors in place without calling the plugin: one dimension, contiguous, on the
//! session's device.
//!
//! The plugin imports the first tensor of each dtype. Later plain tensors of the dtype get the same
//! schema. The plugin imports all tensors that are not plain, and reports the reason if it rejects
//! a tensor.

use arrow_schema::{FieldRef, SchemaRef};
use crossdock::{Error, Session, Table as HostTable};
use crossdock_arrays::{DeviceArray, DeviceBatch, fixed_width};
use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::Device;
use pyo3::PyResult;

use crate::dlpack::abi::{DataType, DeviceType, Tensor};
use crate::dlpack::producer::ImportedTensor;
use crate::dlpack::tensor::Managed;
use crate::objects::session::Shared;
use crate::runtime::process::ProcessLocal;

/// The description of a plain tensor.
pub struct Plain {
    pub dtype: DataType,
    device: Device,
    rows: usize,
    /// Address of the first element.
    address: u64,
    bytes: u64,
}

/// Describes a tensor, or returns `None` if it is not plain.
pub fn plain(tensor: &Tensor, session_device: Device) -> Option<Plain> {
    let device = match tensor.device.device_type {
        DeviceType::CPU => Device::CPU,
        DeviceType::CUDA => Device::cuda(tensor.device.device_id.into()),
        _ => return None,
    };
    let dtype = tensor.dtype;
    let has_elements = tensor.ndim == 1 && dtype.lanes == 1 && dtype.bits.is_multiple_of(8) && dtype.bits > 0;
    if device != session_device || !has_elements || tensor.shape.is_null() || tensor.data.is_null() {
        return None;
    }
    // SAFETY: `ndim` is 1, so shape and strides, if not NULL, have one element. They may be
    // unaligned.
    let (rows, stride) = unsafe {
        let stride = (!tensor.strides.is_null()).then(|| tensor.strides.read_unaligned());
        (tensor.shape.read_unaligned(), stride)
    };
    let width = u64::from(dtype.bits / 8);
    let address = (tensor.data as u64).checked_add(tensor.byte_offset)?;
    let bytes = u64::try_from(rows).ok()?.checked_mul(width)?;
    let fits = address.checked_add(bytes).is_some_and(|end| end < i64::MAX as u64);
    let is_contiguous = rows == 1 || (rows > 1 && stride.is_none_or(|stride| stride == 1));
    let is_plain = fits && is_contiguous && address.is_multiple_of(width);
    is_plain.then_some(Plain { dtype, device, rows: usize::try_from(rows).ok()?, address, bytes })
}

/// A tensor whose memory a column uses in place. It is converted into a table only when the table
/// is needed, because most tensors are exported as tensors again.
pub struct InPlace {
    tensor: Managed,
    plain: Plain,
    schema: SchemaRef,
    ready: Ready,
}

impl InPlace {
    /// Takes the tensor, or returns it if the plugin must import it.
    pub fn try_new(shared: &Shared, imported: ImportedTensor) -> PyResult<Result<Self, ImportedTensor>> {
        let Some((plain, schema)) = plain_schema(shared, &imported) else { return Ok(Err(imported)) };
        let ready = imported.ready()?;
        Ok(Ok(Self { tensor: imported.tensor, plain, schema, ready }))
    }

    /// The field of the column.
    pub fn field(&self) -> Option<&FieldRef> {
        self.schema.fields().first()
    }

    /// Converts the tensor into a table of one column. Also returns the owner of its memory.
    pub fn into_table(self, session: &Session) -> (ForeignOwner, crossdock::Result<HostTable>) {
        let Self { tensor, plain: Plain { device, rows, address, bytes, .. }, schema, ready } = self;
        let owner = ForeignOwner::new(ProcessLocal::new(tensor));
        // SAFETY: DLPack guarantees `bytes` valid bytes at `address` after `ready`, until the
        // deleter is called. Dropping the owner calls the deleter.
        let buffer = unsafe { Buffer::foreign(&owner, device, address, Some(bytes), ready) };
        let to_batch = || {
            let data_type = schema.field(0).data_type().clone();
            let buffers = vec![None, Some(buffer)];
            let array = DeviceArray::try_new(data_type, rows, 0, Some(0), buffers, vec![], None)?;
            DeviceBatch::try_new(schema.clone(), rows, vec![array])
        };
        let batch =
            to_batch().map_err(|source| Error::Data { what: "cannot import the tensor".into(), source });
        (owner, batch.and_then(|batch| HostTable::from_batches(session, schema, vec![batch])))
    }
}

/// Returns the description and the schema of a plain tensor, if the plugin has imported a tensor of
/// its dtype before, and its memory is an allocation of the driver.
fn plain_schema(shared: &Shared, imported: &ImportedTensor) -> Option<(Plain, SchemaRef)> {
    let plain = plain(imported.tensor.tensor()?, shared.session.device())?;
    let schema = shared.tensors.schema(plain.dtype)?;
    let width = fixed_width(schema.fields().first()?.data_type())?;
    if width * 8 != usize::from(plain.dtype.bits) {
        return None;
    }
    // The driver must confirm the address, because a kernel that reads an invalid address would
    // make the whole CUDA context unusable.
    let is_valid = plain.device == Device::CPU
        || shared
            .session
            .stream()
            .memory()
            .pointer(plain.address)
            .is_ok_and(|actual| actual.0 == plain.device);
    is_valid.then_some((plain, schema))
}
