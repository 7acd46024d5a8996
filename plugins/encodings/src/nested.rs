//! Arrays of any type on the host, by the rows of others: what Arrow's own kernels do well, and nobody does often.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt64Array, make_array};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::{DataType, Field};
use crossdock_arrays::{DeviceArray, export_array, import_array};
use crossdock_plugin_api::{Error, Owned, Result, abi};

use crate::job::Job;

/// The values of `array` at `rows`, in that order; null where the row is.
pub fn take(job: &Job<'_>, array: &DeviceArray, rows: UInt64Array) -> Result<DeviceArray> {
    if array.is_empty() && rows.null_count() == rows.len() {
        return nulls(job, array.data_type(), rows.len());
    }
    if let Some(row) = rows.iter().flatten().find(|row| *row >= array.len() as u64) {
        return Err(job.node.wrong(format_args!("row {row} is wanted of {} values", array.len())));
    }
    let from = to_arrow(job, array)?;
    // Arrow's kernels take memory that nobody was asked for: one long list may be named very often.
    let each = rows.iter().map(|row| row.map_or(0, |row| bytes_at(&from, row as usize, row as usize + 1)));
    let empty = least_bytes(array.data_type()).saturating_mul(rows.len());
    // What it grows is as much again for a moment.
    job.afford(each.fold(empty, usize::saturating_add).saturating_mul(2))?;
    let taken = arrow_select::take::take(&from, &rows, None).map_err(|error| job.node.wrong(error))?;
    from_arrow(job, taken, array.data_type())
}

/// The values of all arrays, one after another.
pub fn concatenate(job: &Job<'_>, arrays: &[DeviceArray]) -> Result<DeviceArray> {
    let Some(first) = arrays.first() else { return Err(job.node.wrong("there is nothing to put together")) };
    let parts = arrays.iter().map(|array| to_arrow(job, array)).collect::<Result<Vec<_>>>()?;
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    let whole = arrow_select::concat::concat(&parts).map_err(|error| job.node.wrong(error))?;
    from_arrow(job, whole, first.data_type())
}

/// So many nulls.
pub fn nulls(job: &Job<'_>, data_type: &DataType, len: usize) -> Result<DeviceArray> {
    job.afford(least_bytes(data_type).saturating_mul(len))?;
    from_arrow(job, arrow_array::new_null_array(data_type, len), data_type)
}

/// Bytes that a value of the type takes even if it is null.
fn least_bytes(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(_) | DataType::Map(..) => size_of::<i32>() + 1,
        DataType::FixedSizeList(element, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            least_bytes(element.data_type()).saturating_mul(size).saturating_add(1)
        }
        DataType::Struct(fields) => {
            fields.iter().map(|field| least_bytes(field.data_type())).fold(1, usize::saturating_add)
        }
        DataType::Utf8View | DataType::BinaryView => 16 + 1,
        other => other.primitive_width().unwrap_or(0) + 1,
    }
}

/// Bytes of the lists' elements in values `from..to`.
fn bytes_at(array: &dyn Array, from: usize, to: usize) -> usize {
    let of_elements = |values: &dyn Array, ends: &[i32]| match (ends.get(from), ends.get(to)) {
        (Some(from), Some(to)) => {
            let (from, to) = (*from as usize, *to as usize);
            bytes_at(values, from, to)
                .saturating_add((to - from).saturating_mul(least_bytes(values.data_type())))
        }
        _ => 0,
    };
    match array.data_type() {
        DataType::List(_) => {
            of_elements(array.as_list::<i32>().values(), array.as_list::<i32>().value_offsets())
        }
        DataType::Map(..) => of_elements(array.as_map().entries(), array.as_map().value_offsets()),
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            bytes_at(array.as_fixed_size_list().values(), from * size, to * size)
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.map(|column| bytes_at(column, from, to)).fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

fn to_arrow(job: &Job<'_>, array: &DeviceArray) -> Result<ArrayRef> {
    let raw = export_array(array, job.stream)?.into_raw();
    // SAFETY: Arrow's own struct under two names, handed over whole.
    let raw = unsafe { std::mem::transmute::<abi::ArrowArray, FFI_ArrowArray>(raw) };
    // SAFETY: an array of this type that was exported just now; its contents are looked at next, before anybody follows them.
    let data = unsafe { arrow_array::ffi::from_ffi_and_data_type(raw, array.data_type().clone()) };
    let data = data.map_err(|error| job.node.wrong(error))?;
    data.validate_full().map_err(|error| job.node.wrong(error))?;
    Ok(make_array(data))
}

fn from_arrow(job: &Job<'_>, array: ArrayRef, data_type: &DataType) -> Result<DeviceArray> {
    let raw = FFI_ArrowArray::new(&array.to_data());
    // SAFETY: Arrow's own struct under two names, handed over whole.
    let raw = unsafe { Owned::new(std::mem::transmute::<FFI_ArrowArray, abi::ArrowArray>(raw)) };
    import_array(raw, &Field::new("", data_type.clone(), true), job.memory)
}

/// Room for so many numbers of rows, where there is memory for them.
pub fn room(job: &Job<'_>, len: usize) -> Result<Vec<u64>> {
    let bytes = len.saturating_mul(size_of::<u64>());
    job.afford(bytes)?;
    let mut rows = Vec::new();
    rows.try_reserve_exact(len).map_err(|_| {
        Error::out_of_memory(format!("{}: {bytes} bytes for {len} rows", job.node.raw.path()))
    })?;
    Ok(rows)
}

/// As many numbers of rows as there is memory for, all the same at first.
pub fn same_rows(job: &Job<'_>, row: u64, len: usize) -> Result<Vec<u64>> {
    let mut rows = room(job, len)?;
    rows.resize(len, row);
    Ok(rows)
}

/// Row numbers, null where `valid` says so.
pub fn rows(numbers: Vec<u64>, valid: Option<Vec<bool>>) -> UInt64Array {
    match valid {
        Some(valid) => numbers.into_iter().zip(valid).map(|(row, valid)| valid.then_some(row)).collect(),
        None => UInt64Array::from(numbers),
    }
}
