//! Encoded arrays. Each consists of a tree of nodes, stored as a list in pre-order, and the buffers
//! of all nodes.

pub mod blob;
mod build;
mod node;
mod share;

pub use build::{EncodedBuffers, LogicalType, NodeParts};
pub use node::EncodedNode;
use node::{MAX_ID_BYTES, MAX_METADATA_BYTES};

use crate::abi;
use crate::capsule::CapsuleObject;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::sized_struct;

/// The maximum number of levels of a tree. The root is level 1.
pub const MAX_DEPTH: usize = 64;
/// The number of nodes up to which the memory of a tree is not counted against a budget, because it
/// is negligible.
pub const UNCHARGED_NODES: usize = 64;
/// The maximum number of nodes of a tree.
pub const MAX_NODES: usize = 1 << 20;
/// The maximum number of buffers of a tree.
const MAX_BUFFERS: usize = 1 << 22;

// SAFETY: the header defines that capsules with this name contain this struct.
unsafe impl CapsuleObject for abi::EncodedArray {
    const NAME: &'static std::ffi::CStr = c"crossdock_encoded_array";
}

/// An owned encoded array with a valid tree: each node has the declared number of children and
/// buffers, each buffer belongs to one node, and the maximums that this module defines are
/// respected.
pub struct EncodedArray {
    raw: Owned<abi::EncodedArray>,
}

// SAFETY: safe functions that take `&self` only read the array. The unsafe functions that change it
// require that no other thread accesses it.
unsafe impl Sync for EncodedArray {}

impl EncodedArray {
    /// Wraps a C array, and checks its tree.
    ///
    /// # Errors
    /// Returns a "bad data" error that names the node if the tree is invalid.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`]. The lists have their declared lengths, and everything
    /// that they point to is valid for as long as the array.
    pub unsafe fn from_raw(raw: Owned<abi::EncodedArray>) -> Result<Self> {
        if raw.is_released() {
            return Err(Error::invalid_argument("the encoded array has been released or taken already"));
        }
        // SAFETY: the caller of `from_raw` guarantees all requirements of `check`.
        unsafe { check(&raw) }?;
        Ok(Self { raw })
    }

    /// The number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.raw.n_nodes
    }

    /// The node with this index in pre-order. The root has the index 0.
    ///
    /// # Errors
    /// Returns an error if there is no such node.
    pub fn node(&self, index: usize) -> Result<EncodedNode<'_>> {
        // SAFETY: `from_raw` has checked the tree, and the node borrows `self`.
        unsafe { EncodedNode::new(&self.raw, index) }
    }

    /// The root.
    ///
    /// # Errors
    /// Never returns an error, because every tree has a root.
    pub fn root(&self) -> Result<EncodedNode<'_>> {
        self.node(0)
    }

    /// Replaces buffer `i` of node `index` by the result of `replace`, which takes ownership of the
    /// buffer. If `replace` returns an error, the buffer is missing afterwards, and the array
    /// cannot be decoded any more.
    ///
    /// # Errors
    /// Returns an error if there is no such buffer, if it has been taken, or if `replace` returns
    /// an error.
    pub fn replace_buffer(
        &mut self,
        index: usize,
        i: usize,
        replace: impl FnOnce(Owned<abi::EncodedBuffer>) -> Result<Owned<abi::EncodedBuffer>>,
    ) -> Result<()> {
        let node = self.node(index)?;
        // SAFETY: `&mut self` prevents other accesses to the array.
        let buffer = replace(unsafe { node.take_buffer(i) }?)?;
        // SAFETY: `take_buffer` left a released struct with its `struct_size` at this address, and
        // `&mut self` prevents other accesses.
        unsafe { buffer.put(node.buffer_at(i)?, "an encoded buffer") }
    }

    /// The address of the C array.
    pub(crate) fn as_ptr(&self) -> *const abi::EncodedArray {
        &raw const *self.raw
    }

    /// Converts to the C array.
    pub fn into_raw(self) -> Owned<abi::EncodedArray> {
        self.raw
    }
}

