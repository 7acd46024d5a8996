//! What a kind of nodes is.

use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Device, Result};

use crate::job::Job;
use crate::node::Node;

/// For each of the nodes below one, in pre-order, whether it is to be given decoded where the one is decoded on this device.
type Plan = fn(&Node<'_>, Device) -> Result<Vec<bool>>;

/// How the nodes of one id are decoded on the host.
pub struct Kind {
    /// The id.
    pub id: &'static str,
    /// Whether a node fits its metadata, buffers and children.
    pub check: fn(&Node<'_>) -> Result<()>,
    /// Bytes that decoding it takes, where that is known.
    pub size: fn(&Node<'_>) -> Result<Option<usize>>,
    /// Which of the nodes below it it wants decoded, in pre-order, where that is not its children.
    pub plan: Option<Plan>,
    /// The values.
    pub decode: fn(&Job<'_>) -> Result<DeviceArray>,
}

/// Values of fixed width, and a bit for each.
pub fn fixed_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.values_bytes()?.saturating_add(node.len.div_ceil(8))))
}

/// Nothing: what is there is used as it is.
pub fn no_bytes(_: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(0))
}
