//! Converts types to and from the format strings of the C data interface.

use std::borrow::Cow;

use arrow_schema::DataType::*;
use arrow_schema::{DataType, FieldRef, Fields, TimeUnit, UnionFields, UnionMode};
use crossdock_plugin_api::{Error, Result};

use super::table::{plain_format, plain_type};

const TIMESTAMPS: [(TimeUnit, &str); 4] = [
    (TimeUnit::Second, "tss:"),
    (TimeUnit::Millisecond, "tsm:"),
    (TimeUnit::Microsecond, "tsu:"),
    (TimeUnit::Nanosecond, "tsn:"),
];

/// Returns the format string of a type, without the format strings of its children. For a
/// dictionary, this is the format string of the keys.
///
/// # Errors
///
/// Returns an error if Arrow does not define a format string for the type.
pub fn format_of(data_type: &DataType) -> Result<Cow<'static, str>> {
    if let Some(format) = plain_format(data_type) {
        return Ok(format.into());
    }
    Ok(match data_type {
        Timestamp(unit, zone) => {
            let prefix = TIMESTAMPS.iter().find(|(u, _)| u == unit).map_or("", |(_, prefix)| prefix);
            zone.as_ref().map_or(prefix.into(), |zone| format!("{prefix}{zone}").into())
        }
        FixedSizeBinary(n) => format!("w:{n}").into(),
        Decimal32(precision, scale) => format!("d:{precision},{scale},32").into(),
        Decimal64(precision, scale) => format!("d:{precision},{scale},64").into(),
        Decimal128(precision, scale) => format!("d:{precision},{scale}").into(),
        Decimal256(precision, scale) => format!("d:{precision},{scale},256").into(),
        List(_) => "+l".into(),
        LargeList(_) => "+L".into(),
        ListView(_) => "+vl".into(),
        LargeListView(_) => "+vL".into(),
        FixedSizeList(_, n) => format!("+w:{n}").into(),
        Struct(_) => "+s".into(),
        Map(..) => "+m".into(),
        RunEndEncoded(..) => "+r".into(),
        Union(fields, mode) => {
            let ids: Vec<String> = fields.iter().map(|(id, _)| id.to_string()).collect();
            let prefix = if *mode == UnionMode::Sparse { "+us:" } else { "+ud:" };
            format!("{prefix}{}", ids.join(",")).into()
        }
        Dictionary(keys, _) => match plain_format(keys) {
            Some(format) if keys.is_integer() => format.into(),
            _ => {
                return Err(Error::invalid_argument(format!(
                    "a dictionary's keys are of type {keys}, expected an integer type"
                )));
            }
        },
        other => {
            return Err(Error::unsupported(format!(
                "type {} has no format string in Arrow's C interface",
                crate::type_name(other)
            )));
        }
    })
}

/// Returns the type that a format string and the fields of the children describe. `sorted` states
/// whether the keys of a map are sorted. For a dictionary, the result is the type of its keys.
///
/// # Errors
///
/// Returns an error if the format string is malformed, or if the children do not match it.
pub fn parse_format(format: &str, children: Vec<FieldRef>, sorted: bool) -> Result<DataType> {
    let (prefix, argument) = match format.split_once(':') {
        Some((prefix, argument)) => (prefix, Some(argument)),
        None => (format, None),
    };
    if let Some(data_type) = scalar(format, prefix, argument)? {
        return if children.is_empty() {
            Ok(data_type)
        } else {
            Err(Error::bad_data(format!(
                "a schema of format '{}' has {} children, expected 0",
                shown(format),
                children.len()
            )))
        };
    }
    Ok(match (prefix, argument) {
        ("+l", None) => List(only(format, children)?),
        ("+L", None) => LargeList(only(format, children)?),
        ("+vl", None) => ListView(only(format, children)?),
        ("+vL", None) => LargeListView(only(format, children)?),
        ("+w", Some(n)) => {
            let n = number(format, n)?;
            FixedSizeList(only(format, children)?, n)
        }
        ("+s", None) => Struct(Fields::from(children)),
        ("+m", None) => map(only(format, children)?, sorted)?,
        ("+r", None) => runs(children)?,
        ("+us", Some(ids)) => Union(union_fields(format, ids, children)?, UnionMode::Sparse),
        ("+ud", Some(ids)) => Union(union_fields(format, ids, children)?, UnionMode::Dense),
        _ => {
            return Err(Error::bad_data(format!(
                "'{}' is not a format string of Arrow's C data interface",
                shown(format)
            )));
        }
    })
}

