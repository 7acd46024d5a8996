//! How each Arrow type lies in memory: the one table that everything else walks.
//!
//! The row of a type says which buffers it has, in the order of the Arrow C data interface ("Columnar format" and
//! "C data interface" specifications), which children, and its format string both ways.

mod format;
mod table;

pub(crate) use format::shown;
pub use format::{format_of, parse_format};
pub use table::{layout, plain_types};

use arrow_schema::{DataType, FieldRef, Fields, UnionFields};

/// What one buffer of an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// One bit a value, least significant bit first.
    Bits,
    /// `bytes` bytes a value.
    Fixed {
        /// Bytes a value.
        bytes: usize,
    },
    /// One more than values: where each begins, and where the last ends, in the data or in the child.
    Offsets {
        /// Bytes an entry, 4 or 8.
        width: usize,
    },
    /// A list-view's: where each value begins in the child, in any order.
    ViewOffsets {
        /// Bytes an entry, 4 or 8.
        width: usize,
    },
    /// A list-view's: how many elements of the child each value has.
    ViewSizes {
        /// Bytes an entry, 4 or 8.
        width: usize,
    },
    /// 16 bytes a value: its length, and itself or where it lies in a variadic buffer.
    Views,
    /// Bytes that offsets point into.
    Data,
    /// One byte a value: which child it is in.
    TypeIds,
    /// 4 bytes a value: where in its child it is.
    DenseOffsets,
    /// Bytes that views point into; any number of such buffers.
    Variadic,
}

impl BufferKind {
    /// Bytes that `values` values from the buffer's start on take (`u64::MAX` where that is beyond counting), or
    /// `None` where only the contents tell.
    pub fn bytes_for(self, values: usize) -> Option<u64> {
        let values = values as u64;
        Some(match self {
            BufferKind::Bits => values.div_ceil(8),
            BufferKind::Offsets { width } => values.saturating_add(1).saturating_mul(width as u64),
            BufferKind::Data | BufferKind::Variadic => return None,
            _ => values.saturating_mul(self.width().unwrap_or(0) as u64),
        })
    }

    /// Bytes an entry, where an entry is whole bytes and of one width.
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

    /// For messages.
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

/// How the rows of an array's children belong to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildRule {
    /// There are none.
    None,
    /// Row i of each child belongs to row i (struct, sparse union).
    SameRows,
    /// Row i has rows i * n to (i + 1) * n of the child (fixed-size list).
    Times(usize),
    /// The offsets buffer tells (list, map).
    Offsets,
    /// The offsets and the sizes buffer tell (list-view).
    Views,
    /// The type ids and the offsets buffer tell (dense union).
    Dense,
    /// The first child tells where the runs of the second end (run-end encoded).
    Runs,
}

/// The child fields of a type, in order.
#[derive(Clone, Copy, Debug)]
pub enum Children<'a> {
    /// None, some, or one.
    Fields(&'a [FieldRef]),
    /// Two that do not lie side by side: run ends and values.
    Pair(&'a FieldRef, &'a FieldRef),
    /// A union's, each with its type id.
    Union(&'a UnionFields),
}

impl<'a> Children<'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        match self {
            Children::Fields(fields) => fields.len(),
            Children::Pair(..) => 2,
            Children::Union(fields) => fields.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The `i`-th.
    pub fn get(self, i: usize) -> Option<&'a FieldRef> {
        match self {
            Children::Fields(fields) => fields.get(i),
            Children::Pair(first, second) => [first, second].get(i).copied(),
            Children::Union(fields) => fields.get(i).map(|(_, field)| field),
        }
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = &'a FieldRef> {
        (0..self.len()).filter_map(move |i| self.get(i))
    }
}

/// The row of one type.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Whether its first buffer is a validity bitmap (which may be absent where nothing is null).
    pub has_validity: bool,
    /// Whether every value is null without saying so (the null type).
    pub all_null: bool,
    /// Whether its bytes are UTF-8 text.
    pub utf8: bool,
    /// Whether any number of data buffers follow the others, and in C a buffer of their sizes (view types).
    pub variadic: bool,
    /// Its child fields.
    pub children: Children<'a>,
    /// How their rows belong to its own.
    pub child_rule: ChildRule,
    /// A dictionary's keys and values.
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

    /// The buffers after the validity, in order, without the variadic ones.
    pub fn buffers(&self) -> &[BufferKind] {
        self.kinds.get(..usize::from(self.n_kinds)).unwrap_or(&[])
    }

    /// How many buffers an array has in any case: the validity's and those of [`Layout::buffers`].
    pub fn n_buffers(&self) -> usize {
        usize::from(self.has_validity) + usize::from(self.n_kinds)
    }

    /// What buffer `i` of an array holds, counted with the validity, whose kind is [`BufferKind::Bits`]; `None` beyond
    /// the last.
    pub fn kind(&self, i: usize) -> Option<BufferKind> {
        if self.has_validity && i == 0 {
            return Some(BufferKind::Bits);
        }
        let i = i - usize::from(self.has_validity);
        self.buffers().get(i).copied().or(self.variadic.then_some(BufferKind::Variadic))
    }

    /// Where the validity is among an array's buffers.
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
