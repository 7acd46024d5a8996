//! The rows of the layout table.

use arrow_schema::DataType::*;
use arrow_schema::{DataType, IntervalUnit, TimeUnit, UnionMode};

use super::{BufferKind, ChildRule, Children, Layout, all, one};

const fn fixed<'a>(bytes: usize) -> Layout<'a> {
    Layout::new([BufferKind::Fixed { bytes }; 2], 1)
}

const fn bare<'a>() -> Layout<'a> {
    Layout { has_validity: false, ..validity_only() }
}

const fn validity_only<'a>() -> Layout<'a> {
    Layout::new([BufferKind::Bits; 2], 0)
}

const fn variable<'a>(width: usize, utf8: bool) -> Layout<'a> {
    Layout { utf8, ..Layout::new([BufferKind::Offsets { width }, BufferKind::Data], 2) }
}

const fn views<'a>(utf8: bool) -> Layout<'a> {
    Layout { utf8, variadic: true, ..Layout::new([BufferKind::Views; 2], 1) }
}

const fn list<'a>(width: usize) -> Layout<'a> {
    Layout::new([BufferKind::Offsets { width }; 2], 1)
}

const fn list_view<'a>(width: usize) -> Layout<'a> {
    Layout::new([BufferKind::ViewOffsets { width }, BufferKind::ViewSizes { width }], 2)
}

/// Converts a size that a type declares. A negative size becomes 0. The import rejects types with
/// negative sizes.
fn declared_size(n: i32) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// Defines the types without parameters and children: format string, type, and row of the table.
macro_rules! plain {
    ($($format:literal [$($t:tt)+] $row:expr;)*) => {
        fn plain_layout(data_type: &DataType) -> Option<Layout<'static>> {
            Some(match data_type { $( $($t)+ => const { $row }, )* _ => return None })
        }

        pub(super) fn plain_format(data_type: &DataType) -> Option<&'static str> {
            Some(match data_type { $( $($t)+ => $format, )* _ => return None })
        }

        pub(crate) fn plain_type(format: &str) -> Option<DataType> {
            Some(match format { $( $format => $($t)+, )* _ => return None })
        }

        /// Every type without parameters and children.
        pub fn plain_types() -> &'static [DataType] {
            const { &[$( $($t)+ ),*] }
        }
    };
}

plain! {
    "n"   [Null] Layout { all_null: true, ..bare() };
    "b"   [Boolean] Layout::new([BufferKind::Bits; 2], 1);
    "c"   [Int8] fixed(1);
    "C"   [UInt8] fixed(1);
    "s"   [Int16] fixed(2);
    "S"   [UInt16] fixed(2);
    "i"   [Int32] fixed(4);
    "I"   [UInt32] fixed(4);
    "l"   [Int64] fixed(8);
    "L"   [UInt64] fixed(8);
    "e"   [Float16] fixed(2);
    "f"   [Float32] fixed(4);
    "g"   [Float64] fixed(8);
    "z"   [Binary] variable(4, false);
    "Z"   [LargeBinary] variable(8, false);
    "vz"  [BinaryView] views(false);
    "u"   [Utf8] variable(4, true);
    "U"   [LargeUtf8] variable(8, true);
    "vu"  [Utf8View] views(true);
    "tdD" [Date32] fixed(4);
    "tdm" [Date64] fixed(8);
    "tts" [Time32(TimeUnit::Second)] fixed(4);
    "ttm" [Time32(TimeUnit::Millisecond)] fixed(4);
    "ttu" [Time64(TimeUnit::Microsecond)] fixed(8);
    "ttn" [Time64(TimeUnit::Nanosecond)] fixed(8);
    "tDs" [Duration(TimeUnit::Second)] fixed(8);
    "tDm" [Duration(TimeUnit::Millisecond)] fixed(8);
    "tDu" [Duration(TimeUnit::Microsecond)] fixed(8);
    "tDn" [Duration(TimeUnit::Nanosecond)] fixed(8);
    "tiM" [Interval(IntervalUnit::YearMonth)] fixed(4);
    "tiD" [Interval(IntervalUnit::DayTime)] fixed(8);
    "tin" [Interval(IntervalUnit::MonthDayNano)] fixed(16);
}

/// Returns the row of `data_type`.
///
/// Every Arrow type has a row. A type with a unit that Arrow does not allow for it (such as a
/// `Time32` in nanoseconds) has the row of the same type with a valid unit. A type with an invalid
/// unit has no format string, so it cannot be imported or exported.
pub fn layout(data_type: &DataType) -> Layout<'_> {
    if let Some(row) = plain_layout(data_type) {
        return row;
    }
    match data_type {
        Timestamp(..) => fixed(8),
        Decimal32(..) => fixed(4),
        Decimal64(..) => fixed(8),
        Decimal128(..) => fixed(16),
        Decimal256(..) => fixed(32),
        FixedSizeBinary(n) => fixed(declared_size(*n)),
        List(child) => list(4).with_children(one(child), ChildRule::Offsets),
        LargeList(child) => list(8).with_children(one(child), ChildRule::Offsets),
        Map(entries, _) => list(4).with_children(one(entries), ChildRule::Offsets),
        ListView(child) => list_view(4).with_children(one(child), ChildRule::Views),
        LargeListView(child) => list_view(8).with_children(one(child), ChildRule::Views),
        FixedSizeList(child, n) => {
            validity_only().with_children(one(child), ChildRule::Times(declared_size(*n)))
        }
        Struct(fields) => validity_only().with_children(all(fields), ChildRule::SameRows),
        Union(fields, UnionMode::Sparse) => {
            Layout { has_validity: false, ..Layout::new([BufferKind::TypeIds; 2], 1) }
                .with_children(Children::Union(fields), ChildRule::SameRows)
        }
        Union(fields, UnionMode::Dense) => {
            let kinds = [BufferKind::TypeIds, BufferKind::DenseOffsets];
            Layout { has_validity: false, ..Layout::new(kinds, 2) }
                .with_children(Children::Union(fields), ChildRule::Dense)
        }
        RunEndEncoded(ends, values) => bare().with_children(Children::Pair(ends, values), ChildRule::Runs),
        Dictionary(keys, values) => {
            Layout { dictionary: Some((keys, values)), ..plain_layout(keys).unwrap_or_else(validity_only) }
        }
        Time32(_) => fixed(4),
        // The only remaining type is a `Time64` with an invalid unit.
        _ => fixed(8),
    }
}
