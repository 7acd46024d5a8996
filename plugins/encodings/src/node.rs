//! One node, with what its decoder asks of it.

use arrow_schema::{DataType, Field};
use crossdock_arrays::import_field_ref;
use crossdock_plugin_api::{EncodedNode, Result};

/// A node and its type.
pub struct Node<'a> {
    /// Where it stands in its tree.
    pub raw: EncodedNode<'a>,
    /// Its type; without a name.
    pub field: Field,
    /// How many values.
    pub len: usize,
}

impl<'a> Node<'a> {
    /// # Errors
    /// Its type or its length is none of this machine's.
    pub fn new(raw: EncodedNode<'a>) -> Result<Self> {
        // SAFETY: a node's schema is one that lives as long as the array.
        let field = unsafe { import_field_ref(raw.schema()?) }.map_err(|e| e.context(raw.path()))?;
        let len = usize::try_from(raw.length()).ok().filter(|len| i64::try_from(*len).is_ok());
        let len =
            len.ok_or_else(|| raw.wrong(format_args!("{} values are more than there can be", raw.length())))?;
        Ok(Self { raw, field, len })
    }

    /// Its Arrow type.
    pub fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// What its encoding says about it.
    pub fn metadata(&self) -> &'a [u8] {
        self.raw.metadata()
    }

    /// Bytes of one value, of types of fixed width.
    ///
    /// # Errors
    /// Its type is none of those.
    pub fn width(&self) -> Result<usize> {
        let width = self.data_type().primitive_width();
        width.ok_or_else(|| {
            self.wrong(format_args!("its type is {}, expected one of fixed width", self.data_type()))
        })
    }

    /// Bytes of all values.
    ///
    /// # Errors
    /// More than there can be, or not of fixed width.
    pub fn values_bytes(&self) -> Result<usize> {
        self.width()?.checked_mul(self.len).ok_or_else(|| self.wrong("its values are more than there can be"))
    }

    /// Bytes of buffer `i`.
    ///
    /// # Errors
    /// There are not so many.
    pub fn buffer_bytes(&self, i: usize) -> Result<u64> {
        self.raw.buffer(i).map(|buffer| buffer.bytes)
    }

    /// Its encoding says nothing about it, or something that nobody here knows.
    pub fn expect_no_metadata(&self) -> Result<()> {
        crate::wire::metadata::none(self.metadata()).map_err(|e| e.context(self.raw.path()))
    }

    /// It has so many buffers, or not.
    pub fn expect_buffers(&self, n: usize) -> Result<()> {
        match self.raw.n_buffers() {
            found if found == n => Ok(()),
            found => Err(self.wrong(format_args!("it has {found} buffers, expected {n}"))),
        }
    }

    /// Whether its type has nulls.
    pub fn is_nullable(&self) -> bool {
        self.field.is_nullable()
    }

    /// It has so many children, and one more for its validity where its type has nulls; or not.
    ///
    /// Answers whether that one is there.
    pub fn expect_children_and_validity(&self, n: usize) -> Result<bool> {
        match self.raw.n_children() {
            found if found == n => Ok(false),
            found if found == n + 1 && self.field.is_nullable() => {
                // In structs it comes first.
                let first = matches!(self.data_type(), DataType::Struct(_));
                let validity = self.child(if first { 0 } else { n })?;
                validity.expect_all_valid(&DataType::Boolean, self.len, "validity")?;
                Ok(true)
            }
            found => {
                let more = if self.field.is_nullable() { ", and perhaps its validity" } else { "" };
                Err(self.wrong(format_args!("it has {found} children, expected {n}{more}")))
            }
        }
    }

    /// It has so many children, or not.
    pub fn expect_children(&self, n: usize) -> Result<()> {
        match self.raw.n_children() {
            found if found == n => Ok(()),
            found => Err(self.wrong(format_args!("it has {found} children, expected {n}"))),
        }
    }

    /// Child `i`.
    pub fn child(&self, i: usize) -> Result<Node<'a>> {
        Node::new(self.raw.child(i)?)
    }

    /// It is of this type and length, as `role` of the node above, or not.
    pub fn expect(&self, data_type: &DataType, len: usize, role: &str) -> Result<()> {
        if self.data_type().equals_datatype(data_type) && self.len == len {
            return Ok(());
        }
        Err(self.wrong(format_args!(
            "as {role} it has {} values of {}, expected {len} of {data_type}",
            self.len,
            self.data_type()
        )))
    }

    /// The same for what nobody asks about nulls: its type has none.
    pub fn expect_all_valid(&self, data_type: &DataType, len: usize, role: &str) -> Result<()> {
        self.expect_field(&Field::new("", data_type.clone(), false), len, role)
    }

    /// The same for a field of the type of the node above, which may have nulls or not.
    pub fn expect_field(&self, field: &Field, len: usize, role: &str) -> Result<()> {
        self.expect(field.data_type(), len, role)?;
        if field.is_nullable() || !self.field.is_nullable() {
            return Ok(());
        }
        Err(self.wrong(format_args!("as {role} it has a type with nulls, expected one without")))
    }

    /// An error about it.
    pub fn wrong(&self, what: impl std::fmt::Display) -> crossdock_plugin_api::Error {
        self.raw.wrong(what)
    }
}

/// What was said about something of the node's, as said about the node.
pub fn in_node<T>(node: &Node<'_>, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.context(node.raw.path()))
}
