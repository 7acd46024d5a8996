//! Converts scalars to slots and to arrays of one value.

use arrow_schema::{DataType, Field};
use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use crate::cpu::views;
use crate::job::Job;
use crate::nested;
use crate::node::{Node, in_node};
use crate::wire::scalar::Scalar;

/// A value as the bytes of a slot.
pub struct SlotValue {
    /// The value, if it is a bool.
    pub bit: bool,
    /// The bytes of the slot. If values have fewer than 32 bytes, only the first bytes are used.
    pub slot: [u8; 32],
    /// The data buffer of a view of more than 12 bytes.
    pub long: Option<Vec<u8>>,
}

/// Returns the slot of a scalar, or `None` for null. The view of a long value refers to data buffer
/// `number`.
pub fn slot_value(node: &Node<'_>, scalar: &Scalar<'_>, number: usize) -> Result<Option<SlotValue>> {
    let mut slot_value = SlotValue { bit: false, slot: [0; 32], long: None };
    let mut put = |at: usize, bytes: &[u8]| {
        let place = slot_value.slot.get_mut(at..at + bytes.len());
        place.into_iter().for_each(|place| place.copy_from_slice(bytes));
    };
    match scalar {
        Scalar::Null => return Ok(None),
        Scalar::Bool(bit) => slot_value.bit = *bit,
        Scalar::Number(number) => put(0, &number.bits.to_le_bytes()),
        Scalar::Decimal(bytes) => put(0, bytes),
        Scalar::Bytes(bytes) => {
            let (view, long) = in_node(node, views::single(bytes))?;
            put(0, &view);
            if let Some(bytes) = long {
                let number =
                    i32::try_from(number).map_err(|_| node.wrong("the node has too many data buffers"))?;
                put(8, &number.to_le_bytes());
                slot_value.long = Some(bytes.to_vec());
            }
        }
        Scalar::List(_) => return Err(node.wrong("a list has no slot")),
    }
    Ok(Some(slot_value))
}

/// Builds an array of one value on the host and copies it to the device.
pub fn on_device(job: &Job<'_>, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let stream = job.memory.default_stream(Device::CPU)?;
    let node = Node { raw: job.node.raw, field: job.node.field.clone(), len: 1 };
    let on_host = Job { node, below: Vec::new(), stream: &stream, ..*job };
    let slot_value = array(&on_host, job.node.data_type(), scalar)?;
    nested::single_column(job, &nested::batch(slot_value)?.move_to(job.stream, job.stream.device())?)
}

/// Builds an array of one value.
pub fn array(job: &Job<'_>, data_type: &DataType, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let Scalar::List(values) = scalar else {
        return match scalar {
            Scalar::Null => nested::null(job, data_type),
            _ => plain(job, data_type, scalar),
        };
    };
    let children = |fields: &[&Field]| -> Result<Vec<DeviceArray>> {
        if fields.len() != values.len() {
            return Err(job.node.wrong(format_args!(
                "a struct has {} values for {} fields",
                values.len(),
                fields.len()
            )));
        }
        fields.iter().zip(values).map(|(field, value)| array(job, field.data_type(), value)).collect()
    };
    let elements = |element: &Field| -> Result<DeviceArray> {
        let all =
            values.iter().map(|value| array(job, element.data_type(), value)).collect::<Result<Vec<_>>>()?;
        if all.is_empty() { DeviceArray::empty(element.data_type()) } else { nested::concatenate(job, &all) }
    };
    let offsets = |len: usize| {
        let end = i32::try_from(len)
            .map_err(|_| job.node.wrong(format_args!("a list of {len} elements exceeds 32-bit offsets")))?;
        job.copy([0, end].map(i32::to_ne_bytes).as_flattened())
    };
    let (buffers, children) = match data_type {
        DataType::FixedSizeBinary(_) => {
            let byte = |value: &Scalar<'_>| match value {
                Scalar::Number(number) => Ok(number.bits as u8),
                _ => Err(job.node.wrong("a byte is not a number")),
            };
            let bytes = values.iter().map(byte).collect::<Result<Vec<_>>>()?;
            (vec![None, Some(job.copy(&bytes)?)], Vec::new())
        }
        DataType::Struct(fields) => {
            let fields: Vec<&Field> = fields.iter().map(AsRef::as_ref).collect();
            (vec![None], children(&fields)?)
        }
        DataType::FixedSizeList(element, _) => (vec![None], vec![elements(element)?]),
        DataType::List(element) | DataType::Map(element, _) => {
            (vec![None, Some(offsets(values.len())?)], vec![elements(element)?])
        }
        other => return Err(job.node.wrong(format_args!("a list is not a value of {other}"))),
    };
    DeviceArray::try_new(data_type.clone(), 1, 0, Some(0), buffers, children, None)
}

/// Builds an array of one value that is not a list.
fn plain(job: &Job<'_>, data_type: &DataType, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let Some(slot_value) = slot_value(&job.node, scalar, 0)? else { return nested::null(job, data_type) };
    let width = match data_type {
        DataType::Boolean => 1,
        DataType::Utf8View | DataType::BinaryView => 16,
        other => {
            other.primitive_width().ok_or_else(|| job.node.wrong(format_args!("{other} has no slots")))?
        }
    };
    let bit = [u8::from(slot_value.bit)];
    let slot =
        if *data_type == DataType::Boolean { &bit } else { slot_value.slot.get(..width).unwrap_or_default() };
    let mut buffers = vec![None, Some(job.copy(slot)?)];
    buffers.extend(slot_value.long.as_deref().map(|bytes| job.copy(bytes)).transpose()?.map(Some));
    DeviceArray::try_new(data_type.clone(), 1, 0, Some(0), buffers, vec![], None)
}