/// Parses the format string of a type without children; `None` for other format strings.
fn scalar(format: &str, prefix: &str, argument: Option<&str>) -> Result<Option<DataType>> {
    Ok(Some(match (prefix, argument) {
        ("w", Some(n)) => FixedSizeBinary(number(format, n)?),
        ("d", Some(text)) => decimal(format, text)?,
        (_, Some(zone)) if prefix.starts_with("ts") => {
            let Some((unit, _)) = TIMESTAMPS.iter().find(|(_, p)| p.trim_end_matches(':') == prefix) else {
                return Ok(None);
            };
            Timestamp(*unit, (!zone.is_empty()).then(|| zone.into()))
        }
        _ => return Ok(plain_type(format)),
    }))
}

/// Returns the first characters of a text, for use in a message. Unprintable characters are
/// escaped.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(120).flat_map(char::escape_default).collect()
}

fn only(format: &str, children: Vec<FieldRef>) -> Result<FieldRef> {
    let n = children.len();
    <[FieldRef; 1]>::try_from(children)
        .map(|[child]| child)
        .map_err(|_| Error::bad_data(format!("a schema of format '{format}' has {n} children, expected 1")))
}

fn number(format: &str, text: &str) -> Result<i32> {
    text.parse().ok().filter(|n| *n >= 0).ok_or_else(|| {
        Error::bad_data(format!(
            "format string '{}': expected a number from 0 to {}",
            shown(format),
            i32::MAX
        ))
    })
}

fn decimal(format: &str, text: &str) -> Result<DataType> {
    let wrong = || {
        Error::bad_data(format!(
            "format string '{}': expected d:PRECISION,SCALE or d:PRECISION,SCALE,BITS with BITS 32, 64, 128 or 256 and a \
             PRECISION that fits into BITS",
            shown(format)
        ))
    };
    let mut parts = text.split(',');
    let precision: u8 = parts.next().and_then(|p| p.parse().ok()).ok_or_else(wrong)?;
    let scale: i8 = parts.next().and_then(|s| s.parse().ok()).ok_or_else(wrong)?;
    let bits = parts.next().unwrap_or("128");
    let (max_precision, data_type) = match bits {
        "32" => (9, Decimal32(precision, scale)),
        "64" => (18, Decimal64(precision, scale)),
        "128" => (38, Decimal128(precision, scale)),
        "256" => (76, Decimal256(precision, scale)),
        _ => return Err(wrong()),
    };
    let fits = (1..=max_precision).contains(&precision) && parts.next().is_none();
    if fits { Ok(data_type) } else { Err(wrong()) }
}

fn map(entries: FieldRef, sorted: bool) -> Result<DataType> {
    match entries.data_type() {
        Struct(fields) if fields.len() == 2 => Ok(Map(entries, sorted)),
        other => Err(Error::bad_data(format!(
            "a map's child is of type {}, expected a struct of 2 fields, key and value",
            crate::type_name(other)
        ))),
    }
}

fn runs(children: Vec<FieldRef>) -> Result<DataType> {
    let n = children.len();
    let [ends, values] = <[FieldRef; 2]>::try_from(children).map_err(|_| {
        Error::bad_data(format!("a run-end encoded schema has {n} children, expected 2: run ends and values"))
    })?;
    match ends.data_type() {
        Int16 | Int32 | Int64 => Ok(RunEndEncoded(ends, values)),
        other => Err(Error::bad_data(format!(
            "run ends are of type {}, expected a signed integer of 16, 32 or 64 bits",
            crate::type_name(other)
        ))),
    }
}

fn union_fields(format: &str, ids: &str, children: Vec<FieldRef>) -> Result<UnionFields> {
    let wrong = |why: String| Error::bad_data(format!("format string '{}': {why}", shown(format)));
    // Type ids are distinct and from 0 to 127, so a longer list is malformed and is not read to its
    // end.
    let ids: Vec<i8> = ids
        .split(',')
        .filter(|id| !(id.is_empty() && children.is_empty()))
        .take(129)
        .map(|id| {
            id.parse().map_err(|_| wrong(format!("'{}' is not a type id, expected 0 to 127", shown(id))))
        })
        .collect::<Result<_>>()?;
    if ids.len() != children.len() {
        return Err(wrong(format!("there are {} type ids for {} children", ids.len(), children.len())));
    }
    UnionFields::try_new(ids, children).map_err(|e| wrong(e.to_string()))
}
