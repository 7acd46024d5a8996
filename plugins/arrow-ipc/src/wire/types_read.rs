//! Reads the types of fields.

use arrow_ipc::{DateUnit, Precision, Type, UnionMode};
use arrow_schema::{DataType, FieldRef, IntervalUnit, TimeUnit, UnionFields};
use crossdock_plugin_api::{Error, Result};

use super::strings::Strings;

/// Reads the type of `field`. `children` are the fields of its children. For a dictionary-encoded
/// field, the result is the type of the values.
pub fn read(field: arrow_ipc::Field<'_>, children: Vec<FieldRef>, strings: &Strings<'_>) -> Result<DataType> {
    let kind = field.type_type();
    let missing = || Error::bad_data(format!("the type declares {} but has none", name(kind)));
    let data_type = match kind {
        Type::Null => DataType::Null,
        Type::Bool => DataType::Boolean,
        Type::Int => {
            let int = field.type_as_int().ok_or_else(missing)?;
            int_type(int.bitWidth(), int.is_signed())?
        }
        Type::FloatingPoint => match field.type_as_floating_point().ok_or_else(missing)?.precision() {
            Precision::HALF => DataType::Float16,
            Precision::SINGLE => DataType::Float32,
            Precision::DOUBLE => DataType::Float64,
            other => return Err(unknown("a float's precision", other.0)),
        },
        Type::Decimal => decimal(field.type_as_decimal().ok_or_else(missing)?)?,
        Type::Binary => DataType::Binary,
        Type::LargeBinary => DataType::LargeBinary,
        Type::BinaryView => DataType::BinaryView,
        Type::Utf8 => DataType::Utf8,
        Type::LargeUtf8 => DataType::LargeUtf8,
        Type::Utf8View => DataType::Utf8View,
        Type::FixedSizeBinary => {
            let width = field.type_as_fixed_size_binary().ok_or_else(missing)?.byteWidth();
            if width < 0 {
                return Err(Error::bad_data(format!(
                    "a fixed-size binary type has a width of {width} bytes, expected 0 or more"
                )));
            }
            DataType::FixedSizeBinary(width)
        }
        Type::Date => match field.type_as_date().ok_or_else(missing)?.unit() {
            DateUnit::DAY => DataType::Date32,
            DateUnit::MILLISECOND => DataType::Date64,
            other => return Err(unknown("a date's unit", other.0)),
        },
        Type::Time => time(field.type_as_time().ok_or_else(missing)?)?,
        Type::Timestamp => {
            let timestamp = field.type_as_timestamp().ok_or_else(missing)?;
            let zone = timestamp.timezone().map(|zone| strings.name(zone, "the time zone")).transpose()?;
            DataType::Timestamp(time_unit(timestamp.unit())?, zone.map(Into::into))
        }
        Type::Duration => {
            DataType::Duration(time_unit(field.type_as_duration().ok_or_else(missing)?.unit())?)
        }
        Type::Interval => DataType::Interval(match field.type_as_interval().ok_or_else(missing)?.unit() {
            arrow_ipc::IntervalUnit::YEAR_MONTH => IntervalUnit::YearMonth,
            arrow_ipc::IntervalUnit::DAY_TIME => IntervalUnit::DayTime,
            arrow_ipc::IntervalUnit::MONTH_DAY_NANO => IntervalUnit::MonthDayNano,
            other => return Err(unknown("an interval's unit", other.0)),
        }),
        Type::Struct_ => DataType::Struct(children.into()),
        Type::List => DataType::List(single_child(kind, children)?),
        Type::LargeList => DataType::LargeList(single_child(kind, children)?),
        Type::ListView => DataType::ListView(single_child(kind, children)?),
        Type::LargeListView => DataType::LargeListView(single_child(kind, children)?),
        Type::FixedSizeList => {
            let size = field.type_as_fixed_size_list().ok_or_else(missing)?.listSize();
            if size < 0 {
                return Err(Error::bad_data(format!(
                    "a fixed-size list type has a size of {size} values, expected 0 or more"
                )));
            }
            DataType::FixedSizeList(single_child(kind, children)?, size)
        }
        Type::Map => map(field.type_as_map().ok_or_else(missing)?, single_child(kind, children)?)?,
        Type::RunEndEncoded => run_end(children)?,
        Type::Union => union(field.type_as_union().ok_or_else(missing)?, children)?,
        other => {
            return Err(Error::unsupported(format!("unknown type number {}", other.0)));
        }
    };
    Ok(data_type)
}

/// Returns the type of a dictionary's indices. If it is not stored, it is int32.
pub fn index_type(encoding: arrow_ipc::DictionaryEncoding<'_>) -> Result<DataType> {
    if encoding.dictionaryKind() != arrow_ipc::DictionaryKind::DenseArray {
        return Err(unknown("a dictionary's kind", encoding.dictionaryKind().0));
    }
    encoding.indexType().map_or(Ok(DataType::Int32), |int| int_type(int.bitWidth(), int.is_signed()))
}

