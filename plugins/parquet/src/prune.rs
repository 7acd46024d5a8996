//! Finds the rows that can fulfil predicates, from the statistics of row groups and pages.

use std::cmp::Ordering;
use std::ops::Range;

use arrow_schema::{DataType, Field};
use crossdock_arrays::filter::Comparison;
use crossdock_plugin_api::{Predicate, Result, abi, intersection};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_schema_by_columns};
use parquet::basic::{ColumnOrder, SortOrder, Type as Physical};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::bytes::File;
use crate::columns::Leaf;
use crate::error::{of_reader, reading};
use crate::footer::Footer;
use crate::page_index;
use crate::units::MILLISECONDS_PER_DAY;

/// A value of a statistic or of a predicate.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Value {
    Int(i128),
    Float(f64),
    Bytes(Vec<u8>),
}

/// How the bytes of statistics are read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Little-endian integers.
    Signed,
    Unsigned,
    /// Days of values in milliseconds.
    Days,
    /// Big-endian integers.
    Decimal,
    Float16,
    Float,
    Bytes,
}

/// A bound of the values of a column chunk.
pub struct Bound {
    pub value: Value,
    /// Whether the bound is a value of the chunk.
    pub is_exact: bool,
}

/// The least and the greatest value of a column chunk. `None` if its statistics cannot be used.
pub fn bounds(
    footer: &Footer,
    group: &RowGroupMetaData,
    leaf: &Leaf,
) -> Option<(Option<Bound>, Option<Bound>)> {
    let usable = Usable::new(footer, leaf)?;
    let statistics = group.columns().get(leaf.index)?.statistics()?;
    if statistics.is_min_max_deprecated() && !usable.accepts_deprecated {
        return None;
    }
    let bound = |bytes: Option<&[u8]>, is_exact| Some(Bound { value: usable.kind.read(bytes?)?, is_exact });
    Some((
        bound(statistics.min_bytes_opt(), statistics.min_is_exact()),
        bound(statistics.max_bytes_opt(), statistics.max_is_exact()),
    ))
}

/// A column whose statistics can be used.
struct Usable {
    kind: Kind,
    /// Whether the old statistics, whose order was not defined, can be used.
    accepts_deprecated: bool,
}

impl Usable {
    fn new(footer: &Footer, leaf: &Leaf) -> Option<Self> {
        let file = footer.metadata.file_metadata();
        let descriptor = file.schema_descr().columns().get(leaf.index)?;
        if descriptor.max_rep_level() > 0 {
            return None;
        }
        let stored = stored_type(file.schema_descr(), leaf.index)?;
        let kind = kind(values_of(&leaf.field), &stored, descriptor)?;
        let order = file.column_orders().and_then(|orders| orders.get(leaf.index));
        let is_ordered =
            order.is_some_and(|order| !matches!(order, ColumnOrder::UNDEFINED | ColumnOrder::UNKNOWN));
        (kind != Kind::Bytes || is_ordered).then_some(Self { kind, accepts_deprecated: kind == Kind::Signed })
    }
}

/// A predicate on a column whose statistics can be used.
struct Test {
    leaf: usize,
    kind: Kind,
    /// Whether the old statistics, whose order was not defined, can be used.
    accepts_deprecated: bool,
    operator: u32,
    literal: Value,
}

/// The rows that can fulfil all predicates, as ascending ranges of positions in the file. `None` if
/// no predicate has usable statistics. Rows of the pages that are left out do not fulfil them.
///
/// # Errors
/// The error of the source.
pub fn prune(
    file: &File,
    footer: &Footer,
    predicates: &[Predicate],
    find: impl Fn(&[String]) -> Option<Leaf>,
) -> Result<Option<Vec<Range<u64>>>> {
    let tests: Vec<_> =
        predicates.iter().filter_map(|predicate| Test::new(footer, predicate, &find)).collect();
    if tests.is_empty() {
        return Ok(None);
    }
    let mut kept: Vec<Range<u64>> = Vec::new();
    for (i, group) in footer.metadata.row_groups().iter().enumerate() {
        let rows = footer.rows_of(i);
        let mut ranges = vec![0..rows.end - rows.start];
        for test in &tests {
            if ranges.is_empty() {
                break;
            }
            ranges = match test.chunk(group) {
                Some(chunk) if test.can_match_chunk(chunk) => {
                    intersection(&ranges, &test.pages(file, chunk, rows.end - rows.start)?)
                }
                Some(_) => Vec::new(),
                None => ranges,
            };
        }
        for range in ranges {
            let range = rows.start + range.start..rows.start + range.end;
            match kept.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => kept.push(range),
            }
        }
    }
    Ok(Some(kept))
}

