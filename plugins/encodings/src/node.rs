//! Wraps a node with its type, and checks its parts.

use std::ops::Range;

use arrow_schema::{DataType, Field};
use crossdock_arrays::import_field_ref;
use crossdock_plugin_api::{Device, EncodedNode, Result};

/// A node and its type.
pub struct Node<'a> {
    /// The node in its tree.
    pub raw: EncodedNode<'a>,
    /// The node's type, as a field without a name.
    pub field: Field,
    /// Number of values: all values of the node or, while rows of it are decoded, these rows.
    pub len: usize,
}

impl<'a> Node<'a> {
    /// # Errors
    /// Fails if the type or the length is unsupported on this machine.
    pub fn new(raw: EncodedNode<'a>) -> Result<Self> {
        // SAFETY: `schema` returns a valid struct, which lives as long as the array.
        let field = unsafe { import_field_ref(raw.schema()?) }.map_err(|e| e.context(raw.path()))?;
        let len = usize::try_from(raw.length()).ok().filter(|len| i64::try_from(*len).is_ok());
        let len =
            len.ok_or_else(|| raw.wrong(format_args!("the length, {}, overflows an address", raw.length())))?;
        Ok(Self { raw, field, len })
    }

    /// The node, of which only these rows are decoded.
    pub fn with_rows(self, rows: &Range<u64>) -> Self {
        let len = usize::try_from(rows.end.saturating_sub(rows.start)).unwrap_or(self.len).min(self.len);
        Self { len, ..self }
    }

    /// The node's Arrow type.
    pub fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// The metadata of the node's encoding.
    pub fn metadata(&self) -> &'a [u8] {
        self.raw.metadata()
    }

    /// Bytes of one value.
    ///
    /// # Errors
    /// Fails if the type has no fixed width.
    pub fn width(&self) -> Result<usize> {
        let width = self.data_type().primitive_width();
        width.ok_or_else(|| {
            self.wrong(format_args!(
                "the type is {}, expected a type of fixed width",
                crossdock_arrays::type_name(self.data_type())
            ))
        })
    }

    /// Bytes of all values.
    ///
    /// # Errors
    /// Fails if the type has no fixed width, or if the size overflows.
    pub fn values_bytes(&self) -> Result<usize> {
        self.width()?
            .checked_mul(self.len)
            .ok_or_else(|| self.wrong("the size of the values exceeds the address space"))
    }

    /// Bytes of buffer `i`.
    ///
    /// # Errors
    /// Fails if there is no buffer `i`.
    pub fn buffer_bytes(&self, i: usize) -> Result<u64> {
        self.raw.buffer(i).map(|buffer| buffer.bytes)
    }

    /// A copy of buffer `i`, if the host can read the buffer now.
    ///
    /// # Errors
    /// Fails if there is no buffer `i`, or if it was taken.
    pub fn host_copy(&self, i: usize) -> Result<Option<Vec<u8>>> {
        let raw = self.raw.available_buffer(i)?;
        let is_readable =
            Device::from_arrow(raw.device.r#type, raw.device.id) == Device::CPU && raw.sync_event.is_null();
        let Some(len) = usize::try_from(raw.bytes).ok().filter(|_| is_readable) else { return Ok(None) };
        if len == 0 || raw.address.is_null() {
            return Ok((len == 0).then(Vec::new));
        }
        // SAFETY: `EncodedArray` requires that the buffers describe valid memory, and the buffer
        // was not taken. The memory is the host's, and no event has to pass before it is read.
        Ok(Some(unsafe { std::slice::from_raw_parts(raw.address.cast::<u8>(), len) }.to_vec()))
    }

    /// Returns an error unless the metadata is empty.
    pub fn expect_no_metadata(&self) -> Result<()> {
        crate::wire::metadata::expect_empty(self.metadata()).map_err(|e| e.context(self.raw.path()))
    }

    /// Returns an error unless the node has exactly `n` buffers.
    pub fn expect_buffers(&self, n: usize) -> Result<()> {
        match self.raw.n_buffers() {
            actual if actual == n => Ok(()),
            actual => Err(self.wrong(format_args!("the node has {actual} buffers, expected {n}"))),
        }
    }

    /// Whether the type is nullable.
    pub fn is_nullable(&self) -> bool {
        self.field.is_nullable()
    }

    /// Whether the node has a validity child after `n` other children.
    ///
    /// # Errors
    /// Fails if the node has another number of children, or a validity although its type is not
    /// nullable.
    pub fn has_validity(&self, n: usize) -> Result<bool> {
        match self.raw.n_children() {
            actual if actual == n => Ok(false),
            actual if actual == n + 1 && self.field.is_nullable() => Ok(true),
            actual => {
                let more = if self.field.is_nullable() { ", or one more for its validity" } else { "" };
                Err(self.wrong(format_args!("the node has {actual} children, expected {n}{more}")))
            }
        }
    }

    /// Returns an error unless the node has exactly `n` children.
    pub fn expect_children(&self, n: usize) -> Result<()> {
        match self.raw.n_children() {
            actual if actual == n => Ok(()),
            actual => Err(self.wrong(format_args!("the node has {actual} children, expected {n}"))),
        }
    }

    /// Child `i`.
    pub fn child(&self, i: usize) -> Result<Node<'a>> {
        Node::new(self.raw.child(i)?)
    }

    /// Returns an error unless the node has this type and length. `role` names the node in the
    /// error, as a child of its parent.
    pub fn expect(&self, data_type: &DataType, len: usize, role: &str) -> Result<()> {
        if self.data_type().equals_datatype(data_type) && self.len == len {
            return Ok(());
        }
        Err(self.wrong(format_args!(
            "as {role}, the node has {} values of {}, expected {len} of {data_type}",
            self.len,
            crossdock_arrays::type_name(self.data_type()),
            data_type = crossdock_arrays::type_name(data_type)
        )))
    }

    /// Like [`expect`](Self::expect); also rejects a nullable type if `field` is not nullable.
    pub fn expect_field(&self, field: &Field, len: usize, role: &str) -> Result<()> {
        self.expect(field.data_type(), len, role)?;
        if field.is_nullable() || !self.field.is_nullable() {
            return Ok(());
        }
        Err(self.wrong(format_args!("as {role}, the node has a nullable type, expected a non-nullable one")))
    }

    /// An error about the node.
    pub fn wrong(&self, what: impl std::fmt::Display) -> crossdock_plugin_api::Error {
        self.raw.wrong(what)
    }
}

/// Adds the node's path to an error.
pub fn in_node<T>(node: &Node<'_>, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.context(node.raw.path()))
}
