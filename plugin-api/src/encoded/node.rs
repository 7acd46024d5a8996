//! Nodes of encoded arrays.

use std::fmt::Write;

use crate::abi;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::sized_struct;

/// A node of an encoded array.
#[derive(Clone, Copy)]
pub struct EncodedNode<'a> {
    array: &'a abi::EncodedArray,
    index: usize,
}

// SAFETY: the array is only read, except by `take_buffer`, which is unsafe.
unsafe impl Send for EncodedNode<'_> {}
// SAFETY: the array is only read, except by `take_buffer`, which is unsafe.
unsafe impl Sync for EncodedNode<'_> {}

impl<'a> EncodedNode<'a> {
    /// # Safety
    /// The tree of the array is valid, checked by [`super::EncodedArray::from_raw`] here
    /// or by the caller of this module, and does not change during `'a`.
    pub(crate) unsafe fn new(array: &'a abi::EncodedArray, index: usize) -> Result<Self> {
        if index >= array.n_nodes {
            return Err(Error::invalid_argument(format!(
                "node {index} of an encoded array with {} nodes",
                array.n_nodes
            )));
        }
        Ok(Self { array, index })
    }

    /// # Safety
    /// `array` is null, or points to an array that is alive for `'a` and meets the
    /// requirements of [`EncodedNode::new`].
    pub(crate) unsafe fn read(array: *const abi::EncodedArray, index: usize) -> Result<Self> {
        // SAFETY: the caller guarantees null or an array that is alive for `'a`.
        let array = unsafe { array.as_ref() };
        let array = array.ok_or_else(|| Error::invalid_argument("the encoded array is NULL"))?;
        // SAFETY: the caller guarantees the requirements of `new`.
        unsafe { Self::new(array, index) }
    }

    fn raw_of(&self, index: usize) -> abi::EncodedNode {
        // SAFETY: `index` is less than `n_nodes`. The nodes lie the first one's `struct_size`
        // apart, which was checked with the tree.
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
        // SAFETY: the string is valid as long as the array, which was checked with the tree.
        unsafe { self.raw().encoding.get() }.unwrap_or_default()
    }

    /// The logical type as an Arrow schema.
    ///
    /// # Errors
    /// The node has a Vortex type instead: see [`EncodedNode::dtype`].
    pub fn schema(&self) -> Result<&'a abi::ArrowSchema> {
        // SAFETY: null, or a schema that is valid as long as the array.
        unsafe { self.raw().schema.as_ref() }.ok_or_else(|| self.wrong("it has no schema"))
    }

    /// The logical type as a Vortex DType flatbuffer, if the node has no schema.
    pub fn dtype(&self) -> Option<&'a [u8]> {
        let raw = self.raw();
        let has_dtype = raw.schema.is_null() && !raw.dtype.is_null();
        // SAFETY: not null, so `dtype_bytes` bytes are valid as long as the array.
        has_dtype.then(|| unsafe { std::slice::from_raw_parts(raw.dtype.cast(), raw.dtype_bytes) })
    }

    /// The number of values.
    pub fn length(&self) -> u64 {
        self.raw().length
    }

    /// The metadata, whose format the encoding defines.
    pub fn metadata(&self) -> &'a [u8] {
        let raw = self.raw();
        if raw.metadata.is_null() || raw.metadata_bytes == 0 {
            return &[];
        }
        // SAFETY: not null, so `metadata_bytes` bytes are valid as long as the array.
        unsafe { std::slice::from_raw_parts(raw.metadata.cast(), raw.metadata_bytes) }
    }

    /// The number of buffers of this node.
    pub fn n_buffers(&self) -> usize {
        self.raw().n_buffers as usize
    }

    pub(super) fn buffer_at(&self, i: usize) -> Result<*mut abi::EncodedBuffer> {
        let raw = self.raw();
        if i >= raw.n_buffers as usize {
            return Err(self.wrong(format_args!("buffer {i} was requested, but it has {}", raw.n_buffers)));
        }
        let index = raw.first_buffer as usize + i;
        // SAFETY: the tree is valid, so `index` is less than `n_buffers`. The buffers lie the first
        // one's `struct_size` apart.
        Ok(unsafe {
            let stride = self.array.buffers.cast::<usize>().read();
            self.array.buffers.byte_add(index * stride)
        })
    }

    /// Copies the fields of buffer `i`, without taking it.
    ///
    /// # Errors
    /// There is no such buffer.
    pub fn buffer(&self, i: usize) -> Result<abi::EncodedBuffer> {
        let at = self.buffer_at(i)?;
        // SAFETY: the address of an element of the list, which begins with its size.
        unsafe { sized_struct::read(at.cast_const()) }
    }

    /// Copies the fields of buffer `i`, if it has not been taken.
    ///
    /// # Errors
    /// There is no such buffer, or it has been taken.
    pub fn available_buffer(&self, i: usize) -> Result<abi::EncodedBuffer> {
        let buffer = self.buffer(i)?;
        if buffer.release.is_none() {
            return Err(self.wrong(format_args!("buffer {i} has been taken already")));
        }
        Ok(buffer)
    }

    /// Takes buffer `i`. It may outlive the array.
    ///
    /// # Errors
    /// There is no such buffer, or it has been taken.
    ///
    /// # Safety
    /// No other thread accesses the buffers of this node during the call, as is the case
    /// for a function that decodes the node.
    pub unsafe fn take_buffer(&self, i: usize) -> Result<Owned<abi::EncodedBuffer>> {
        self.available_buffer(i)?;
        // SAFETY: the address of an element of the list, which the header lets a decoder move out.
        // The caller guarantees that nothing else accesses it.
        Ok(unsafe { Owned::take(self.buffer_at(i)?) })
    }

    /// The node of the same tree with this index in pre-order.
    ///
    /// # Errors
    /// There is no such node.
    pub fn at(&self, index: usize) -> Result<EncodedNode<'a>> {
        // SAFETY: `self` belongs to the same array, so its creator has guaranteed the requirements.
        unsafe { Self::new(self.array, index) }
    }

    /// The index after the last descendant of this node.
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

    /// Child `i`.
    ///
    /// # Errors
    /// There is no such child.
    pub fn child(&self, i: usize) -> Result<EncodedNode<'a>> {
        let missing =
            || self.wrong(format_args!("child {i} was requested, but it has {}", self.n_children()));
        self.children().nth(i).ok_or_else(missing)
    }

    /// The ids of the nodes from the root to this one, for messages.
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

    /// A bad data error whose message names this node.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::bad_data(format!("{}: {what}", self.path()))
    }
}
