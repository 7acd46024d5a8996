//! Defines device decoders and their common helpers.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{can_take, numbers};
use crossdock_kernels::{IntType, Integers, Numbers};
use crossdock_memory::BufferMut;
use crossdock_plugin_api::Result;

use crate::job::Job;
use crate::node::Node;

/// The device decoder of one encoding.
pub struct OnDevice {
    pub id: &'static str,
    /// Whether the decoder supports a node. The host decodes unsupported nodes.
    pub supports: fn(&Node<'_>) -> Result<bool>,
    pub decode: fn(&Job<'_>) -> Result<DeviceArray>,
}

/// The integers of an array; `None` if it is empty.
pub fn integers(array: &DeviceArray) -> Option<Integers<'_>> {
    let Numbers { buffer, at, len, width_bytes } = numbers(array)?;
    let of = IntType { width_bytes, signed: array.data_type().is_signed_integer() };
    Some(Integers { buffer, at, len, of })
}

/// Allocates memory on the job's device.
pub fn alloc(job: &Job<'_>, bytes: usize) -> Result<BufferMut> {
    job.memory.alloc(job.stream, bytes)
}

/// Reports the first invalid patch index, if there is one.
pub fn check_patch_indices(node: &Node<'_>, first_invalid: Option<u64>) -> Result<()> {
    first_invalid.map_or(Ok(()), |i| {
        Err(node.wrong(format_args!(
            "patches: expected strictly increasing indices within the array, but the index at position {i} is invalid"
        )))
    })
}

/// Returns true for every node, because the host has already checked the node.
pub fn supports_all(_: &Node<'_>) -> Result<bool> {
    Ok(true)
}

/// Whether the values of a node can be taken by row index.
pub fn supports_takeable(node: &Node<'_>) -> Result<bool> {
    Ok(can_take(node.data_type()))
}
