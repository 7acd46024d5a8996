//! Writes the types of fields.

use arrow_ipc::{self as fb, Type};
use arrow_schema::{DataType, IntervalUnit, TimeUnit, UnionMode};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

type Out = (Type, WIPOffset<UnionWIPOffset>);

/// Writes a type without its children. For a dictionary, writes the type of the values.
pub fn write(b: &mut FlatBufferBuilder<'_>, data_type: &DataType) -> Out {
    match data_type {
        DataType::Null => (Type::Null, fb::NullBuilder::new(b).finish().as_union_value()),
        DataType::Boolean => (Type::Bool, fb::BoolBuilder::new(b).finish().as_union_value()),
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64 => {
            let (bits, signed) = int_shape(data_type).unwrap_or((64, true));
            (Type::Int, write_int(b, bits, signed).as_union_value())
        }
        DataType::Float16 => float(b, fb::Precision::HALF),
        DataType::Float32 => float(b, fb::Precision::SINGLE),
        DataType::Float64 => float(b, fb::Precision::DOUBLE),
        DataType::Decimal32(p, s) => decimal(b, 32, *p, *s),
        DataType::Decimal64(p, s) => decimal(b, 64, *p, *s),
        DataType::Decimal128(p, s) => decimal(b, 128, *p, *s),
        DataType::Decimal256(p, s) => decimal(b, 256, *p, *s),
        DataType::Binary => (Type::Binary, fb::BinaryBuilder::new(b).finish().as_union_value()),
        DataType::LargeBinary => {
            (Type::LargeBinary, fb::LargeBinaryBuilder::new(b).finish().as_union_value())
        }
        DataType::BinaryView => (Type::BinaryView, fb::BinaryViewBuilder::new(b).finish().as_union_value()),
        DataType::Utf8 => (Type::Utf8, fb::Utf8Builder::new(b).finish().as_union_value()),
        DataType::LargeUtf8 => (Type::LargeUtf8, fb::LargeUtf8Builder::new(b).finish().as_union_value()),
        DataType::Utf8View => (Type::Utf8View, fb::Utf8ViewBuilder::new(b).finish().as_union_value()),
        DataType::FixedSizeBinary(width) => {
            let mut out = fb::FixedSizeBinaryBuilder::new(b);
            out.add_byteWidth(*width);
            (Type::FixedSizeBinary, out.finish().as_union_value())
        }
        DataType::Date32 => date(b, fb::DateUnit::DAY),
        DataType::Date64 => date(b, fb::DateUnit::MILLISECOND),
        DataType::Time32(unit) => time(b, 32, *unit),
        DataType::Time64(unit) => time(b, 64, *unit),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.as_ref().map(|zone| b.create_string(zone));
            let mut out = fb::TimestampBuilder::new(b);
            out.add_unit(time_unit(*unit));
            if let Some(zone) = zone {
                out.add_timezone(zone);
            }
            (Type::Timestamp, out.finish().as_union_value())
        }
        DataType::Duration(unit) => {
            let mut out = fb::DurationBuilder::new(b);
            out.add_unit(time_unit(*unit));
            (Type::Duration, out.finish().as_union_value())
        }
        DataType::Interval(unit) => {
            let mut out = fb::IntervalBuilder::new(b);
            out.add_unit(match unit {
                IntervalUnit::YearMonth => fb::IntervalUnit::YEAR_MONTH,
                IntervalUnit::DayTime => fb::IntervalUnit::DAY_TIME,
                IntervalUnit::MonthDayNano => fb::IntervalUnit::MONTH_DAY_NANO,
            });
            (Type::Interval, out.finish().as_union_value())
        }
        DataType::Struct(_) => (Type::Struct_, fb::Struct_Builder::new(b).finish().as_union_value()),
        DataType::List(_) => (Type::List, fb::ListBuilder::new(b).finish().as_union_value()),
        DataType::LargeList(_) => (Type::LargeList, fb::LargeListBuilder::new(b).finish().as_union_value()),
        DataType::ListView(_) => (Type::ListView, fb::ListViewBuilder::new(b).finish().as_union_value()),
        DataType::LargeListView(_) => {
            (Type::LargeListView, fb::LargeListViewBuilder::new(b).finish().as_union_value())
        }
        DataType::FixedSizeList(_, size) => {
            let mut out = fb::FixedSizeListBuilder::new(b);
            out.add_listSize(*size);
            (Type::FixedSizeList, out.finish().as_union_value())
        }
        DataType::Map(_, sorted) => {
            let mut out = fb::MapBuilder::new(b);
            out.add_keysSorted(*sorted);
            (Type::Map, out.finish().as_union_value())
        }
        DataType::RunEndEncoded(..) => {
            (Type::RunEndEncoded, fb::RunEndEncodedBuilder::new(b).finish().as_union_value())
        }
        DataType::Union(fields, mode) => {
            let ids: Vec<i32> = fields.iter().map(|(id, _)| i32::from(id)).collect();
            let ids = b.create_vector(&ids);
            let mut out = fb::UnionBuilder::new(b);
            out.add_mode(match mode {
                UnionMode::Sparse => fb::UnionMode::Sparse,
                UnionMode::Dense => fb::UnionMode::Dense,
            });
            out.add_typeIds(ids);
            (Type::Union, out.finish().as_union_value())
        }
        DataType::Dictionary(_, values) => write(b, values),
    }
}

/// Writes an integer type. Returns `None` for other types.
pub fn int<'a>(b: &mut FlatBufferBuilder<'a>, data_type: &DataType) -> Option<WIPOffset<fb::Int<'a>>> {
    int_shape(data_type).map(|(bits, signed)| write_int(b, bits, signed))
}

fn int_shape(data_type: &DataType) -> Option<(i32, bool)> {
    Some(match data_type {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

fn write_int<'a>(b: &mut FlatBufferBuilder<'a>, bits: i32, signed: bool) -> WIPOffset<fb::Int<'a>> {
    let mut out = fb::IntBuilder::new(b);
    out.add_bitWidth(bits);
    out.add_is_signed(signed);
    out.finish()
}

fn float(b: &mut FlatBufferBuilder<'_>, precision: fb::Precision) -> Out {
    let mut out = fb::FloatingPointBuilder::new(b);
    out.add_precision(precision);
    (Type::FloatingPoint, out.finish().as_union_value())
}

fn decimal(b: &mut FlatBufferBuilder<'_>, bits: i32, precision: u8, scale: i8) -> Out {
    let mut out = fb::DecimalBuilder::new(b);
    out.add_bitWidth(bits);
    out.add_precision(precision.into());
    out.add_scale(scale.into());
    (Type::Decimal, out.finish().as_union_value())
}

fn date(b: &mut FlatBufferBuilder<'_>, unit: fb::DateUnit) -> Out {
    let mut out = fb::DateBuilder::new(b);
    out.add_unit(unit);
    (Type::Date, out.finish().as_union_value())
}

fn time(b: &mut FlatBufferBuilder<'_>, bits: i32, unit: TimeUnit) -> Out {
    let mut out = fb::TimeBuilder::new(b);
    out.add_bitWidth(bits);
    out.add_unit(time_unit(unit));
    (Type::Time, out.finish().as_union_value())
}

fn time_unit(unit: TimeUnit) -> fb::TimeUnit {
    match unit {
        TimeUnit::Second => fb::TimeUnit::SECOND,
        TimeUnit::Millisecond => fb::TimeUnit::MILLISECOND,
        TimeUnit::Microsecond => fb::TimeUnit::MICROSECOND,
        TimeUnit::Nanosecond => fb::TimeUnit::NANOSECOND,
    }
}