impl Test {
    fn new(footer: &Footer, predicate: &Predicate, find: impl Fn(&[String]) -> Option<Leaf>) -> Option<Self> {
        let leaf = find(&predicate.column)?;
        let Usable { kind, accepts_deprecated } = Usable::new(footer, &leaf)?;
        let data_type = values_of(&leaf.field);
        // This checks that the literal has the type of the column.
        Comparison::from_predicate(data_type, predicate)?;
        Some(Self {
            leaf: leaf.index,
            kind,
            accepts_deprecated,
            operator: predicate.comparison,
            literal: literal(data_type, &predicate.literal.bytes)?,
        })
    }

    fn chunk<'a>(&self, group: &'a RowGroupMetaData) -> Option<&'a ColumnChunkMetaData> {
        group.columns().get(self.leaf)
    }

    fn can_match_chunk(&self, chunk: &ColumnChunkMetaData) -> bool {
        let Some(statistics) = chunk.statistics() else { return true };
        // A null fulfils no predicate.
        if chunk.num_values() > 0 && statistics.null_count_opt() == Some(chunk.num_values() as u64) {
            return false;
        }
        if statistics.is_min_max_deprecated() && !self.accepts_deprecated {
            return true;
        }
        self.can_match(statistics.min_bytes_opt(), statistics.max_bytes_opt())
    }

    /// The rows of the pages of a column chunk that can fulfil the predicate.
    fn pages(&self, file: &File, chunk: &ColumnChunkMetaData, n_rows: u64) -> Result<Vec<Range<u64>>> {
        let all = vec![0..n_rows];
        let Some(locations) = page_index::locations(file, chunk, n_rows)? else { return Ok(all) };
        let Some(bounds) = page_index::bounds(file, chunk, locations.len())? else { return Ok(all) };
        let pages = page_index::rows_of_pages(&locations, n_rows).zip(bounds.pages());
        let can_match =
            |page: &page_index::PageBounds| !page.is_null && self.can_match(Some(&page.min), Some(&page.max));
        Ok(pages.filter(|(_, page)| can_match(page)).map(|(rows, _)| rows).collect())
    }

    /// Whether a value between two bounds can fulfil the predicate.
    fn can_match(&self, min: Option<&[u8]>, max: Option<&[u8]>) -> bool {
        let read = |bytes: Option<&[u8]>| bytes.and_then(|bytes| self.kind.read(bytes));
        let (min, max) = (read(min), read(max));
        // Whether a bound, if it is known, has one of these orders to the literal.
        let is = |bound: &Option<Value>, orders: &[Ordering]| {
            let order = bound.as_ref().and_then(|bound| bound.partial_cmp(&self.literal));
            order.is_none_or(|order| orders.contains(&order))
        };
        use Ordering::{Equal, Greater, Less};
        match self.operator {
            abi::COMPARE_EQUAL => is(&min, &[Less, Equal]) && is(&max, &[Equal, Greater]),
            abi::COMPARE_LESS => is(&min, &[Less]),
            abi::COMPARE_LESS_EQUAL => is(&min, &[Less, Equal]),
            abi::COMPARE_GREATER => is(&max, &[Greater]),
            abi::COMPARE_GREATER_EQUAL => is(&max, &[Equal, Greater]),
            // NaN differs from each value, but is no minimum and no maximum.
            _ => true,
        }
    }
}

