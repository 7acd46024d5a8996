//! Encoded arrays: a tree of nodes as a flat table in pre-order, and the buffers of all of them.

pub mod blob;
mod build;
mod node;
mod share;

pub use build::{EncodedBuffers, LogicalType, NodeParts};
pub use node::EncodedNode;

use crate::abi;
use crate::capsule::Named;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::told;

/// How deep nodes may nest, the root counted.
pub const MOST_DEPTH: usize = 64;
/// So many nodes take too little memory for anybody to count it: no tree of values that somebody wrote has more levels.
pub const FEW_NODES: usize = 64;
/// How many nodes a tree may have.
pub const MOST_NODES: usize = 1 << 20;
/// How many buffers.
const MOST_BUFFERS: usize = 1 << 22;
/// Bytes of an encoding's id, and of one node's metadata.
const MOST_ID_BYTES: usize = 256;
const MOST_METADATA_BYTES: usize = 1 << 28;

// SAFETY: the name that the header gives this struct.
unsafe impl Named for abi::EncodedArray {
    const NAME: &'static std::ffi::CStr = c"crossdock_encoded_array";
}

/// An encoded array that is ours, whose tree is one: every node has the children and buffers that it says, each node and
/// each buffer is somebody's once, and it is no deeper and no larger than the bounds above.
pub struct EncodedArray {
    raw: Owned<abi::EncodedArray>,
}

// SAFETY: nothing in it changes but what `&mut` takes out, and its parts may be read on any thread.
unsafe impl Sync for EncodedArray {}

impl EncodedArray {
    /// Takes an array that crossed the boundary.
    ///
    /// # Errors
    /// What is wrong with the tree, and at which node.
    ///
    /// # Safety
    /// As [`Owned::new`]: its lists have as many entries as it says, and what they point at lives as long.
    pub unsafe fn from_raw(raw: Owned<abi::EncodedArray>) -> Result<Self> {
        if raw.is_released() {
            return Err(Error::invalid_argument("the encoded array has been released or taken already"));
        }
        // SAFETY: passed on from the caller.
        unsafe { check(&raw) }?;
        Ok(Self { raw })
    }

    /// How many nodes.
    pub fn n_nodes(&self) -> usize {
        self.raw.n_nodes
    }

    /// Node `index` in pre-order; 0 is the root.
    ///
    /// # Errors
    /// There are not so many.
    pub fn node(&self, index: usize) -> Result<EncodedNode<'_>> {
        // SAFETY: checked by `from_raw`, and borrowed as long.
        unsafe { EncodedNode::new(&self.raw, index) }
    }

    /// The root.
    ///
    /// # Errors
    /// None: a tree has one.
    pub fn root(&self) -> Result<EncodedNode<'_>> {
        self.node(0)
    }

    /// Puts another buffer in the place of buffer `i` of node `index`: what `make` makes of it. Where that fails the buffer is
    /// gone, and the array with it.
    ///
    /// # Errors
    /// There is no such buffer, it was taken, or what `make` says.
    pub fn replace_buffer(
        &mut self,
        index: usize,
        i: usize,
        make: impl FnOnce(Owned<abi::EncodedBuffer>) -> Result<Owned<abi::EncodedBuffer>>,
    ) -> Result<()> {
        let node = self.node(index)?;
        // SAFETY: `&mut self`: nobody else looks at the array.
        let made = make(unsafe { node.take_buffer(i) }?)?;
        // SAFETY: as above; the place holds a released struct of its size.
        unsafe { made.put(node.buffer_at(i)?, "an encoded buffer") }
    }

    /// For calls that borrow the array.
    pub(crate) fn as_ptr(&self) -> *const abi::EncodedArray {
        &raw const *self.raw
    }

    /// To hand across.
    pub fn into_raw(self) -> Owned<abi::EncodedArray> {
        self.raw
    }
}

