//! Nodes of encoded arrays.

use std::fmt::Write;

use crate::abi;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::sized_struct;

/// The maximum length of an encoding's id, in bytes.
pub(super) const MAX_ID_BYTES: usize = 256;
/// The maximum length of a node's metadata and of its type, in bytes.
pub(super) const MAX_METADATA_BYTES: usize = 1 << 28;

/// A node of an encoded array.
#[derive(Clone, Copy)]
pub struct EncodedNode<'a> {
    array: &'a abi::EncodedArray,
    index: usize,
}

// SAFETY: safe functions only read the array. The unsafe `take_buffer` excludes other threads.
unsafe impl Send for EncodedNode<'_> {}
// SAFETY: safe functions only read the array. The unsafe `take_buffer` excludes other threads.
unsafe impl Sync for EncodedNode<'_> {}

impl<'a> EncodedNode<'a> {
    /// # Safety
    /// The tree of the array is valid and does not change during `'a`.
    /// [`super::EncodedArray::from_raw`] has checked it in this process, or the caller guarantees
    /// it.
    pub(crate) unsafe fn new(array: &'a abi::EncodedArray, index: usize) -> Result<Self> {
        if index >= array.n_nodes {
            return Err(Error::invalid_argument(format!(
                "node {index} was requested, but the encoded array has {} nodes",
                array.n_nodes
            )));
        }
        Ok(Self { array, index })
    }

    /// # Safety
    /// `array` is null, or it points to an array that lives for `'a` and meets the requirements of
    /// [`EncodedNode::new`].
    pub(crate) unsafe fn read(array: *const abi::EncodedArray, index: usize) -> Result<Self> {
        // SAFETY: the caller guarantees that `array` is null or points to an array that lives for
        // `'a`.
        let array = unsafe { array.as_ref() };
        let array = array.ok_or_else(|| Error::invalid_argument("the encoded array is NULL"))?;
        // SAFETY: the caller guarantees that the array meets the requirements of `new`.
        unsafe { Self::new(array, index) }
    }

    /// The C struct of the node, without its buffers.
    pub(crate) fn alone(&self) -> abi::EncodedNode {
        abi::EncodedNode { first_buffer: 0, n_buffers: 0, ..self.raw() }
    }

    /// Calls `f` with a node whose children and buffers are missing.
    ///
    /// # Errors
    /// Returns an error if the node is invalid, or the error of `f`.
    ///
    /// # Safety
    /// `raw` is null, or points to a node. All data that the node points to is valid.
    pub(crate) unsafe fn with_alone<T>(
        raw: *const abi::EncodedNode,
        f: impl FnOnce(EncodedNode<'_>) -> Result<T>,
    ) -> Result<T> {
        // SAFETY: the caller guarantees that the pointer is null or valid.
        let node = unsafe { sized_struct::read(raw) }?;
        // SAFETY: the caller guarantees that all data of the node is valid.
        unsafe { check_node(0, &node) }?;
        let node = abi::EncodedNode { first_buffer: 0, n_buffers: 0, ..node };
        let mut array = abi::EncodedArray::new();
        (array.nodes, array.n_nodes) = (&raw const node, 1);
        f(EncodedNode { array: &array, index: 0 })
    }

    fn raw_of(&self, index: usize) -> abi::EncodedNode {
        // SAFETY: `index` is less than `n_nodes`. The distance between two nodes is the
        // `struct_size` of the first node, which was checked together with the tree.
        unsafe {
            let stride = self.array.nodes.cast::<usize>().read();
            sized_struct::read(self.array.nodes.byte_add(index * stride)).unwrap_or_default()
        }
    }

    fn raw(&self) -> abi::EncodedNode {
        self.raw_of(self.index)
    }

    /// The index of the node in pre-order.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The id of the encoding, including its version if it has one.
    pub fn encoding(&self) -> &'a str {
        // SAFETY: `new` requires a valid tree, so the string is valid for as long as the array.
        unsafe { self.raw().encoding.get() }.unwrap_or_default()
    }

