//! Formats one value.

use arrow_schema::DataType;

use super::{number, time};
use crate::host::{HostArray, Value, integer};

/// Maximum number of elements of a list that are shown.
const MAX_ELEMENTS: usize = 16;
/// Maximum number of bytes of a binary value that are shown.
const MAX_BYTES: usize = 32;

/// Formats value `row` of an array.
pub(crate) fn cell(array: &HostArray<'_>, row: usize) -> String {
    text(&array.value(row))
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Bytes(array, bytes) => scalar(array.data_type(), bytes),
        Value::List(child, range) => {
            let mut parts: Vec<String> =
                range.clone().take(MAX_ELEMENTS).map(|i| text(&child.value(i))).collect();
            if range.len() > MAX_ELEMENTS {
                parts.push(format!("... {} more", range.len() - MAX_ELEMENTS));
            }
            format!("[{}]", parts.join(", "))
        }
        Value::Struct(array, row) => {
            let named = array.child_names().zip(array.children());
            let parts: Vec<String> =
                named.map(|(name, child)| format!("{name}: {}", text(&child.value(*row)))).collect();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Union(child, _, row) => text(&child.value(*row)),
        Value::Malformed => "(malformed)".into(),
    }
}

/// Formats a value of a type without children.
pub(crate) fn scalar(data_type: &DataType, bytes: &[u8]) -> String {
    let to_integer = |signed| integer(bytes, 0, bytes.len(), signed).unwrap_or(0);
    match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => number::float(bytes),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => number::decimal(bytes, *scale),
        DataType::Date32 => time::date(to_integer(true)),
        DataType::Date64 => time::timestamp(to_integer(true), arrow_schema::TimeUnit::Millisecond, ""),
        DataType::Time32(unit) | DataType::Time64(unit) => time::time_of_day(to_integer(true), *unit),
        DataType::Timestamp(unit, zone) => {
            time::timestamp(to_integer(true), *unit, if zone.is_some() { "Z" } else { "" })
        }
        DataType::Duration(unit) => format!("{} {unit}", to_integer(true)),
        DataType::Interval(_) => time::interval(bytes),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        other if other.is_integer() => to_integer(other.is_signed_integer()).to_string(),
        _ => {
            let hex: String = bytes.iter().take(MAX_BYTES).map(|byte| format!("{byte:02x}")).collect();
            let more = if bytes.len() > MAX_BYTES { "..." } else { "" };
            format!("0x{hex}{more}")
        }
    }
}
