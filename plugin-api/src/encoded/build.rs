//! Encoded arrays of our own making.

use std::ffi::c_void;

use super::EncodedArray;
use crate::abi;
use crate::door;
use crate::error::Result;
use crate::owned::{Owned, Release};

/// One node, as whoever makes a tree knows it.
pub struct NodeParts {
    /// The id.
    pub encoding: String,
    /// The logical type.
    pub logical_type: LogicalType,
    /// Values.
    pub length: u64,
    /// What the encoding says about it.
    pub metadata: Vec<u8>,
    /// How many of the list's buffers are its own.
    pub n_buffers: u32,
    /// How many of the nodes after it are its children.
    pub n_children: u32,
}

/// What a node's values are.
pub enum LogicalType {
    /// As Arrow writes it.
    Schema(Owned<abi::ArrowSchema>),
    /// As Vortex writes it, for importers of such arrays.
    Dtype(Vec<u8>),
}

impl LogicalType {
    fn schema(&self) -> *const abi::ArrowSchema {
        match self {
            Self::Schema(schema) => &raw const **schema,
            Self::Dtype(_) => std::ptr::null(),
        }
    }

    fn dtype(&self) -> &[u8] {
        match self {
            Self::Schema(_) => &[],
            Self::Dtype(dtype) => dtype,
        }
    }
}

/// A tree's buffers: those of the first node, of the second one, and so on.
pub type EncodedBuffers = Vec<Owned<abi::EncodedBuffer>>;

/// What the array's `private_data` points at.
struct Parts {
    nodes: Vec<abi::EncodedNode>,
    buffers: Vec<abi::EncodedBuffer>,
    // What the nodes point at.
    _parts: Vec<NodeParts>,
    _kept: Option<Box<dyn Send>>,
}

impl EncodedArray {
    /// A tree of these nodes, in pre-order.
    ///
    /// # Errors
    /// It is none, or too large: see [`EncodedArray::from_raw`].
    pub fn new(parts: Vec<NodeParts>, buffers: EncodedBuffers) -> Result<Self> {
        Self::with(parts, buffers, None)
    }

    /// The same, which keeps `kept` for as long as it lives.
    pub(super) fn with(
        parts: Vec<NodeParts>,
        buffers: EncodedBuffers,
        kept: Option<Box<dyn Send>>,
    ) -> Result<Self> {
        let mut first_buffer = 0u32;
        let nodes = parts.iter().map(|part| {
            let dtype = part.logical_type.dtype();
            let node = abi::EncodedNode {
                encoding: abi::Str::new(&part.encoding),
                schema: part.logical_type.schema(),
                dtype: if dtype.is_empty() { std::ptr::null() } else { dtype.as_ptr().cast() },
                dtype_bytes: dtype.len(),
                length: part.length,
                metadata: part.metadata.as_ptr().cast(),
                metadata_bytes: part.metadata.len(),
                first_buffer,
                n_buffers: part.n_buffers,
                n_children: part.n_children,
                ..abi::EncodedNode::new()
            };
            first_buffer = first_buffer.wrapping_add(part.n_buffers);
            node
        });
        let nodes: Vec<_> = nodes.collect();
        let buffers = buffers.into_iter().map(Owned::into_raw).collect();
        let mut parts = Box::new(Parts { nodes, buffers, _parts: parts, _kept: kept });
        let mut raw = abi::EncodedArray::new();
        (raw.nodes, raw.n_nodes) = (parts.nodes.as_ptr(), parts.nodes.len());
        (raw.buffers, raw.n_buffers) = (parts.buffers.as_mut_ptr(), parts.buffers.len());
        raw.private_data = Box::into_raw(parts).cast::<c_void>();
        raw.release = Some(release);
        // SAFETY: made above; nobody else has it, and its lists are as long as they say.
        unsafe { Self::from_raw(Owned::new(raw)) }
    }
}

unsafe extern "C" fn release(array: *mut abi::EncodedArray) {
    // SAFETY: set by `EncodedArray::new` only; released once because `release` is cleared. Buffers that were taken are
    // released structs by now.
    unsafe {
        (*array).release = None;
        let mut parts = Box::from_raw((*array).private_data.cast::<Parts>());
        door::leave(|| {
            parts.buffers.iter_mut().for_each(|buffer| buffer.release());
            drop(parts);
        });
    }
}