fn int_type(bits: i32, signed: bool) -> Result<DataType> {
    Ok(match (bits, signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => {
            return Err(Error::bad_data(format!(
                "an integer type has {bits} bits, expected 8, 16, 32 or 64"
            )));
        }
    })
}

fn time_unit(unit: arrow_ipc::TimeUnit) -> Result<TimeUnit> {
    Ok(match unit {
        arrow_ipc::TimeUnit::SECOND => TimeUnit::Second,
        arrow_ipc::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        arrow_ipc::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        arrow_ipc::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        other => return Err(unknown("a time unit", other.0)),
    })
}

fn time(time: arrow_ipc::Time<'_>) -> Result<DataType> {
    let unit = time_unit(time.unit())?;
    match (time.bitWidth(), unit) {
        (32, TimeUnit::Second | TimeUnit::Millisecond) => Ok(DataType::Time32(unit)),
        (64, TimeUnit::Microsecond | TimeUnit::Nanosecond) => Ok(DataType::Time64(unit)),
        (bits, unit) => Err(Error::bad_data(format!(
            "a time type has {bits} bits for {unit:?}s, expected 32 bits for seconds and milliseconds, else 64"
        ))),
    }
}

fn decimal(decimal: arrow_ipc::Decimal<'_>) -> Result<DataType> {
    let (bits, precision, scale) = (decimal.bitWidth(), decimal.precision(), decimal.scale());
    let max = match bits {
        32 => 9,
        64 => 18,
        128 => 38,
        256 => 76,
        _ => {
            return Err(Error::bad_data(format!(
                "a decimal type has {bits} bits, expected 32, 64, 128 or 256"
            )));
        }
    };
    let precise = u8::try_from(precision).ok().filter(|p| (1..=max).contains(p)).ok_or_else(|| {
        Error::bad_data(format!(
            "a decimal type of {bits} bits has the precision {precision}, expected 1 to {max}"
        ))
    })?;
    let scale = i8::try_from(scale).map_err(|_| {
        Error::unsupported(format!("a decimal type has the scale {scale}, expected -128 to 127"))
    })?;
    Ok(match bits {
        32 => DataType::Decimal32(precise, scale),
        64 => DataType::Decimal64(precise, scale),
        128 => DataType::Decimal128(precise, scale),
        _ => DataType::Decimal256(precise, scale),
    })
}

fn single_child(kind: Type, children: Vec<FieldRef>) -> Result<FieldRef> {
    let [child] = <[FieldRef; 1]>::try_from(children)
        .map_err(|c| Error::bad_data(format!("{} has {} children, expected 1", name(kind), c.len())))?;
    Ok(child)
}

fn map(map: arrow_ipc::Map<'_>, entries: FieldRef) -> Result<DataType> {
    match entries.data_type() {
        DataType::Struct(pair) if pair.len() == 2 => Ok(DataType::Map(entries, map.keysSorted())),
        other => Err(Error::bad_data(format!(
            "a map type has a child of type {}, expected a struct of key and value",
            crossdock_arrays::type_name(other)
        ))),
    }
}

fn run_end(children: Vec<FieldRef>) -> Result<DataType> {
    let [ends, values] = <[FieldRef; 2]>::try_from(children).map_err(|c| {
        Error::bad_data(format!("a run-end encoded type has {} children, expected 2", c.len()))
    })?;
    match ends.data_type() {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Ok(DataType::RunEndEncoded(ends, values)),
        other => Err(Error::bad_data(format!(
            "the run ends are of type {}, expected a signed integer of 16 to 64 bits",
            crossdock_arrays::type_name(other)
        ))),
    }
}

fn union(union: arrow_ipc::Union<'_>, children: Vec<FieldRef>) -> Result<DataType> {
    let mode = match union.mode() {
        UnionMode::Sparse => arrow_schema::UnionMode::Sparse,
        UnionMode::Dense => arrow_schema::UnionMode::Dense,
        other => return Err(unknown("a union's mode", other.0)),
    };
    let ids: Vec<i32> = match union.typeIds() {
        Some(ids) => ids.iter().collect(),
        None => (0..children.len()).map(|i| i32::try_from(i).unwrap_or(i32::MAX)).collect(),
    };
    if ids.len() != children.len() {
        return Err(Error::bad_data(format!(
            "a union type has {} type ids for {} children",
            ids.len(),
            children.len()
        )));
    }
    let ids = ids
        .into_iter()
        .map(|id| {
            i8::try_from(id).ok().filter(|id| *id >= 0).ok_or_else(|| {
                Error::bad_data(format!("a union type has the type id {id}, expected 0 to 127"))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let fields = UnionFields::try_new(ids, children).map_err(|e| Error::bad_data(format!("a union: {e}")))?;
    Ok(DataType::Union(fields, mode))
}

fn unknown(what: &str, number: i16) -> Error {
    Error::bad_data(format!("{what} is number {number}, which Arrow does not define"))
}

fn name(kind: Type) -> String {
    kind.variant_name()
        .map_or_else(|| format!("type {}", kind.0), |name| name.trim_end_matches('_').to_lowercase())
}
