//! Takes rows of arrays that refer to other arrays: dictionaries, run-end encoded arrays, unions
//! and list views. The results refer to the same values.

use arrow_schema::{DataType, UnionMode};
use crossdock_kernels::{Checks, Words};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::nested::{Rows, take_rows};
use super::{expand_runs, from_plain, plain_type, to_plain};
use crate::DeviceArray;
use crate::decode_dictionary::keys_of;

/// Takes the rows of an array of any type at `indices`: `len` integers of `width` (4 or 8) bytes,
/// each less than the length of the array.
pub(crate) fn take_in_range(
    stream: &Stream,
    array: &DeviceArray,
    indices: &Buffer,
    len: usize,
    width: usize,
) -> Result<DeviceArray> {
    let rows = Rows { buffer: indices, len, width, valid: None, are_in_range: true };
    let mut array = array.clone();
    array.resolve_sizes(stream)?;
    take_any(stream, &array, rows)
}

/// Takes rows of an array whose buffer sizes are known. All indices are in range.
fn take_any(stream: &Stream, array: &DeviceArray, rows: Rows<'_>) -> Result<DeviceArray> {
    let data_type = array.data_type();
    if plain_type(data_type) == *data_type {
        return take_rows(stream, array, rows);
    }
    from_plain(&take_rows(stream, &to_plain(array, stream)?, rows)?, data_type, stream)
}

/// Takes rows of an array that has neither slots nor a type of the module `nested`.
pub(super) fn take_other(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<DeviceArray> {
    if !rows.are_in_range {
        return Err(Error::internal(format!(
            "rows of type {} may be out of range",
            crate::type_name(values.data_type())
        )));
    }
    match values.data_type() {
        DataType::Dictionary(keys, _) => {
            let codes = take_rows(stream, &keys_of(values, keys)?, rows)?;
            with_parts(values, &codes, Vec::new())
        }
        DataType::ListView(_) | DataType::LargeListView(_) => take_views(stream, values, rows),
        DataType::Union(_, mode) => take_union(stream, values, rows, *mode),
        DataType::RunEndEncoded(..) => take_runs(stream, values, rows),
        data_type if plain_type(data_type) != *data_type => take_any(stream, values, rows),
        other => {
            Err(Error::unsupported(format!("cannot take rows of values of type {}", crate::type_name(other))))
        }
    }
}

/// The length, buffers and null count of `taken` with the type and the dictionary of `values`.
fn with_parts(values: &DeviceArray, taken: &DeviceArray, children: Vec<DeviceArray>) -> Result<DeviceArray> {
    let (of, dictionary) = (values.data_type().clone(), values.dictionary().cloned());
    let (len, offset, nulls) = (taken.len(), taken.offset(), taken.null_count());
    DeviceArray::try_new(of, len, offset, nulls, taken.buffers().to_vec(), children, dictionary)
}

/// An array of integers from a buffer that `values` has for each of its rows.
fn integers(
    values: &DeviceArray,
    of: DataType,
    buffer: usize,
    validity: Option<Buffer>,
) -> Result<DeviceArray> {
    let nulls = if validity.is_none() { Some(0) } else { values.null_count() };
    let buffers = vec![validity, values.buffers().get(buffer).cloned().flatten()];
    DeviceArray::try_new(of, values.len(), values.offset(), nulls, buffers, Vec::new(), None)
}

/// The first buffer of values of an array of integers.
fn values_of(array: &DeviceArray) -> Result<Option<Buffer>> {
    let width = array.data_type().primitive_width().unwrap_or(0);
    let buffer = array.buffers().get(1).and_then(Option::as_ref);
    buffer.map(|buffer| buffer.slice(array.offset() * width, array.len() * width)).transpose()
}

fn take_views(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<DeviceArray> {
    let of =
        if matches!(values.data_type(), DataType::ListView(_)) { DataType::Int32 } else { DataType::Int64 };
    let validity = values.validity().cloned();
    let offsets = take_rows(stream, &integers(values, of.clone(), 1, validity)?, rows)?;
    let sizes = values_of(&take_rows(stream, &integers(values, of, 2, None)?, rows)?)?;
    let (data_type, len, nulls) = (values.data_type().clone(), offsets.len(), offsets.null_count());
    let buffers = offsets.buffers().iter().cloned().chain([sizes]).collect();
    DeviceArray::try_new(data_type, len, offsets.offset(), nulls, buffers, values.children().to_vec(), None)
}

fn take_union(stream: &Stream, values: &DeviceArray, rows: Rows<'_>, mode: UnionMode) -> Result<DeviceArray> {
    let ids = values_of(&take_rows(stream, &integers(values, DataType::Int8, 0, None)?, rows)?)?;
    let (mut buffers, children) = (vec![ids], values.children());
    let children = match mode {
        UnionMode::Dense => {
            buffers.push(values_of(&take_rows(stream, &integers(values, DataType::Int32, 1, None)?, rows)?)?);
            children.to_vec()
        }
        UnionMode::Sparse => {
            let child =
                |child: &DeviceArray| take_any(stream, &child.slice(values.offset(), values.len())?, rows);
            children.iter().map(child).collect::<Result<_>>()?
        }
    };
    DeviceArray::try_new(values.data_type().clone(), rows.len, 0, Some(0), buffers, children, None)
}

/// Gives each taken row a run of its own.
fn take_runs(stream: &Stream, values: &DeviceArray, rows: Rows<'_>) -> Result<DeviceArray> {
    let [ends, runs] = values.children() else {
        return Err(Error::internal("a run-end encoded array without run ends"));
    };
    // The run of each row of the array, then the runs of the taken rows.
    let run_numbers = numbered(stream, DataType::UInt32, 0, runs.len())?;
    let run_of_row = expand_runs(stream, &run_numbers, ends, values.offset() as u64, values.len())?;
    let run_of_row =
        run_of_row.map_err(|at| Error::bad_data(format!("the run end at index {at} is invalid")))?;
    let taken = values_of(&take_rows(stream, &run_of_row, rows)?)?;
    let taken = taken.ok_or_else(|| Error::internal("taken rows without runs"))?;
    let of_runs = Rows { buffer: &taken, width: 4, ..rows };
    let runs = take_any(stream, runs, of_runs)?;
    let ends = numbered(stream, ends.data_type().clone(), 1, rows.len)?;
    DeviceArray::try_new(values.data_type().clone(), rows.len, 0, Some(0), Vec::new(), vec![ends, runs], None)
}

/// The integers `first`, `first + 1`, ...
fn numbered(stream: &Stream, of: DataType, first: u64, len: usize) -> Result<DeviceArray> {
    let width_bytes = of.primitive_width().unwrap_or(8);
    let mut to = stream.memory().alloc(stream, len.saturating_mul(width_bytes))?;
    let mut checks = Checks::new();
    checks.sequence(first, 1, &mut to, Words { at: 0, len, width_bytes }, &[])?;
    checks.run(stream)?;
    let buffers = vec![None, Some(to.freeze(stream)?)];
    DeviceArray::try_new(of, len, 0, Some(0), buffers, Vec::new(), None)
}
