//! The encodings, one of a kind each.

pub(crate) mod blocks;
pub(crate) mod chain;
pub(crate) mod lists;
mod nested;
pub(crate) mod numbers;
pub(crate) mod parts;
mod plain;
pub(crate) mod repeat;
pub(crate) mod slots;
pub(crate) mod strings;

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

const KINDS: &[&[Kind]] = &[
    plain::KINDS,
    nested::KINDS,
    numbers::KINDS,
    repeat::KINDS,
    parts::KINDS,
    blocks::KINDS,
    strings::KINDS,
    lists::KINDS,
];

/// All kinds.
pub fn all() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().flatten()
}

/// Values of fixed width, and a bit for each.
fn fixed_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.values_bytes()?.saturating_add(node.len.div_ceil(8))))
}

/// Nothing: what is there is used as it is.
fn no_bytes(_: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(0))
}