/// # Safety
/// The requirements of [`EncodedArray::from_raw`].
unsafe fn check(raw: &abi::EncodedArray) -> Result<()> {
    let (n_nodes, n_buffers) = (raw.n_nodes, raw.n_buffers);
    if n_nodes == 0 || n_nodes > MAX_NODES || n_buffers > MAX_BUFFERS {
        return Err(Error::bad_data(format!(
            "an encoded array has {n_nodes} nodes and {n_buffers} buffers, expected 1 to {MAX_NODES} nodes and at most \
             {MAX_BUFFERS} buffers"
        )));
    }
    // SAFETY: the caller of `check` guarantees all requirements of `check_tree`.
    unsafe { check_tree(raw) }?;
    let mut index = 0;
    let check = |buffer: abi::EncodedBuffer| {
        index += 1;
        check_buffer(index - 1, &buffer)
    };
    // SAFETY: the caller guarantees that the list has `n_buffers` buffers.
    unsafe { sized_struct::read_list(raw.buffers, n_buffers, MAX_BUFFERS, "encoded buffers", check) }?;
    Ok(())
}

/// Checks that the nodes form one tree in pre-order, and that each buffer belongs to exactly one
/// node.
///
/// # Safety
/// The requirements of [`EncodedArray::from_raw`].
unsafe fn check_tree(raw: &abi::EncodedArray) -> Result<()> {
    // For the current node and each of its ancestors, the number of children that have not been
    // visited yet.
    let mut open: Vec<u32> = Vec::new();
    let mut buffers = 0u64;
    let mut next_index = 0;
    let check = |node: abi::EncodedNode| {
        let index = next_index;
        next_index += 1;
        while open.last() == Some(&0) {
            open.pop();
        }
        match open.last_mut() {
            Some(pending) => *pending -= 1,
            None if index > 0 => {
                return Err(Error::bad_data(format!(
                    "node {index} has no parent: the tree ends before this node"
                )));
            }
            None => {}
        }
        if open.len() >= MAX_DEPTH {
            return Err(Error::bad_data(format!("node {index} is deeper than {MAX_DEPTH} levels")));
        }
        open.push(node.n_children);
        if u64::from(node.first_buffer) != buffers && node.n_buffers > 0 {
            return Err(Error::bad_data(format!(
                "node {index}: the first buffer is {}, expected {buffers}, because each buffer belongs to one node, in order",
                node.first_buffer
            )));
        }
        buffers += u64::from(node.n_buffers);
        // SAFETY: the caller guarantees that the node and all data that it points to are valid.
        unsafe { node::check_node(index, &node) }
    };
    // SAFETY: the caller guarantees that the list has `n_nodes` nodes.
    unsafe { sized_struct::read_list(raw.nodes, raw.n_nodes, MAX_NODES, "encoded nodes", check) }?;
    if let Some(missing) = open.iter().find(|pending| **pending > 0) {
        return Err(Error::bad_data(format!(
            "the tree ends after {} nodes, but {missing} children are missing",
            raw.n_nodes
        )));
    }
    if buffers != raw.n_buffers as u64 {
        return Err(Error::bad_data(format!(
            "the array has {} buffers, but its nodes have {buffers}",
            raw.n_buffers
        )));
    }
    Ok(())
}

fn check_buffer(index: usize, buffer: &abi::EncodedBuffer) -> Result<()> {
    let address = buffer.address.addr() as u64;
    let has_address = buffer.bytes == 0 || (address != 0 && address.checked_add(buffer.bytes).is_some());
    if has_address && buffer.alignment.is_power_of_two() && address.is_multiple_of(buffer.alignment) {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "buffer {index} of {} bytes at {address:#x} has the alignment {}, expected a power of two that divides a valid \
         address",
        buffer.bytes, buffer.alignment
    )))
}
