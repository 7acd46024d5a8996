//! Prints types as Arrow's C++ library and pyarrow print them. `parse_type` reads these texts.

use std::fmt;

use DataType::{
    Binary, BinaryView, Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Dictionary,
    Duration, FixedSizeBinary, FixedSizeList, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Interval,
    LargeBinary, LargeList, LargeListView, LargeUtf8, List, ListView, Map, Null, RunEndEncoded, Struct,
    Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Union, Utf8, Utf8View,
};
use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionMode};

/// The types without parameters, and those whose only parameter is a unit.
pub(crate) const NAMES: [(&str, DataType); 32] = [
    ("null", Null),
    ("bool", Boolean),
    ("int8", Int8),
    ("int16", Int16),
    ("int32", Int32),
    ("int64", Int64),
    ("uint8", UInt8),
    ("uint16", UInt16),
    ("uint32", UInt32),
    ("uint64", UInt64),
    ("halffloat", Float16),
    ("float", Float32),
    ("double", Float64),
    ("string", Utf8),
    ("large_string", LargeUtf8),
    ("string_view", Utf8View),
    ("binary", Binary),
    ("large_binary", LargeBinary),
    ("binary_view", BinaryView),
    ("date32[day]", Date32),
    ("date64[ms]", Date64),
    ("time32[s]", Time32(Second)),
    ("time32[ms]", Time32(Millisecond)),
    ("time64[us]", Time64(Microsecond)),
    ("time64[ns]", Time64(Nanosecond)),
    ("duration[s]", Duration(Second)),
    ("duration[ms]", Duration(Millisecond)),
    ("duration[us]", Duration(Microsecond)),
    ("duration[ns]", Duration(Nanosecond)),
    ("month_interval", Interval(IntervalUnit::YearMonth)),
    ("day_time_interval", Interval(IntervalUnit::DayTime)),
    ("month_day_nano_interval", Interval(IntervalUnit::MonthDayNano)),
];

pub(crate) const UNITS: [(&str, TimeUnit); 4] =
    [("s", Second), ("ms", Millisecond), ("us", Microsecond), ("ns", Nanosecond)];

/// Returns a type as text, as `str(type)` of pyarrow, such as `list<item: int32>`. An extension
/// type is printed as its storage type.
///
/// Whether a dictionary is ordered is a property of its field, so the outermost type is printed
/// with `ordered=0`. [`field_type_name`] prints it as the field states it.
pub fn type_name(data_type: &DataType) -> String {
    TypeName { data_type, ordered: false }.to_string()
}

/// Like [`type_name`], for the type of a field.
pub fn field_type_name(field: &Field) -> String {
    TypeName::of(field).to_string()
}

struct TypeName<'a> {
    data_type: &'a DataType,
    /// Whether the type is a dictionary whose values have a meaningful order.
    ordered: bool,
}

impl<'a> TypeName<'a> {
    fn of(field: &'a Field) -> Self {
        Self { data_type: field.data_type(), ordered: field.dict_is_ordered() == Some(true) }
    }
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data_type {
            FixedSizeBinary(width) => write!(f, "fixed_size_binary[{width}]"),
            Timestamp(unit, Some(zone)) if !zone.is_empty() => {
                write!(f, "timestamp[{}, tz={zone}]", name_of(*unit))
            }
            // pyarrow does not distinguish an empty time zone from none.
            Timestamp(unit, _) => write!(f, "timestamp[{}]", name_of(*unit)),
            Decimal32(precision, scale) => write!(f, "decimal32({precision}, {scale})"),
            Decimal64(precision, scale) => write!(f, "decimal64({precision}, {scale})"),
            Decimal128(precision, scale) => write!(f, "decimal128({precision}, {scale})"),
            Decimal256(precision, scale) => write!(f, "decimal256({precision}, {scale})"),
            List(item) => write!(f, "list<{}>", Child(item)),
            LargeList(item) => write!(f, "large_list<{}>", Child(item)),
            ListView(item) => write!(f, "list_view<{}>", Child(item)),
            LargeListView(item) => write!(f, "large_list_view<{}>", Child(item)),
            FixedSizeList(item, length) => write!(f, "fixed_size_list<{}>[{length}]", Child(item)),
            Struct(fields) => {
                f.write_str("struct<")?;
                for (i, field) in fields.iter().enumerate() {
                    write!(f, "{}{}", separator(i), Child(field))?;
                }
                f.write_str(">")
            }
            Union(fields, mode) => {
                f.write_str(if *mode == UnionMode::Dense { "dense_union<" } else { "sparse_union<" })?;
                for (i, (code, field)) in fields.iter().enumerate() {
                    write!(f, "{}{}={code}", separator(i), Child(field))?;
                }
                f.write_str(">")
            }
            Map(entries, sorted) => write_map(f, entries, *sorted),
            Dictionary(indices, values) => {
                let (values, indices) = (type_name(values), type_name(indices));
                write!(
                    f,
                    "dictionary<values={values}, indices={indices}, ordered={}>",
                    u8::from(self.ordered)
                )
            }
            RunEndEncoded(run_ends, values) => {
                let (run_ends, values) = (TypeName::of(run_ends), TypeName::of(values));
                write!(f, "run_end_encoded<run_ends: {run_ends}, values: {values}>")
            }
            other => match NAMES.iter().find(|(_, data_type)| data_type == other) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{other}"),
            },
        }
    }
}

/// A field of a nested type: its name, its type, and whether it is without nulls.
struct Child<'a>(&'a Field);

impl fmt::Display for Child<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nulls = if self.0.is_nullable() { "" } else { " not null" };
        write!(f, "{}: {}{nulls}", self.0.name(), TypeName::of(self.0))
    }
}

/// The fields of a map have usual names, which are not printed.
fn write_map(f: &mut fmt::Formatter<'_>, entries: &Field, sorted: bool) -> fmt::Result {
    let Struct(fields) = entries.data_type() else {
        return write!(f, "map<{}>", TypeName::of(entries));
    };
    f.write_str("map<")?;
    for (i, (field, usual)) in fields.iter().zip(["key", "value"]).enumerate() {
        write!(f, "{}{}{}", separator(i), TypeName::of(field), UnusualName(field, usual))?;
    }
    f.write_str(if sorted { ", keys_sorted" } else { "" })?;
    write!(f, "{}>", UnusualName(entries, "entries"))
}

struct UnusualName<'a>(&'a Field, &'static str);

impl fmt::Display for UnusualName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.name() {
            name if name == self.1 => Ok(()),
            name => write!(f, " ('{name}')"),
        }
    }
}

fn separator(i: usize) -> &'static str {
    if i == 0 { "" } else { ", " }
}

fn name_of(unit: TimeUnit) -> &'static str {
    UNITS.iter().find(|(_, other)| *other == unit).map_or("", |(name, _)| name)
}
