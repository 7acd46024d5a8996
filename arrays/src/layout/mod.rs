//! The memory layout of each Arrow type, in one table.
//!
//! The row of a type contains its buffers, its children and its format string. The buffers have the
//! order of the Arrow C data interface (see the Arrow specifications "Columnar format" and "C data
//! interface").

mod format;
mod table;

pub(crate) use format::shown;
pub use format::{format_of, parse_format};
pub(crate) use table::plain_type;
pub use table::{layout, plain_types};

use arrow_schema::{DataType, FieldRef, Fields, UnionFields};

/// The number of bytes of each value, for types that have only a validity bitmap and values of one
/// width. `None` for all other types.
pub fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(width @ 1..) => usize::try_from(*width).ok(),
        other => other.primitive_width(),
    }
}

/// The contents of one buffer of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// One bit per value, least significant bit first.
    Bits,
    /// Values of a fixed number of bytes.
    Fixed {
        /// Bytes per value.
        bytes: usize,
    },
    /// Offsets: the begin of each value in the data or in the child, and the end of the last value.
    /// The number of offsets is the number of values plus one.
    Offsets {
        /// Bytes per entry, 4 or 8.
        width: usize,
    },
    /// The begin of each list-view in the child. The entries have any order.
    ViewOffsets {
        /// Bytes per entry, 4 or 8.
        width: usize,
    },
    /// The number of elements of each list-view.
    ViewSizes {
        /// Bytes per entry, 4 or 8.
        width: usize,
    },
    /// Views of 16 bytes per value: the length, and then either the value itself or its position in
    /// a data buffer.
    Views,
    /// Bytes that offsets refer to.
    Data,
    /// One byte per value: the type id of its child.
    TypeIds,
    /// 4 bytes per value: the row of the value in its child.
    DenseOffsets,
    /// Bytes that views refer to. An array has any number of such buffers.
    Variadic,
}

impl BufferKind {
    /// The size in bytes of the first `values` values. The result is `u64::MAX` if the size
    /// overflows, and `None` if it depends on the contents.
    pub fn bytes_for(self, values: usize) -> Option<u64> {
        let values = values as u64;
        Some(match self {
            BufferKind::Bits => values.div_ceil(8),
            BufferKind::Offsets { width } => values.saturating_add(1).saturating_mul(width as u64),
            BufferKind::Data | BufferKind::Variadic => return None,
            _ => values.saturating_mul(self.width().unwrap_or(0) as u64),
        })
    }

    /// The size of an entry in bytes; `None` if entries are bits or have different sizes.
    pub fn width(self) -> Option<usize> {
        match self {
            BufferKind::Fixed { bytes } => Some(bytes),
            BufferKind::Offsets { width }
            | BufferKind::ViewOffsets { width }
            | BufferKind::ViewSizes { width } => Some(width),
            BufferKind::Views => Some(16),
            BufferKind::TypeIds => Some(1),
            BufferKind::DenseOffsets => Some(4),
            BufferKind::Bits | BufferKind::Data | BufferKind::Variadic => None,
        }
    }

    /// The name of the kind, for use in messages.
    pub fn name(self) -> &'static str {
        match self {
            BufferKind::Bits => "bits",
            BufferKind::Fixed { .. } => "values",
            BufferKind::Offsets { .. } | BufferKind::ViewOffsets { .. } | BufferKind::DenseOffsets => {
                "offsets"
            }
            BufferKind::ViewSizes { .. } => "sizes",
            BufferKind::Views => "views",
            BufferKind::Data | BufferKind::Variadic => "data",
            BufferKind::TypeIds => "type ids",
        }
    }
}

/// The relation between the rows of an array and the rows of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildRule {
    /// The type has no children.
    None,
    /// Row i of each child belongs to row i of the array (struct, sparse union).
    SameRows,
    /// Rows `i * n..(i + 1) * n` of the child belong to row `i` of the array (fixed-size list).
    Times(usize),
    /// The offsets buffer contains the range of each row in the child (list, map).
    Offsets,
    /// The buffers of offsets and sizes contain the range of each row in the child (list-view).
    Views,
    /// The buffers of type ids and offsets contain the child of each row and the row in that child
    /// (dense union).
    Dense,
    /// The first child contains the run ends, and the second child contains the values of the runs
    /// (run-end encoded).
    Runs,
}

