//! One node of an encoded array, where it stands.

use std::fmt::Write;

use crate::abi;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::told;

/// A node, and all below it.
#[derive(Clone, Copy)]
pub struct EncodedNode<'a> {
    array: &'a abi::EncodedArray,
    index: usize,
}

// SAFETY: it reads what does not change, and buffers are taken by one caller each.
unsafe impl Send for EncodedNode<'_> {}
// SAFETY: as above.
unsafe impl Sync for EncodedNode<'_> {}

impl<'a> EncodedNode<'a> {
    /// # Safety
    /// The array's tree was found sound, by whoever made the call or by [`super::EncodedArray::from_raw`], and is as it was
    /// for `'a`.
    pub(crate) unsafe fn new(array: &'a abi::EncodedArray, index: usize) -> Result<Self> {
        if index >= array.n_nodes {
            return Err(Error::invalid_argument(format!(
                "node {index} of an encoded array that has {}",
                array.n_nodes
            )));
        }
        Ok(Self { array, index })
    }

    /// # Safety
    /// `array` is a caller's, alive for `'a`, whose tree is sound.
    pub(crate) unsafe fn read(array: *const abi::EncodedArray, index: usize) -> Result<Self> {
        // SAFETY: the caller's word; null becomes None.
        let array = unsafe { array.as_ref() };
        let array = array.ok_or_else(|| Error::invalid_argument("the encoded array is NULL"))?;
        // SAFETY: passed on.
        unsafe { Self::new(array, index) }
    }

    fn raw_of(&self, index: usize) -> abi::EncodedNode {
        // SAFETY: the list has more than `index` nodes, its first one's size apart; the list was read once already, when it was
        // found sound, so none of them is too short.
        unsafe {
            let stride = self.array.nodes.cast::<usize>().read();
            told::read(self.array.nodes.byte_add(index * stride)).unwrap_or_default()
        }
    }

    fn raw(&self) -> abi::EncodedNode {
        self.raw_of(self.index)
    }

    /// Its place in pre-order.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The id of its encoding, with its version where it has one.
    pub fn encoding(&self) -> &'a str {
        // SAFETY: text that lives as long as the array.
        unsafe { self.raw().encoding.get() }.unwrap_or_default()
    }

    /// Its logical type, as Arrow writes it.
    ///
    /// # Errors
    /// The node has it as Vortex writes it: see [`EncodedNode::dtype`].
    pub fn schema(&self) -> Result<&'a abi::ArrowSchema> {
        // SAFETY: null, or a schema that lives as long as the array.
        unsafe { self.raw().schema.as_ref() }.ok_or_else(|| self.wrong("it has no schema"))
    }

    /// Its logical type as Vortex writes it, where it has no schema.
    pub fn dtype(&self) -> Option<&'a [u8]> {
        let raw = self.raw();
        let told = raw.schema.is_null() && !raw.dtype.is_null();
        // SAFETY: so many bytes, which live as long as the array.
        told.then(|| unsafe { std::slice::from_raw_parts(raw.dtype.cast(), raw.dtype_bytes) })
    }

    /// How many values.
    pub fn length(&self) -> u64 {
        self.raw().length
    }

    /// What its encoding says about it.
    pub fn metadata(&self) -> &'a [u8] {
        let raw = self.raw();
        if raw.metadata.is_null() || raw.metadata_bytes == 0 {
            return &[];
        }
        // SAFETY: so many bytes, which live as long as the array.
        unsafe { std::slice::from_raw_parts(raw.metadata.cast(), raw.metadata_bytes) }
    }

    /// How many buffers it has of its own.
    pub fn n_buffers(&self) -> usize {
        self.raw().n_buffers as usize
    }

    pub(super) fn buffer_at(&self, i: usize) -> Result<*mut abi::EncodedBuffer> {
        let raw = self.raw();
        if i >= raw.n_buffers as usize {
            return Err(self.wrong(format_args!("buffer {i} of {} was asked for", raw.n_buffers)));
        }
        let at = raw.first_buffer as usize + i;
        // SAFETY: within the list, as its tree's being sound says; all lie the first one's size apart.
        Ok(unsafe {
            let stride = self.array.buffers.cast::<usize>().read();
            self.array.buffers.byte_add(at * stride)
        })
    }

    /// Looks at buffer `i`: where it is, and how long (bytes).
    ///
    /// # Errors
    /// There are not so many.
    pub fn buffer(&self, i: usize) -> Result<abi::EncodedBuffer> {
        let at = self.buffer_at(i)?;
        // SAFETY: an entry of the list; values only, whose release nobody calls.
        unsafe { told::read(at.cast_const()) }
    }

    /// The same, of a buffer that nobody has taken.
    ///
    /// # Errors
    /// There are not so many, or it was taken.
    pub fn buffer_here(&self, i: usize) -> Result<abi::EncodedBuffer> {
        let buffer = self.buffer(i)?;
        if buffer.release.is_none() {
            return Err(self.wrong(format_args!("buffer {i} was taken already")));
        }
        Ok(buffer)
    }

    /// Takes buffer `i`, which lives on until the result is dropped.
    ///
    /// # Errors
    /// There are not so many, or it was taken already.
    ///
    /// # Safety
    /// Nobody else takes this node's buffers, or looks at them, at the same time: so it is for whoever decodes the node.
    pub unsafe fn take_buffer(&self, i: usize) -> Result<Owned<abi::EncodedBuffer>> {
        self.buffer_here(i)?;
        // SAFETY: an entry of the list, which the header lets a decoder move out.
        Ok(unsafe { Owned::take(self.buffer_at(i)?) })
    }

    /// Another node of the same tree, by its place in pre-order.
    ///
    /// # Errors
    /// There are not so many.
    pub fn at(&self, index: usize) -> Result<EncodedNode<'a>> {
        // SAFETY: the same tree.
        unsafe { Self::new(self.array, index) }
    }

    /// The place after its last descendant.
    pub fn end(&self) -> usize {
        let (mut open, mut at) = (1u64, self.index);
        while open > 0 && at < self.array.n_nodes {
            open += u64::from(self.raw_of(at).n_children);
            open -= 1;
            at += 1;
        }
        at
    }

    /// How many children.
    pub fn n_children(&self) -> usize {
        self.raw().n_children as usize
    }

    /// Its children, in order.
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
    /// There are not so many.
    pub fn child(&self, i: usize) -> Result<EncodedNode<'a>> {
        let wrong =
            || self.wrong(format_args!("it has {} children, and child {i} is wanted", self.n_children()));
        self.children().nth(i).ok_or_else(wrong)
    }

    /// The ids from the root to here, for messages.
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

    /// An error about this node.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::bad_data(format!("{}: {what}", self.path()))
    }
}
