//! One value out of its scalar: in a slot, or as an array of it alone.

use arrow_schema::{DataType, Field};
use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use crate::cpu::views;
use crate::job::Job;
use crate::nested;
use crate::node::{Node, in_node};
use crate::wire::scalar::Scalar;

/// One value, as it lies in a slot.
pub struct One {
    /// As a truth value.
    pub bit: bool,
    /// The slot's bytes, in the first of these.
    pub slot: [u8; 32],
    /// What a view of more than 12 bytes points into, in the first data buffer that is free.
    pub long: Option<Vec<u8>>,
}

/// The value of a scalar, `None` for null. What a view points into becomes data buffer `number`.
pub fn one(node: &Node<'_>, scalar: &Scalar<'_>, number: usize) -> Result<Option<One>> {
    let mut one = One { bit: false, slot: [0; 32], long: None };
    let mut put = |at: usize, bytes: &[u8]| {
        let place = one.slot.get_mut(at..at + bytes.len());
        place.into_iter().for_each(|place| place.copy_from_slice(bytes));
    };
    match scalar {
        Scalar::Null => return Ok(None),
        Scalar::Bool(bit) => one.bit = *bit,
        Scalar::Number(number) => put(0, &number.bits.to_le_bytes()),
        Scalar::Decimal(bytes) => put(0, bytes),
        Scalar::Bytes(bytes) => {
            let (view, long) = in_node(node, views::of_one(bytes))?;
            put(0, &view);
            if let Some(bytes) = long {
                let number = i32::try_from(number).map_err(|_| node.wrong("it has too many data buffers"))?;
                put(8, &number.to_le_bytes());
                one.long = Some(bytes.to_vec());
            }
        }
        Scalar::List(_) => return Err(node.wrong("a value that is a list is not repeated here")),
    }
    Ok(Some(one))
}

/// The one value of a scalar, made on the host and brought to the device.
pub fn on_device(job: &Job<'_>, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let stream = job.memory.default_stream(Device::CPU)?;
    let node = Node { raw: job.node.raw, field: job.node.field.clone(), len: 1 };
    let on_host = Job { node, below: Vec::new(), stream: &stream, ..*job };
    let one = array(&on_host, job.node.data_type(), scalar)?;
    nested::only(job, &nested::batch(one)?.move_to(job.stream, job.stream.device())?)
}

/// The array of one value.
pub fn array(job: &Job<'_>, data_type: &DataType, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let Scalar::List(values) = scalar else {
        return match scalar {
            Scalar::Null => nested::null(job, data_type),
            _ => plain(job, data_type, scalar),
        };
    };
    let children = |fields: &[&Field]| -> Result<Vec<DeviceArray>> {
        if fields.len() != values.len() {
            return Err(job.node.wrong(format_args!("{} values for {} fields", values.len(), fields.len())));
        }
        fields.iter().zip(values).map(|(field, value)| array(job, field.data_type(), value)).collect()
    };
    let elements = |element: &Field| -> Result<DeviceArray> {
        let all =
            values.iter().map(|value| array(job, element.data_type(), value)).collect::<Result<Vec<_>>>()?;
        if all.is_empty() { DeviceArray::empty(element.data_type()) } else { nested::concatenate(job, &all) }
    };
    let offsets = |len: usize| {
        let end = i32::try_from(len).map_err(|_| job.node.wrong(format_args!("a list of {len} elements")))?;
        job.copy([0, end].map(i32::to_ne_bytes).as_flattened())
    };
    let (buffers, children) = match data_type {
        DataType::Struct(fields) => {
            let fields: Vec<&Field> = fields.iter().map(AsRef::as_ref).collect();
            (vec![None], children(&fields)?)
        }
        DataType::FixedSizeList(element, _) => (vec![None], vec![elements(element)?]),
        DataType::List(element) | DataType::Map(element, _) => {
            (vec![None, Some(offsets(values.len())?)], vec![elements(element)?])
        }
        other => return Err(job.node.wrong(format_args!("a list is no value of {other}"))),
    };
    DeviceArray::try_new(data_type.clone(), 1, 0, Some(0), buffers, children, None)
}

/// Of a value that is no array itself.
fn plain(job: &Job<'_>, data_type: &DataType, scalar: &Scalar<'_>) -> Result<DeviceArray> {
    let Some(one) = one(&job.node, scalar, 0)? else { return nested::null(job, data_type) };
    let width = match data_type {
        DataType::Boolean => 1,
        DataType::Utf8View | DataType::BinaryView => 16,
        other => {
            other.primitive_width().ok_or_else(|| job.node.wrong(format_args!("{other} is no plain type")))?
        }
    };
    let bit = [u8::from(one.bit)];
    let slot = if *data_type == DataType::Boolean { &bit } else { one.slot.get(..width).unwrap_or_default() };
    let mut buffers = vec![None, Some(job.copy(slot)?)];
    buffers.extend(one.long.as_deref().map(|bytes| job.copy(bytes)).transpose()?.map(Some));
    DeviceArray::try_new(data_type.clone(), 1, 0, Some(0), buffers, vec![], None)
}
