//! Casts that convert one value after another on the host: between texts and other values, and
//! between decimals and other numbers.

use arrow_schema::DataType;
use crossdock_memory::{Buffer, Device, Error, Result, Stream};

use super::texts::{self, is_utf8, moved, put};
use super::{CastMode, aligned, decimal_scale, is_decimal, numbers_of};
use crate::DeviceArray;
use crate::filter::{Decimal, Literal, parse_literal, value_bytes};
use crate::host::{HostArray, Value};
use crate::print::scalar;
use crate::take::bits_of_bytes;

/// Whether there is such a cast.
pub(super) fn exists(from: &DataType, to: &DataType) -> bool {
    let is_exact = |of: &DataType| of.is_integer() || is_decimal(of);
    match (is_utf8(from), is_utf8(to)) {
        (true, true) => false,
        (true, false) => has_text(to),
        (false, true) => has_text(from),
        (false, false) => {
            is_decimal(from) && is_exact(to) || is_decimal(to) && (is_exact(from) || from.is_floating())
        }
    }
}

/// Whether each value is a boolean, a number or a time.
fn has_text(of: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Duration, Time32, Time64, Timestamp};
    let is_time =
        matches!(of, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) | Boolean);
    is_time || of.is_integer() || of.is_floating() || is_decimal(of)
}

/// Converts an array on the host, and moves the result to the device of the array.
///
/// # Errors
/// Returns an error with the row of a value that `to` cannot represent, or of a text that is no
/// value of `to`.
pub(super) fn convert(
    array: &DeviceArray,
    to: &DataType,
    mode: CastMode,
    stream: &Stream,
) -> Result<DeviceArray> {
    let mut array = array.clone();
    array.resolve_sizes(stream)?;
    if array.is_empty() {
        return DeviceArray::empty(to);
    }
    let on_host = moved(&array, Device::CPU, stream)?;
    let host = &stream.memory().default_stream(Device::CPU)?;
    let values = HostArray::new(&on_host, stream)?;
    let converted = if is_utf8(to) {
        to_texts(&on_host, &values, to, host)?
    } else {
        let bytes = to_values(&values, to, mode)?;
        let mut buffer = put(&bytes, host)?;
        if *to == DataType::Boolean {
            buffer = bits_of_bytes(host, &buffer, array.len())?;
        }
        numbers_of(&on_host, to.clone(), Some(buffer), host)?
    };
    moved(&converted, array.device(), stream)
}

/// The values as texts that pyarrow also writes. Timestamps with a time zone are in UTC.
fn to_texts(
    array: &DeviceArray,
    values: &HostArray<'_>,
    to: &DataType,
    host: &Stream,
) -> Result<DeviceArray> {
    let (mut data, mut offsets) = (Vec::new(), 0u64.to_ne_bytes().to_vec());
    for row in 0..values.len() {
        match values.value(row) {
            Value::Null => {}
            Value::Bool(truth) => data.extend(truth.to_string().bytes()),
            Value::Bytes(of, bytes) => data.extend(text(of.data_type(), bytes).bytes()),
            _ => return Err(malformed(row)),
        }
        offsets.extend((data.len() as u64).to_ne_bytes());
    }
    let bits: Option<Buffer> = aligned(host, array.validity_bits(), array.len())?;
    let nulls = if bits.is_none() { Some(0) } else { array.null_count() };
    let buffers = vec![bits, Some(put(&offsets, host)?), Some(put(&data, host)?)];
    let wide = DeviceArray::try_new(DataType::LargeUtf8, array.len(), 0, nulls, buffers, Vec::new(), None)?;
    if *to == DataType::LargeUtf8 { Ok(wide) } else { texts::convert(&wide, to, host) }
}

fn text(of: &DataType, bytes: &[u8]) -> String {
    let shown = scalar(of, bytes);
    match of {
        DataType::Float16 => {
            let value = f64::from(shown.parse::<f32>().unwrap_or(f32::NAN));
            float(&format!("{value:e}"), value.to_string())
        }
        DataType::Float32 => {
            let value: f32 = shown.parse().unwrap_or(f32::NAN);
            float(&format!("{value:e}"), shown)
        }
        DataType::Float64 => {
            let value: f64 = shown.parse().unwrap_or(f64::NAN);
            float(&format!("{value:e}"), shown)
        }
        DataType::Date64 => shown.split('T').next().unwrap_or_default().to_owned(),
        DataType::Timestamp(..) => shown.replacen('T', " ", 1),
        DataType::Duration(_) => shown.split(' ').next().unwrap_or_default().to_owned(),
        _ => shown,
    }
}

/// Chooses between the two forms of a float as pyarrow does.
fn float(scientific: &str, plain: String) -> String {
    let parts =
        scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse().ok()?)));
    match parts {
        None => plain.to_lowercase(),
        Some((_, -6..=9)) => plain,
        Some((digits, exponent)) => format!("{digits}e{exponent:+}"),
    }
}

/// The bytes of the values of a type of fixed width; a boolean has one byte.
fn to_values(values: &HostArray<'_>, to: &DataType, mode: CastMode) -> Result<Vec<u8>> {
    let width = to.primitive_width().unwrap_or(1);
    let mut bytes = Vec::with_capacity(values.len().saturating_mul(width));
    for row in 0..values.len() {
        let value = match values.value(row) {
            Value::Null => vec![0; width],
            Value::Bytes(of, value) => {
                let converted = literal(of.data_type(), value, to, mode)
                    .and_then(|literal| value_bytes(to, &literal))
                    .map_err(|error| error.with_row(row as u64))?;
                if converted.len() != width {
                    return Err(Error::internal(format!("{} bytes, expected {width}", converted.len())));
                }
                converted
            }
            _ => return Err(malformed(row)),
        };
        bytes.extend(value);
    }
    Ok(bytes)
}

fn literal(of: &DataType, bytes: &[u8], to: &DataType, mode: CastMode) -> Result<Literal> {
    if is_utf8(of) {
        let text = std::str::from_utf8(bytes).map_err(|_| Error::bad_data("the bytes are not UTF-8"))?;
        return match (to, text.to_ascii_lowercase().as_str()) {
            (DataType::Boolean, "true" | "1") => Ok(Literal::Bool(true)),
            (DataType::Boolean, "false" | "0") => Ok(Literal::Bool(false)),
            _ => parse_literal(text, to),
        };
    }
    let scale = decimal_scale(to).unwrap_or(0);
    let mut shown = scalar(of, bytes);
    if of.is_floating() {
        let value: f64 = shown.parse().unwrap_or(f64::NAN);
        shown = format!("{value:.places$}", places = usize::try_from(scale).unwrap_or(0));
    }
    let number = Decimal::parse(&shown).ok_or_else(|| {
        Error::invalid_argument(format!("{shown} cannot be a value of type {}", crate::type_name(to)))
    })?;
    Ok(Literal::Decimal(match mode {
        CastMode::Safe => number,
        CastMode::Unsafe => number.truncated(scale.into()),
    }))
}

fn malformed(row: usize) -> Error {
    Error::bad_data(format!("value {row} is malformed")).with_row(row as u64)
}
