//! Builds tables from slices.

use arrow_schema::{DataType, Field, SchemaRef};
use crossdock_arrays::layout::layout;
use crossdock_arrays::{BufferKind, DeviceArray, DeviceBatch};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Error as ApiError, Result as ApiResult};

use super::{ColumnSlice, Table, Validity, Values, in_table};
use crate::error::{Error, Result};
use crate::session::Session;

impl Table {
    /// Builds a table of one batch from one slice for each column of `schema`. The bytes are copied
    /// once, to the session's device.
    ///
    /// Columns of fixed width accept a slice of the Rust type, or raw little-endian bytes; temporal
    /// and decimal columns accept the signed integer of their width. Utf8 and binary columns accept
    /// slices of strings, or offsets and data; boolean columns accept a slice of `bool`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the number of columns, or the length, width or type of a slice, differs
    /// from the schema, or if a column that is not nullable has a null. The error names the column,
    /// and what was expected and given.
    pub fn from_columns(session: &Session, schema: SchemaRef, columns: &[ColumnSlice<'_>]) -> Result<Self> {
        if columns.len() != schema.fields().len() {
            return Err(Error::usage(format!(
                "expected {} columns, one for each field of the schema, got {}",
                schema.fields().len(),
                columns.len()
            )));
        }
        let mut rows = None;
        let mut arrays = Vec::with_capacity(columns.len());
        for (field, column) in schema.fields().iter().zip(columns) {
            let in_column = |what: String| Error::usage(format!("column '{}': {what}", field.name()));
            let len = length(field, column).map_err(in_column)?;
            match rows {
                None => rows = Some(len),
                Some(rows) if rows != len => {
                    return Err(in_column(format!(
                        "expected {rows} values, as many as the columns before it, got {len}"
                    )));
                }
                Some(_) => {}
            }
            check_validity(field, column, len).map_err(in_column)?;
            let array = upload(session, field, column, len);
            arrays.push(array.map_err(|e| Error::data(format!("column '{}'", field.name()), e))?);
        }
        let batch = DeviceBatch::try_new(schema.clone(), rows.unwrap_or(0), arrays).map_err(in_table)?;
        Ok(Self { session: session.clone(), schema, batches: vec![batch] })
    }
}

/// Returns the number of values in the slice, or the reason why the slice does not fit the field's
/// type.
fn length(field: &Field, column: &ColumnSlice<'_>) -> Result<usize, String> {
    let data_type = field.data_type();
    let misfit = |got: &str| Err(format!("expected {}, got {got}", expected_slice(data_type)));
    match column.values {
        Values::Bools(values) if *data_type == DataType::Boolean => Ok(values.len()),
        Values::Bools(_) => misfit("booleans"),
        Values::Texts(values) if *data_type == DataType::Utf8 => Ok(values.len()),
        Values::Texts(_) => misfit("strings"),
        Values::Binary(values) if *data_type == DataType::Binary => Ok(values.len()),
        Values::Binary(_) => misfit("byte strings"),
        Values::Offsets { offsets, data } => match data_type {
            DataType::Utf8 | DataType::Binary => check_offsets(offsets, data, *data_type == DataType::Utf8),
            _ => misfit("offsets and data"),
        },
        Values::Raw(bytes) => {
            let Some(width) = fixed_width(data_type) else { return misfit("raw bytes") };
            if bytes.len() % width != 0 {
                let got = bytes.len();
                return Err(format!(
                    "expected a multiple of {width} bytes, the width of {data_type}, got {got} bytes"
                ));
            }
            Ok(bytes.len() / width)
        }
        Values::Native { bytes, width_bytes, data_type: native } => {
            // Integers and floats must have exactly the field's type. Dates, times and decimals are
            // accepted as signed integers of the same width.
            let is_number = data_type.is_integer() || data_type.is_floating();
            let is_stored = !is_number && !matches!(data_type, DataType::FixedSizeBinary(_));
            let signed = native.is_signed_integer() || matches!(native, DataType::Decimal128(..));
            if data_type != native && !(is_stored && signed && fixed_width(data_type) == Some(width_bytes)) {
                return misfit(&format!("values of {native}, {width_bytes} bytes each"));
            }
            Ok(bytes.len() / width_bytes)
        }
    }
}

/// Describes the slices that a column of this type accepts.
fn expected_slice(data_type: &DataType) -> String {
    match (data_type, fixed_width(data_type)) {
        (DataType::Boolean, _) => "booleans".into(),
        (DataType::Utf8, _) => "strings, or offsets and data".into(),
        (DataType::Binary, _) => "byte strings, or offsets and data".into(),
        (other, Some(width)) => format!("values of {other}, {width} bytes each"),
        (other, None) => {
            format!(
                "a type of fixed width, boolean, utf8 or binary, which slices support; the column's type is {other}"
            )
        }
    }
}

/// The number of bytes of one value, for types with a single buffer of values.
fn fixed_width(data_type: &DataType) -> Option<usize> {
    let row = layout(data_type);
    match row.buffers() {
        [BufferKind::Fixed { bytes }]
            if *bytes > 0 && row.children.is_empty() && row.dictionary.is_none() =>
        {
            Some(*bytes)
        }
        _ => None,
    }
}

fn check_offsets(offsets: &[i32], data: &[u8], is_text: bool) -> Result<usize, String> {
    let Some(rows) = offsets.len().checked_sub(1) else {
        return Err("expected one more offset than values, got no offsets".into());
    };
    let mut start = 0;
    for (i, end) in offsets.iter().enumerate() {
        let end = usize::try_from(*end)
            .ok()
            .filter(|end| *end >= start && *end <= data.len())
            .ok_or_else(|| format!("offset {i} is {end}, expected {start} to {}", data.len()))?;
        let value = data.get(start..end).filter(|_| i > 0).unwrap_or_default();
        if is_text && std::str::from_utf8(value).is_err() {
            return Err(format!("value {} is not UTF-8", i - 1));
        }
        start = end;
    }
    Ok(rows)
}

fn check_validity(field: &Field, column: &ColumnSlice<'_>, len: usize) -> Result<(), String> {
    let Some(validity) = column.validity else { return Ok(()) };
    match validity {
        Validity::Bools(bools) if bools.len() != len => {
            return Err(format!("expected validity for {len} values, got validity for {}", bools.len()));
        }
        Validity::Bits(bits) if bits.len() < len.div_ceil(8) => {
            return Err(format!(
                "expected {} bytes of validity bits for {len} values, got {}",
                len.div_ceil(8),
                bits.len()
            ));
        }
        _ => {}
    }
    if *field.data_type() == DataType::Null {
        return Err("expected no validity for the type Null".into());
    }
    match (0..len).find(|i| !is_valid(validity, *i)) {
        Some(i) if !field.is_nullable() => Err(format!("value {i} is null, but the field is not nullable")),
        _ => Ok(()),
    }
}

fn is_valid(validity: Validity<'_>, i: usize) -> bool {
    match validity {
        Validity::Bools(bools) => bools.get(i).copied().unwrap_or(false),
        Validity::Bits(bits) => bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1),
    }
}