    /// The logical type as an Arrow schema.
    ///
    /// # Errors
    /// Returns an error if the node has a Vortex type instead; see [`EncodedNode::dtype`].
    pub fn schema(&self) -> Result<&'a abi::ArrowSchema> {
        // SAFETY: the pointer is null, or points to a schema that is valid for as long as the
        // array.
        unsafe { self.raw().schema.as_ref() }.ok_or_else(|| self.wrong("the node has no schema"))
    }

    /// The logical type as a Vortex DType flatbuffer; `None` if the node has a schema.
    pub fn dtype(&self) -> Option<&'a [u8]> {
        let raw = self.raw();
        let has_dtype = raw.schema.is_null() && !raw.dtype.is_null();
        // SAFETY: the pointer is not null, so `dtype_bytes` bytes are valid for as long as the
        // array.
        has_dtype.then(|| unsafe { std::slice::from_raw_parts(raw.dtype.cast(), raw.dtype_bytes) })
    }

    /// The number of values.
    pub fn length(&self) -> u64 {
        self.raw().length
    }

    /// The metadata of the node. The encoding defines its format.
    pub fn metadata(&self) -> &'a [u8] {
        let raw = self.raw();
        if raw.metadata.is_null() || raw.metadata_bytes == 0 {
            return &[];
        }
        // SAFETY: the pointer is not null, so `metadata_bytes` bytes are valid for as long as the
        // array.
        unsafe { std::slice::from_raw_parts(raw.metadata.cast(), raw.metadata_bytes) }
    }

    /// The number of buffers that belong to this node.
    pub fn n_buffers(&self) -> usize {
        self.raw().n_buffers as usize
    }

    pub(super) fn buffer_at(&self, i: usize) -> Result<*mut abi::EncodedBuffer> {
        let raw = self.raw();
        if i >= raw.n_buffers as usize {
            return Err(self.wrong(format_args!(
                "buffer {i} was requested, but the node has {} buffers",
                raw.n_buffers
            )));
        }
        let index = raw.first_buffer as usize + i;
        // SAFETY: the tree is valid, so `index` is less than `n_buffers`. The distance between two
        // buffers is the `struct_size` of the first buffer.
        Ok(unsafe {
            let stride = self.array.buffers.cast::<usize>().read();
            self.array.buffers.byte_add(index * stride)
        })
    }

    /// Copies the fields of buffer `i`. The array keeps the buffer.
    ///
    /// # Errors
    /// Returns an error if there is no such buffer.
    pub fn buffer(&self, i: usize) -> Result<abi::EncodedBuffer> {
        let at = self.buffer_at(i)?;
        // SAFETY: `at` is the address of an element of the list, which begins with its
        // `struct_size`.
        unsafe { sized_struct::read(at.cast_const()) }
    }

    /// Copies the fields of buffer `i`, and checks that the buffer has not been taken.
    ///
    /// # Errors
    /// Returns an error if there is no such buffer, or if it has been taken.
    pub fn available_buffer(&self, i: usize) -> Result<abi::EncodedBuffer> {
        let buffer = self.buffer(i)?;
        if buffer.release.is_none() {
            return Err(self.wrong(format_args!("buffer {i} has been taken already")));
        }
        Ok(buffer)
    }

    /// Takes ownership of buffer `i`. The buffer may outlive the array.
    ///
    /// # Errors
    /// Returns an error if there is no such buffer, or if it has been taken.
    ///
    /// # Safety
    /// No other thread accesses the buffers of this node during the call. The host guarantees this
    /// to a function that decodes the node.
    pub unsafe fn take_buffer(&self, i: usize) -> Result<Owned<abi::EncodedBuffer>> {
        self.available_buffer(i)?;
        // SAFETY: `buffer_at` returns the address of an element of the list, and the header allows
        // a decoder to move it out. The caller guarantees that no other code accesses it.
        Ok(unsafe { Owned::take(self.buffer_at(i)?) })
    }

    /// Returns the node of the same tree with this index in pre-order.
    ///
    /// # Errors
    /// Returns an error if there is no such node.
    pub fn at(&self, index: usize) -> Result<EncodedNode<'a>> {
        // SAFETY: `self` belongs to the same array, so the requirements of `new` were already
        // guaranteed when `self` was created.
        unsafe { Self::new(self.array, index) }
    }

    /// The index in pre-order of the first node after this node and all its descendants.
    pub fn end(&self) -> usize {
        let (mut open, mut at) = (1u64, self.index);
        while open > 0 && at < self.array.n_nodes {
            open += u64::from(self.raw_of(at).n_children);
            open -= 1;
            at += 1;
        }
        at
    }

    /// The number of children.
    pub fn n_children(&self) -> usize {
        self.raw().n_children as usize
    }

    /// The children, in order.
    pub fn children(&self) -> impl Iterator<Item = EncodedNode<'a>> + use<'a> {
        let (array, mut next) = (self.array, self.index + 1);
        (0..self.n_children()).map_while(move |_| {
            let child = EncodedNode { array, index: next };
            if next >= array.n_nodes {
                return None;
            }
            next = child.end();
            Some(child)
        })
    }

    /// Returns child `i`.
    ///
    /// # Errors
    /// Returns an error if there is no such child.
    pub fn child(&self, i: usize) -> Result<EncodedNode<'a>> {
        let missing = || {
            self.wrong(format_args!(
                "child {i} was requested, but the node has {} children",
                self.n_children()
            ))
        };
        self.children().nth(i).ok_or_else(missing)
    }

    /// The ids of the nodes from the root to this node, for use in messages.
    pub fn path(&self) -> String {
        let mut path = String::new();
        let mut node = EncodedNode { array: self.array, index: 0 };
        path.push_str(node.encoding());
        while node.index < self.index {
            let Some((i, child)) = node.children().enumerate().find(|(_, child)| self.index < child.end())
            else {
                break;
            };
            // Writing to a String cannot fail.
            let _ = write!(path, "[{i}]/{}", child.encoding());
            node = child;
        }
        path
    }

    /// Creates a "bad data" error whose message names this node.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::bad_data(format!("{}: {what}", self.path()))
    }
}

/// # Safety
/// The node and everything that it points to are valid.
pub(super) unsafe fn check_node(index: usize, node: &abi::EncodedNode) -> Result<()> {
    // SAFETY: the caller guarantees that the string is valid, and that the schema is valid or null.
    let (id, schema) = unsafe { (node.encoding.get(), node.schema.as_ref()) };
    let id = id.map_err(|e| e.context(format_args!("node {index}'s encoding")))?;
    let has_type = match schema {
        Some(schema) => schema.release.is_some(),
        None => !node.dtype.is_null() && (1..=MAX_METADATA_BYTES).contains(&node.dtype_bytes),
    };
    if id.is_empty() || id.len() > MAX_ID_BYTES || !has_type {
        return Err(Error::bad_data(format!(
            "node {index} has an id of {} bytes and {} type, expected 1 to {MAX_ID_BYTES} bytes and a type",
            id.len(),
            if has_type { "a" } else { "no" }
        )));
    }
    if node.metadata_bytes > MAX_METADATA_BYTES || (node.metadata.is_null() && node.metadata_bytes > 0) {
        let at_null = if node.metadata.is_null() { " at NULL" } else { "" };
        return Err(Error::bad_data(format!(
            "node {index} ('{id}') has {} bytes of metadata{at_null}, expected at most {MAX_METADATA_BYTES}",
            node.metadata_bytes
        )));
    }
    Ok(())
}