/// The child fields of a type, in order.
#[derive(Clone, Copy, Debug)]
pub enum Children<'a> {
    /// The fields of a type whose children are in one list.
    Fields(&'a [FieldRef]),
    /// The two fields of a type that stores them separately: run ends and values.
    Pair(&'a FieldRef, &'a FieldRef),
    /// The fields of a union, each with its type id.
    Union(&'a UnionFields),
}

impl<'a> Children<'a> {
    /// The number of children.
    pub fn len(self) -> usize {
        match self {
            Children::Fields(fields) => fields.len(),
            Children::Pair(..) => 2,
            Children::Union(fields) => fields.len(),
        }
    }

    /// Whether there are no children.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The field of child `i`.
    pub fn get(self, i: usize) -> Option<&'a FieldRef> {
        match self {
            Children::Fields(fields) => fields.get(i),
            Children::Pair(first, second) => [first, second].get(i).copied(),
            Children::Union(fields) => fields.get(i).map(|(_, field)| field),
        }
    }

    /// All fields.
    pub fn iter(self) -> impl Iterator<Item = &'a FieldRef> {
        (0..self.len()).filter_map(move |i| self.get(i))
    }
}

/// The row of one type in the layout table.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Whether the first buffer is a validity bitmap. The bitmap may be missing if no value is
    /// null.
    pub has_validity: bool,
    /// Whether every value is null although there is no validity bitmap (the null type).
    pub all_null: bool,
    /// Whether the bytes are UTF-8 text.
    pub utf8: bool,
    /// Whether any number of data buffers follow the other buffers (view types). In the C
    /// interface, the last buffer of such an array contains the sizes of the data buffers.
    pub variadic: bool,
    /// The child fields.
    pub children: Children<'a>,
    /// The relation between the rows of the array and the rows of its children.
    pub child_rule: ChildRule,
    /// The types of a dictionary's keys and values.
    pub dictionary: Option<(&'a DataType, &'a DataType)>,
    kinds: [BufferKind; 2],
    n_kinds: u8,
}

impl<'a> Layout<'a> {
    const fn new(kinds: [BufferKind; 2], n_kinds: u8) -> Self {
        Self {
            has_validity: true,
            all_null: false,
            utf8: false,
            variadic: false,
            children: Children::Fields(&[]),
            child_rule: ChildRule::None,
            dictionary: None,
            kinds,
            n_kinds,
        }
    }

    /// The buffers after the validity bitmap, in order, without the data buffers of view types.
    pub fn buffers(&self) -> &[BufferKind] {
        self.kinds.get(..usize::from(self.n_kinds)).unwrap_or(&[])
    }

    /// The number of buffers: the validity bitmap and the buffers that [`Layout::buffers`] returns.
    /// The data buffers of view types are not counted.
    pub fn n_buffers(&self) -> usize {
        usize::from(self.has_validity) + usize::from(self.n_kinds)
    }

    /// The kind of buffer `i`. If the type has a validity bitmap, the bitmap is buffer 0 and has
    /// the kind [`BufferKind::Bits`]. `None` beyond the last buffer.
    pub fn kind(&self, i: usize) -> Option<BufferKind> {
        if self.has_validity && i == 0 {
            return Some(BufferKind::Bits);
        }
        let i = i - usize::from(self.has_validity);
        self.buffers().get(i).copied().or(self.variadic.then_some(BufferKind::Variadic))
    }

    /// Whether buffer `i` is the validity bitmap.
    pub fn is_validity(&self, i: usize) -> bool {
        self.has_validity && i == 0
    }

    fn with_children(mut self, children: Children<'a>, rule: ChildRule) -> Self {
        self.children = children;
        self.child_rule = rule;
        self
    }
}

fn one(field: &FieldRef) -> Children<'_> {
    Children::Fields(std::slice::from_ref(field))
}

fn all(fields: &Fields) -> Children<'_> {
    Children::Fields(fields)
}