fn upload(session: &Session, field: &Field, column: &ColumnSlice<'_>, len: usize) -> ApiResult<DeviceArray> {
    let copy = |bytes: &[u8]| put(session, bytes.len(), |to| to.copy_from_slice(bytes));
    let buffers = match column.values {
        Values::Native { bytes, .. } | Values::Raw(bytes) => vec![copy(bytes)?],
        Values::Bools(values) => {
            vec![put(session, len.div_ceil(8), |to| set_bits(to, |i| values.get(i) == Some(&true)))?]
        }
        Values::Texts(values) => pieces(session, values.iter().map(|text| text.as_bytes()))?,
        Values::Binary(values) => pieces(session, values.iter().copied())?,
        Values::Offsets { offsets, data } => {
            let write = |to: &mut [u8]| write_offsets(to, offsets.iter().copied());
            vec![put(session, offsets.len() * 4, write)?, copy(data)?]
        }
    };
    let nulls = column.validity.map_or(0, |validity| (0..len).filter(|i| !is_valid(validity, *i)).count());
    let validity = match column.validity {
        Some(validity) if nulls > 0 => {
            Some(put(session, len.div_ceil(8), |to| set_bits(to, |i| i < len && is_valid(validity, i)))?)
        }
        _ => None,
    };
    let buffers = std::iter::once(validity).chain(buffers.into_iter().map(Some)).collect();
    DeviceArray::try_new(field.data_type().clone(), len, 0, Some(nulls), buffers, Vec::new(), None)
}

/// Concatenates values. Returns the buffer of offsets and the buffer of data.
fn pieces<'a>(session: &Session, values: impl Iterator<Item = &'a [u8]> + Clone) -> ApiResult<Vec<Buffer>> {
    let mut total = 0usize;
    let mut offsets = vec![0i32];
    for value in values.clone() {
        total = total.saturating_add(value.len());
        offsets.push(i32::try_from(total).map_err(|_| {
            ApiError::unsupported(format!(
                "expected at most {} bytes of strings in one batch, got more: split the column into several batches",
                i32::MAX
            ))
        })?);
    }
    let offsets = put(session, offsets.len() * 4, |to| write_offsets(to, offsets.iter().copied()))?;
    let data = put(session, total, |to| {
        let mut rest = to;
        for value in values {
            let (slot, after) = rest.split_at_mut(value.len());
            slot.copy_from_slice(value);
            rest = after;
        }
    })?;
    Ok(vec![offsets, data])
}

fn write_offsets(to: &mut [u8], offsets: impl Iterator<Item = i32>) {
    to.chunks_exact_mut(4)
        .zip(offsets)
        .for_each(|(slot, offset)| slot.copy_from_slice(&offset.to_le_bytes()));
}

fn set_bits(to: &mut [u8], bit: impl Fn(usize) -> bool) {
    for (i, byte) in to.iter_mut().enumerate() {
        *byte = (0..8).fold(0, |byte, b| byte | u8::from(bit(i * 8 + b)) << b);
    }
}

/// Creates a buffer on the session's device. `write` must write all bytes of the buffer.
fn put(session: &Session, bytes: usize, write: impl FnOnce(&mut [u8])) -> ApiResult<Buffer> {
    let buffer = session.memory().alloc_with(session.stream(), bytes, |to| {
        write(to);
        Ok(())
    })?;
    buffer.freeze(session.stream())
}
