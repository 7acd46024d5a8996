//! Defines the host's decoders.

use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use crate::children::Children;
use crate::job::Job;
use crate::node::Node;

/// For each descendant of a node, in pre-order: whether the descendant must be decoded before the
/// node is decoded on the device.
type Plan = fn(&Node<'_>, Device) -> Result<Vec<bool>>;

/// The host's decoder of one encoding.
pub struct Kind {
    /// The id of the encoding.
    pub id: &'static str,
    /// Checks a node's metadata and buffers.
    pub check: fn(&Node<'_>) -> Result<()>,
    /// The children that a node has.
    pub children: fn(&Node<'_>) -> Result<Children>,
    /// Size of the decoded values in bytes, if known.
    pub size: fn(&Node<'_>) -> Result<Option<usize>>,
    /// The descendants that must be decoded first. `None` if these are exactly the children.
    pub plan: Option<Plan>,
    /// Decodes the values.
    pub decode: fn(&Job<'_>) -> Result<DeviceArray>,
}

impl Kind {
    /// Checks a node's metadata, buffers and children.
    pub fn check(&self, node: &Node<'_>) -> Result<()> {
        (self.check)(node)?;
        (self.children)(node)?.check(node)
    }
}

/// The node has no children except a validity.
pub fn only_validity(_: &Node<'_>) -> Result<Children> {
    Ok(Children::with_validity([]))
}

/// The node has no children.
pub fn no_children(_: &Node<'_>) -> Result<Children> {
    Ok(Children::new([]))
}

/// Size in bytes of the values and the validity bitmap of a node whose type has a fixed width.
pub fn fixed_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.values_bytes()?.saturating_add(node.len.div_ceil(8))))
}

/// Returns 0, because the decoded array uses the buffers of the node.
pub fn no_bytes(_: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(0))
}
