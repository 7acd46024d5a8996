//! Defines the host's decoders.

use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use crate::job::Job;
use crate::node::Node;

/// For each descendant of a node, in pre-order: whether the descendant must be decoded before the
/// node is decoded on the device.
type Plan = fn(&Node<'_>, Device) -> Result<Vec<bool>>;

/// The host's decoder of one encoding.
pub struct Kind {
    /// The id of the encoding.
    pub id: &'static str,
    /// Checks a node's metadata, buffers and children.
    pub check: fn(&Node<'_>) -> Result<()>,
    /// Size of the decoded values in bytes, if known.
    pub size: fn(&Node<'_>) -> Result<Option<usize>>,
    /// The descendants that must be decoded first. `None` if these are exactly the children.
    pub plan: Option<Plan>,
    /// Decodes the values.
    pub decode: fn(&Job<'_>) -> Result<DeviceArray>,
}

/// Size in bytes of the values and the validity bitmap of a node whose type has a fixed width.
pub fn fixed_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.values_bytes()?.saturating_add(node.len.div_ceil(8))))
}

/// Returns 0, because the decoded array uses the buffers of the node.
pub fn no_bytes(_: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(0))
}
