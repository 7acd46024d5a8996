//! Decodes numbers, bools and nulls, whose buffers are Arrow's.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::Result;

use super::{Kind, no_bytes, no_children, only_validity};
use crate::job::Job;
use crate::node::Node;
use crate::wire::protobuf::fields;

pub const KINDS: &[Kind] = &[
    Kind {
        id: "vortex.primitive",
        check: check_primitive,
        children: only_validity,
        size: no_bytes,
        plan: None,
        decode: primitive,
    },
    Kind {
        id: "vortex.bool",
        check: check_bool,
        children: only_validity,
        size: no_bytes,
        plan: None,
        decode: bool,
    },
    Kind {
        id: "vortex.null",
        check: check_null,
        children: no_children,
        size: no_bytes,
        plan: None,
        decode: null,
    },
];

fn check_primitive(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(1)?;
    let (expected, actual) = (node.values_bytes()?, node.buffer_bytes(0)?);
    if actual == expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("the values have {actual} bytes, expected {expected}")))
}

fn primitive(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(0)?.then_some(0))?;
    let values = job.take_buffer(0, job.node.width()?)?;
    job.array(job.node.data_type(), validity, vec![values])
}

/// Number of bits before the first value, at most 7.
fn bit_offset(node: &Node<'_>) -> Result<usize> {
    let mut offset = 0;
    for field in fields(node.metadata()) {
        if let (1, value) = field? {
            offset = value.usize()?;
        }
    }
    if offset < 8 {
        Ok(offset)
    } else {
        Err(node.wrong(format_args!("the first value is at bit {offset}, expected at most 7")))
    }
}

fn check_bool(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(1)?;
    if *node.data_type() != DataType::Boolean {
        return Err(node.wrong(format_args!(
            "the type is {}, expected bool",
            crossdock_arrays::type_name(node.data_type())
        )));
    }
    let expected = node.len.saturating_add(bit_offset(node)?).div_ceil(8);
    let actual = node.buffer_bytes(0)?;
    if actual >= expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("the bits have {actual} bytes, expected at least {expected}")))
}

fn bool(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(0)?.then_some(0))?;
    let bits = job.take_buffer(0, 1)?;
    let bits =
        bits.map(|bits| crate::nulls::from_first_bit(job, &bits, bit_offset(&job.node)?, job.node.len));
    job.array(&DataType::Boolean, validity, vec![bits.transpose()?])
}

fn check_null(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(0)?;
    if *node.data_type() == DataType::Null {
        return Ok(());
    }
    Err(node
        .wrong(format_args!("the type is {}, expected null", crossdock_arrays::type_name(node.data_type()))))
}

fn null(job: &Job<'_>) -> Result<DeviceArray> {
    DeviceArray::try_new(DataType::Null, job.node.len, 0, Some(job.node.len), vec![], vec![], None)
}