/// The type of the values of a column, which a dictionary stores separately.
fn values_of(field: &Field) -> &DataType {
    match field.data_type() {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// Arrow's type of a leaf according to Parquet's schema alone. It has the units of the values.
fn stored_type(schema: &SchemaDescriptor, leaf: usize) -> Option<DataType> {
    let mask = ProjectionMask::leaves(schema, [leaf]);
    let schema =
        reading(|| parquet_to_arrow_schema_by_columns(schema, mask, None).map_err(|error| of_reader(&error)));
    let mut field = schema.ok()?.fields().first()?.clone();
    while let DataType::Struct(fields) = field.data_type() {
        field = fields.first()?.clone();
    }
    Some(field.data_type().clone())
}

/// How to read the statistics of a column of a type. `None` if they cannot be compared with values
/// of the type.
fn kind(data_type: &DataType, stored: &DataType, descriptor: &ColumnDescriptor) -> Option<Kind> {
    let (physical, order) = (descriptor.physical_type(), descriptor.sort_order());
    let is_int = matches!(physical, Physical::INT32 | Physical::INT64);
    let signed = (is_int && order == SortOrder::SIGNED).then_some(Kind::Signed);
    match (data_type, stored) {
        (DataType::Boolean, _) => (physical == Physical::BOOLEAN).then_some(Kind::Unsigned),
        (DataType::Float16, _) => (physical == Physical::FIXED_LEN_BYTE_ARRAY).then_some(Kind::Float16),
        (DataType::Float32, _) => (physical == Physical::FLOAT).then_some(Kind::Float),
        (DataType::Float64, _) => (physical == Physical::DOUBLE).then_some(Kind::Float),
        (
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale),
            DataType::Decimal32(_, stored)
            | DataType::Decimal64(_, stored)
            | DataType::Decimal128(_, stored)
            | DataType::Decimal256(_, stored),
        ) if scale == stored => match physical {
            Physical::INT32 | Physical::INT64 => Some(Kind::Signed),
            _ => Some(Kind::Decimal),
        },
        (other, _) if other.is_unsigned_integer() => match (is_int, order) {
            (true, SortOrder::UNSIGNED) => Some(Kind::Unsigned),
            // Older writers store 32 bits without a sign in 64 bits.
            (true, SortOrder::SIGNED) if physical == Physical::INT64 && *other == DataType::UInt32 => {
                Some(Kind::Signed)
            }
            _ => None,
        },
        (other, _) if other.is_signed_integer() => signed,
        (DataType::Timestamp(unit, _), DataType::Timestamp(stored, _)) if unit == stored => signed,
        (DataType::Date32, DataType::Date32) => signed,
        (DataType::Date64, DataType::Date32) => signed.map(|_| Kind::Days),
        (DataType::Time32(unit), DataType::Time32(stored)) if unit == stored => signed,
        (DataType::Time64(unit), DataType::Time64(stored)) if unit == stored => signed,
        // Parquet has no such types. Arrow's schema in the metadata names them.
        (DataType::Timestamp(..) | DataType::Duration(_) | DataType::Date64, DataType::Int64) => signed,
        (
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_),
            _,
        ) => {
            let has_bytes = matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
            (has_bytes && order == SortOrder::UNSIGNED).then_some(Kind::Bytes)
        }
        _ => None,
    }
}

fn little_endian(bytes: &[u8], is_signed: bool) -> Option<i128> {
    let mut all = match bytes.last()? {
        last if is_signed && last & 0x80 != 0 => [0xff; 16],
        _ => [0; 16],
    };
    // Decimals of 256 bits are known only if they fit into 128.
    let (low, high) = bytes.split_at_checked(16).unwrap_or((bytes, &[]));
    all.get_mut(..low.len())?.copy_from_slice(low);
    let value = i128::from_le_bytes(all);
    let rest = if value < 0 { 0xff } else { 0 };
    high.iter().all(|byte| *byte == rest).then_some(value)
}

fn half(bytes: &[u8]) -> Option<f64> {
    let bits = u16::from_le_bytes(*bytes.first_chunk()?);
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    Some(if sign == 1 { -magnitude } else { magnitude })
}

fn float(bytes: &[u8]) -> Option<f64> {
    let value = match bytes.len() {
        4 => f64::from(f32::from_le_bytes(*bytes.first_chunk()?)),
        8 => f64::from_le_bytes(*bytes.first_chunk()?),
        _ => return None,
    };
    Some(value)
}

