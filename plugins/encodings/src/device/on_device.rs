//! How kinds of nodes are decoded on a device, and what they share.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::{numbers, takes};
use crossdock_kernels::{IntType, Integers, Numbers};
use crossdock_memory::BufferMut;
use crossdock_plugin_api::Result;

use crate::job::Job;
use crate::node::Node;

/// How the nodes of one id are decoded on a device.
pub struct OnDevice {
    pub id: &'static str,
    /// Whether a node can be; else the host does it.
    pub suits: fn(&Node<'_>) -> Result<bool>,
    pub decode: fn(&Job<'_>) -> Result<DeviceArray>,
}

/// The whole numbers of an array; `None` where there are none.
pub fn integers(array: &DeviceArray) -> Option<Integers<'_>> {
    let Numbers { buffer, at, len, width_bytes } = numbers(array)?;
    let of = IntType { width_bytes, signed: array.data_type().is_signed_integer() };
    Some(Integers { buffer, at, len, of })
}

/// Room for values on the device.
pub fn room(job: &Job<'_>, bytes: usize) -> Result<BufferMut> {
    job.memory.alloc(job.stream, bytes)
}

/// Patches that are not where they can be.
pub fn misplaced(node: &Node<'_>, number: Option<u64>) -> Result<()> {
    number.map_or(Ok(()), |number| {
        Err(node.wrong(format_args!(
            "patches: expected indices that rise, each within the array, got another as number {number}"
        )))
    })
}

/// Any that the host takes.
pub fn always(_: &Node<'_>) -> Result<bool> {
    Ok(true)
}

/// Of values that are taken by the numbers of their rows.
pub fn is_taken(node: &Node<'_>) -> Result<bool> {
    Ok(takes(node.data_type()))
}
