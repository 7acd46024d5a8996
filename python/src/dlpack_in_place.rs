//! The shortest way in, for what nearly every tensor is: one dimension whose elements lie as Arrow has them, on the session's
//! device. What the plugin has made of the first of a dtype is what the next ones become, without asking it again. All that is
//! not as plain goes to the plugin, which has the words for what is refused.

use arrow_schema::{FieldRef, SchemaRef};
use crossdock::{Error, Session, Table as HostTable};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::Device;
use pyo3::PyResult;

use crate::dlpack_abi::{DataType, DeviceType, Tensor};
use crate::dlpack_in_producer::Asked;
use crate::dlpack_tensor::Managed;
use crate::process::Own;
use crate::session::Shared;

/// What a plain tensor says of itself.
pub struct Plain {
    pub dtype: DataType,
    device: Device,
    rows: usize,
    /// Of its first element.
    address: u64,
    bytes: u64,
}

/// `None` where it is another kind of tensor.
pub fn plain(tensor: &Tensor, own: Device) -> Option<Plain> {
    let device = match tensor.device.device_type {
        DeviceType::CPU => Device::CPU,
        DeviceType::CUDA => Device::cuda(tensor.device.device_id.into()),
        _ => return None,
    };
    let dtype = tensor.dtype;
    let described = tensor.ndim == 1 && dtype.lanes == 1 && dtype.bits.is_multiple_of(8) && dtype.bits > 0;
    if device != own || !described || tensor.shape.is_null() || tensor.data.is_null() {
        return None;
    }
    // SAFETY: of one dimension, so that shape and strides, where there are any, have an element.
    let (rows, stride) = unsafe {
        let stride = (!tensor.strides.is_null()).then(|| tensor.strides.read_unaligned());
        (tensor.shape.read_unaligned(), stride)
    };
    let width = u64::from(dtype.bits / 8);
    let address = (tensor.data as u64).checked_add(tensor.byte_offset)?;
    let bytes = u64::try_from(rows).ok()?.checked_mul(width)?;
    let fits = address.checked_add(bytes).is_some_and(|end| end < i64::MAX as u64);
    let side_by_side = rows == 1 || (rows > 1 && stride.is_none_or(|stride| stride == 1));
    let is_plain = fits && side_by_side && address.is_multiple_of(width);
    is_plain.then_some(Plain { dtype, device, rows: usize::try_from(rows).ok()?, address, bytes })
}

/// A tensor that is a column as it lies. Most are handed on as what they came as, so that the arrays around it are made when
/// somebody looks.
pub struct InPlace {
    tensor: Managed,
    plain: Plain,
    schema: SchemaRef,
    ready: Ready,
}

impl InPlace {
    /// The column of what was asked for, or that back, where it must be read by the plugin.
    pub fn of(shared: &Shared, asked: Asked) -> PyResult<Result<Self, Asked>> {
        let Some((plain, schema)) = known(shared, &asked) else { return Ok(Err(asked)) };
        let ready = asked.ready()?;
        Ok(Ok(Self { tensor: asked.tensor, plain, schema, ready }))
    }

    /// Its name, type and metadata.
    pub fn field(&self) -> Option<&FieldRef> {
        self.schema.fields().first()
    }

    /// A table of it alone, and what keeps its memory.
    pub fn into_table(self, session: &Session) -> (ForeignOwner, crossdock::Result<HostTable>) {
        let Self { tensor, plain: Plain { device, rows, address, bytes, .. }, schema, ready } = self;
        let owner = ForeignOwner::new(Own::new(tensor));
        // SAFETY: the tensor's producer vouches for the memory that its shape spans, after `ready`, until its deleter is called,
        // which is when the owner is dropped.
        let buffer = unsafe { Buffer::foreign(&owner, device, address, Some(bytes), ready) };
        let made = || {
            let data_type = schema.field(0).data_type().clone();
            let buffers = vec![None, Some(buffer)];
            let array = DeviceArray::try_new(data_type, rows, 0, Some(0), buffers, vec![], None)?;
            DeviceBatch::try_new(schema.clone(), rows, vec![array])
        };
        let batch = made().map_err(|source| Error::Data { what: "a tensor's column".into(), source });
        (owner, batch.and_then(|batch| HostTable::from_batches(session, schema, vec![batch])))
    }
}

/// What a tensor is and becomes, if one like it has been here, and if the driver knows its memory.
fn known(shared: &Shared, asked: &Asked) -> Option<(Plain, SchemaRef)> {
    let plain = plain(asked.tensor.tensor()?, shared.session.device())?;
    let schema = shared.tensors.known(plain.dtype)?;
    let width = schema.fields().first()?.data_type().primitive_width()?;
    if width * 8 != usize::from(plain.dtype.bits) {
        return None;
    }
    // Before a kernel that believes it takes the whole context with it.
    let there = plain.device == Device::CPU
        || shared.session.stream().memory().pointer(plain.address).is_ok_and(|found| found.0 == plain.device);
    there.then_some((plain, schema))
}