impl Kind {
    fn read(self, bytes: &[u8]) -> Option<Value> {
        let value = match self {
            Self::Signed => Value::Int(little_endian(bytes, true)?),
            Self::Unsigned => Value::Int(little_endian(bytes, false)?),
            Self::Days => Value::Int(little_endian(bytes, true)?.checked_mul(MILLISECONDS_PER_DAY.into())?),
            Self::Decimal => {
                let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
                Value::Int(little_endian(&reversed, true)?)
            }
            Self::Float16 => Value::Float(half(bytes)?),
            Self::Float => Value::Float(float(bytes)?),
            Self::Bytes => Value::Bytes(bytes.to_vec()),
        };
        Some(value)
    }
}

/// Reads a literal of a type.
fn literal(data_type: &DataType, bytes: &[u8]) -> Option<Value> {
    let value = match data_type {
        DataType::Float16 => Value::Float(half(bytes)?),
        DataType::Float32 | DataType::Float64 => Value::Float(float(bytes)?),
        DataType::Boolean => Value::Int(little_endian(bytes, false)?),
        other if other.is_unsigned_integer() => Value::Int(little_endian(bytes, false)?),
        other if other.primitive_width().is_some() => Value::Int(little_endian(bytes, true)?),
        _ => Value::Bytes(bytes.to_vec()),
    };
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(kind: Kind, operator: u32, literal: Value) -> Test {
        Test { leaf: 0, kind, accepts_deprecated: false, operator, literal }
    }

    #[test]
    fn bounds_exclude_pages_that_cannot_match() {
        let operators = [
            (abi::COMPARE_EQUAL, [false, true, true, true, false]),
            (abi::COMPARE_LESS, [false, false, true, true, true]),
            (abi::COMPARE_LESS_EQUAL, [false, true, true, true, true]),
            (abi::COMPARE_GREATER, [true, true, true, false, false]),
            (abi::COMPARE_GREATER_EQUAL, [true, true, true, true, false]),
            (abi::COMPARE_NOT_EQUAL, [true; 5]),
        ];
        for (operator, expected) in operators {
            let test = test(Kind::Signed, operator, Value::Int(5));
            let ranges = [(6i32, 9i32), (5, 9), (3, 9), (3, 5), (-3, 4)];
            for ((min, max), expected) in ranges.into_iter().zip(expected) {
                let (low, high) = (min.to_le_bytes(), max.to_le_bytes());
                let found = test.can_match(Some(&low), Some(&high));
                assert_eq!(found, expected, "operator {operator}, {min} to {max}");
            }
            assert!(test.can_match(None, None), "unknown bounds");
        }
    }

    #[test]
    fn bounds_that_are_nan_are_unknown() {
        let test = test(Kind::Float, abi::COMPARE_GREATER, Value::Float(5.0));
        assert!(test.can_match(None, Some(&f64::NAN.to_le_bytes())));
        assert!(!test.can_match(None, Some(&4.0f32.to_le_bytes())));
    }

    #[test]
    fn values_have_the_order_of_their_type() {
        assert_eq!(Kind::Signed.read(&(-2i64).to_le_bytes()), Some(Value::Int(-2)));
        assert_eq!(Kind::Unsigned.read(&u64::MAX.to_le_bytes()), Some(Value::Int(i128::from(u64::MAX))));
        assert_eq!(Kind::Days.read(&(-2i32).to_le_bytes()), Some(Value::Int(-172_800_000)));
        assert_eq!(Kind::Days.read(&i128::MAX.to_le_bytes()), None);
        assert_eq!(Kind::Decimal.read(&[0xff, 0x38]), Some(Value::Int(-200)));
        assert_eq!(Kind::Decimal.read(&[0xff; 32]), Some(Value::Int(-1)));
        assert_eq!(Kind::Decimal.read(&[1; 32]), None);
        assert_eq!(Kind::Signed.read(&[]), None);
        for (bits, expected) in
            [(0x3c00u16, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x0001, 2f64.powi(-24))]
        {
            assert_eq!(half(&bits.to_le_bytes()), Some(expected));
        }
        assert!(half(&0x7e00u16.to_le_bytes()).unwrap().is_nan());
    }
}
