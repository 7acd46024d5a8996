//! The children that a node must have, as they follow from its encoding, type, length and metadata.

use std::borrow::Cow;

use arrow_schema::{DataType, Field};
use crossdock_arrays::export_field;
use crossdock_plugin_api::{ChildType, Result};

use crate::node::Node;

/// The children of a node.
pub struct Children {
    list: Vec<Child>,
    has_optional_validity: bool,
}

/// A child of a node.
pub struct Child {
    /// What the child is for its parent, for messages.
    role: Cow<'static, str>,
    /// The type, without a name.
    field: Field,
    /// `None` if the length does not follow from the parent.
    len: Option<usize>,
    /// Whether the type may be nullable although `field` is not.
    may_be_nullable: bool,
    /// Whether the items of a list may be nullable although those of `field` are not.
    items_may_be_nullable: bool,
}

impl Child {
    /// A child whose nullability is that of `field`.
    pub fn new(role: impl Into<Cow<'static, str>>, field: &Field, len: usize) -> Self {
        let field = field.clone().with_name("");
        Self {
            role: role.into(),
            field,
            len: Some(len),
            may_be_nullable: false,
            items_may_be_nullable: false,
        }
    }

    /// A child without nulls.
    pub fn all_valid(role: impl Into<Cow<'static, str>>, data_type: DataType, len: usize) -> Self {
        Self::new(role, &Field::new("", data_type, false), len)
    }

    /// A child that is nullable if `nullable` is set. The type of an array that was not read from a
    /// file may also be nullable otherwise.
    pub fn with_nulls(
        role: impl Into<Cow<'static, str>>,
        data_type: DataType,
        nullable: bool,
        len: usize,
    ) -> Self {
        let field = Field::new("", data_type, nullable);
        Self { role: role.into(), field, len: Some(len), may_be_nullable: true, items_may_be_nullable: false }
    }

    /// The same child, a list, whose items may have a nullable type. The parent rejects nulls when
    /// it is decoded.
    pub fn with_nullable_items(self) -> Self {
        Self { items_may_be_nullable: true, ..self }
    }

    /// The type that a node must have.
    fn expected<'a>(&'a self, node: &'a Node<'_>) -> &'a DataType {
        match (self.field.data_type(), node.data_type()) {
            (DataType::List(expected), actual @ DataType::List(items))
                if self.items_may_be_nullable && items.data_type().equals_datatype(expected.data_type()) =>
            {
                actual
            }
            (expected, _) => expected,
        }
    }

    /// The same child, whose length does not follow from its parent.
    pub fn of_any_length(self) -> Self {
        Self { len: None, ..self }
    }
}

impl Children {
    /// Exactly these children.
    pub fn new(list: impl Into<Vec<Child>>) -> Self {
        Self { list: list.into(), has_optional_validity: false }
    }

    /// These children. A node of a nullable type may have one more child, its validity, which is
    /// the last child, or the first child of a struct.
    pub fn with_validity(list: impl Into<Vec<Child>>) -> Self {
        Self { list: list.into(), has_optional_validity: true }
    }

    /// The children that a node with this number of children has.
    fn resolve(self, node: &Node<'_>) -> Result<Vec<Child>> {
        let Self { mut list, has_optional_validity } = self;
        if !has_optional_validity {
            node.expect_children(list.len())?;
        } else if node.has_validity(list.len())? {
            let at = if matches!(node.data_type(), DataType::Struct(_)) { 0 } else { list.len() };
            // `node.len` is smaller while rows of the node are decoded.
            let len = usize::try_from(node.raw.length()).unwrap_or(node.len);
            list.insert(at, Child::all_valid("validity", DataType::Boolean, len));
        }
        Ok(list)
    }

    /// Returns an error unless the node has these children.
    pub fn check(self, node: &Node<'_>) -> Result<()> {
        // The loop iterates over the children, because accessing each child by its index would take
        // quadratic time.
        for (raw, child) in node.raw.children().zip(self.resolve(node)?) {
            let node = Node::new(raw)?;
            let len = child.len.unwrap_or(node.len);
            if child.may_be_nullable {
                node.expect(child.expected(&node), len, &child.role)?;
            } else {
                node.expect_field(&child.field, len, &child.role)?;
            }
        }
        Ok(())
    }

    /// The types and lengths of the children of the node.
    pub fn types(self, node: &Node<'_>) -> Result<Vec<ChildType>> {
        let of_child = |child: Child| {
            Ok(ChildType { schema: export_field(&child.field)?, length: child.len.map(|len| len as u64) })
        };
        self.resolve(node)?.into_iter().map(of_child).collect()
    }
}