/// # Safety
/// As [`EncodedArray::from_raw`].
unsafe fn check(raw: &abi::EncodedArray) -> Result<()> {
    let (n_nodes, n_buffers) = (raw.n_nodes, raw.n_buffers);
    if n_nodes == 0 || n_nodes > MOST_NODES || n_buffers > MOST_BUFFERS {
        return Err(Error::bad_data(format!(
            "an encoded array of {n_nodes} nodes and {n_buffers} buffers, expected 1 to {MOST_NODES} nodes and at most \
             {MOST_BUFFERS} buffers"
        )));
    }
    // How many children of each open node are still to come.
    let mut open: Vec<u32> = Vec::new();
    let mut buffers = 0u64;
    let mut index = 0;
    let read = |node: abi::EncodedNode| {
        let at = index;
        index += 1;
        while open.last() == Some(&0) {
            open.pop();
        }
        match open.last_mut() {
            Some(left) => *left -= 1,
            None if at > 0 => {
                return Err(Error::bad_data(format!(
                    "node {at} is no node's child: the tree ended before it"
                )));
            }
            None => {}
        }
        if open.len() >= MOST_DEPTH {
            return Err(Error::bad_data(format!("node {at} lies deeper than {MOST_DEPTH} levels")));
        }
        open.push(node.n_children);
        if u64::from(node.first_buffer) != buffers && node.n_buffers > 0 {
            return Err(Error::bad_data(format!(
                "node {at} has buffers from number {} on, expected {buffers}: each buffer is one node's, in order",
                node.first_buffer
            )));
        }
        buffers += u64::from(node.n_buffers);
        // SAFETY: the node's own text and schema, by the caller's word.
        let (id, schema) = unsafe { (node.encoding.get(), node.schema.as_ref()) };
        let id = id.map_err(|e| e.context(format_args!("node {at}'s encoding")))?;
        let typed = match schema {
            Some(schema) => schema.release.is_some(),
            None => !node.dtype.is_null() && (1..=MOST_METADATA_BYTES).contains(&node.dtype_bytes),
        };
        if id.is_empty() || id.len() > MOST_ID_BYTES || !typed {
            return Err(Error::bad_data(format!(
                "node {at} has an id of {} bytes and {} type, expected 1 to {MOST_ID_BYTES} bytes and one",
                id.len(),
                if typed { "a" } else { "no" }
            )));
        }
        if node.metadata_bytes > MOST_METADATA_BYTES || (node.metadata.is_null() && node.metadata_bytes > 0) {
            return Err(Error::bad_data(format!(
                "node {at} ('{id}') has {} bytes of metadata",
                node.metadata_bytes
            )));
        }
        Ok(())
    };
    // SAFETY: by the caller's word.
    unsafe { told::list(raw.nodes, n_nodes, MOST_NODES, "encoded nodes", read) }?;
    if let Some(missing) = open.iter().find(|left| **left > 0) {
        return Err(Error::bad_data(format!(
            "the tree ends {missing} children too early, after {n_nodes} nodes"
        )));
    }
    if buffers != n_buffers as u64 {
        return Err(Error::bad_data(format!(
            "the nodes have {buffers} buffers together, the array has {n_buffers}"
        )));
    }
    let mut index = 0;
    let read = |buffer: abi::EncodedBuffer| {
        let at = index;
        index += 1;
        let address = buffer.address.addr() as u64;
        let there = buffer.bytes == 0 || (address != 0 && address.checked_add(buffer.bytes).is_some());
        if there && buffer.alignment.is_power_of_two() && address.is_multiple_of(buffer.alignment) {
            return Ok(());
        }
        Err(Error::bad_data(format!(
            "buffer {at} of {} bytes at {address:#x} has the alignment {}, expected an address that is a multiple of it, and \
             a power of two",
            buffer.bytes, buffer.alignment
        )))
    };
    // SAFETY: as above.
    unsafe { told::list(raw.buffers, n_buffers, MOST_BUFFERS, "encoded buffers", read) }?;
    Ok(())
}
