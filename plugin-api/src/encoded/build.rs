//! Builds encoded arrays.

use std::ffi::c_void;

use super::{EncodedArray, EncodedNode};
use crate::abi;
use crate::door;
use crate::error::Result;
use crate::owned::{Owned, Release};

/// The description of a node, from which [`EncodedArray::new`] creates the node.
pub struct NodeParts {
    /// The id of the encoding.
    pub encoding: String,
    /// The logical type.
    pub logical_type: LogicalType,
    /// The number of values.
    pub length: u64,
    /// The metadata of the node. The encoding defines its format.
    pub metadata: Vec<u8>,
    /// The number of buffers that belong to this node.
    pub n_buffers: u32,
    /// The number of children.
    pub n_children: u32,
}

/// The logical type of a node.
pub enum LogicalType {
    /// An Arrow schema.
    Schema(Owned<abi::ArrowSchema>),
    /// A Vortex DType flatbuffer. Only importers of encoded arrays accept this type.
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

impl NodeParts {
    /// Calls `f` with a node of these parts, whose children and buffers are missing.
    ///
    /// # Errors
    /// Returns an error if the parts are invalid, or the error of `f`.
    pub fn alone<T>(&self, f: impl FnOnce(EncodedNode<'_>) -> Result<T>) -> Result<T> {
        // SAFETY: `raw` points to the parts, which live during the call.
        unsafe { EncodedNode::with_alone(&self.raw(0), f) }
    }

    /// The C struct, which points to these parts.
    pub(crate) fn raw(&self, first_buffer: u32) -> abi::EncodedNode {
        let dtype = self.logical_type.dtype();
        abi::EncodedNode {
            encoding: abi::Str::new(&self.encoding),
            schema: self.logical_type.schema(),
            dtype: if dtype.is_empty() { std::ptr::null() } else { dtype.as_ptr().cast() },
            dtype_bytes: dtype.len(),
            length: self.length,
            metadata: self.metadata.as_ptr().cast(),
            metadata_bytes: self.metadata.len(),
            first_buffer,
            n_buffers: self.n_buffers,
            n_children: self.n_children,
            ..abi::EncodedNode::new()
        }
    }
}

/// The buffers of a tree, in the order of the nodes: first all buffers of the first node, then all
/// buffers of the second node, and so on.
pub type EncodedBuffers = Vec<Owned<abi::EncodedBuffer>>;

/// The private data of an array.
struct Parts {
    nodes: Vec<abi::EncodedNode>,
    buffers: Vec<abi::EncodedBuffer>,
    // The nodes contain pointers to these parts.
    _parts: Vec<NodeParts>,
    _owner: Option<Box<dyn Send>>,
}

impl EncodedArray {
    /// Creates an array from nodes in pre-order.
    ///
    /// # Errors
    /// Returns an error if the tree is invalid; see [`EncodedArray::from_raw`].
    pub fn new(parts: Vec<NodeParts>, buffers: EncodedBuffers) -> Result<Self> {
        Self::with_owner(parts, buffers, None)
    }

    /// Like [`new`](Self::new). The array takes ownership of `owner`, and drops it when the array
    /// is dropped.
    pub(super) fn with_owner(
        parts: Vec<NodeParts>,
        buffers: EncodedBuffers,
        owner: Option<Box<dyn Send>>,
    ) -> Result<Self> {
        let mut first_buffer = 0u32;
        let nodes = parts.iter().map(|part| {
            let node = part.raw(first_buffer);
            first_buffer = first_buffer.wrapping_add(part.n_buffers);
            node
        });
        let nodes: Vec<_> = nodes.collect();
        let buffers = buffers.into_iter().map(Owned::into_raw).collect();
        let mut parts = Box::new(Parts { nodes, buffers, _parts: parts, _owner: owner });
        let mut raw = abi::EncodedArray::new();
        (raw.nodes, raw.n_nodes) = (parts.nodes.as_ptr(), parts.nodes.len());
        (raw.buffers, raw.n_buffers) = (parts.buffers.as_mut_ptr(), parts.buffers.len());
        raw.private_data = Box::into_raw(parts).cast::<c_void>();
        raw.release = Some(release);
        // SAFETY: this function created the array with its release function, the lists have the
        // declared lengths, and there is no other copy of the array.
        unsafe { Self::from_raw(Owned::new(raw)) }
    }
}

unsafe extern "C" fn release(array: *mut abi::EncodedArray) {
    // SAFETY: only `EncodedArray::with_owner` sets this function, with a boxed `Parts`. Buffers
    // that were taken are released structs. Clearing `release` ensures that this runs only once.
    unsafe {
        (*array).release = None;
        let mut parts = Box::from_raw((*array).private_data.cast::<Parts>());
        door::run_release(|| {
            parts.buffers.iter_mut().for_each(|buffer| buffer.release());
            drop(parts);
        });
    }
}
