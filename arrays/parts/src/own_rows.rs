//! Reduces slices in host memory to their own rows.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::layout::BufferKind;
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{Error, Result};

use crate::batch::{MAX_PADDING, child_rows, has_other_rows, used_and_total_bytes};

/// Bytes that a copy must save, so that it is worth its time.
const MIN_SAVED_BYTES: usize = 16 << 10;
/// Rows of a child that a copy must save.
const MIN_SAVED_ROWS: usize = 256;
/// The longest value that a view contains itself, in bytes.
const MAX_INLINE_BYTES: usize = 12;
/// Bytes per view.
const VIEW_BYTES: usize = 16;

/// Returns the batches without rows that belong to none of them. The buffers are in host memory,
/// and their sizes are known. Batches that together are no slice are returned unchanged, also if
/// each of them is a slice of the same buffers.
///
/// `DeviceBatch::compact` copies the ranges that a slice uses, on any device, but all values that
/// views, list-views, unions and runs may refer to. This function reads what they refer to.
///
/// # Errors
/// A view or an offset refers to no value; memory is exhausted.
pub fn own_rows(batches: Vec<DeviceBatch>, stream: &Stream) -> Result<Vec<DeviceBatch>> {
    let mut shared = Shared::default();
    batches.iter().flat_map(DeviceBatch::columns).for_each(|column| shared.add(column, column.len()));
    let use_all_rows = shared.0.values().all(|(used, total)| *total <= used + MAX_PADDING);
    batches.into_iter().map(|batch| own_rows_of(batch, use_all_rows, stream)).collect()
}

/// The bytes that arrays use of each buffer, and the length of the buffer, by its address. Of the
/// buffers of one array, the first one is counted.
#[derive(Default)]
struct Shared(HashMap<u64, (usize, usize)>);

impl Shared {
    /// Adds `rows` rows of an array.
    fn add(&mut self, array: &DeviceArray, rows: usize) {
        if let Some((used, total, buffer)) = used_and_total_bytes(array, rows) {
            let (all_used, max_total) = self.0.entry(buffer.address()).or_default();
            *all_used = all_used.saturating_add(used);
            *max_total = total.max(*max_total);
        }
        if let Some(rows) = child_rows(array) {
            array.children().iter().for_each(|child| self.add(child, rows));
        }
    }
}

fn own_rows_of(mut batch: DeviceBatch, use_all_rows: bool, stream: &Stream) -> Result<DeviceBatch> {
    let is_slice = !use_all_rows && batch.columns().iter().any(has_other_rows);
    if is_slice {
        batch = batch.compact(stream)?;
    }
    if !is_slice && !batch.columns().iter().any(|column| has_runs(column.data_type())) {
        return Ok(batch);
    }
    let (schema, metadata, len) = (batch.schema().clone(), batch.metadata().clone(), batch.len());
    let columns = batch.into_columns().into_iter().map(|column| own_values(column, stream));
    Ok(DeviceBatch::try_new(schema, len, columns.collect::<Result<_>>()?)?.with_metadata(metadata))
}

/// Whether slices of the type cannot be recognised by their lengths.
fn has_runs(data_type: &DataType) -> bool {
    match data_type {
        DataType::RunEndEncoded(..) => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_runs(field.data_type())),
        _ => false,
    }
}

/// The depth of the recursion is the depth of the type, which is limited.
fn own_values(array: DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let array = if has_other_rows(&array) && !matches!(array.data_type(), DataType::RunEndEncoded(..)) {
        compact(array, stream)?
    } else {
        array
    };
    let trimmed = match array.data_type() {
        DataType::Utf8View | DataType::BinaryView => own_data(&array, stream)?,
        DataType::ListView(_) | DataType::LargeListView(_) => own_elements(&array, stream)?,
        DataType::RunEndEncoded(..) => own_runs(&array, stream)?,
        DataType::Union(fields, arrow_schema::UnionMode::Dense) => {
            own_children(&array, &fields.iter().map(|(id, _)| id).collect::<Vec<_>>(), stream)?
        }
        _ => None,
    };
    let (buffers, children) = match trimmed {
        Some(trimmed) => trimmed,
        None if array.children().is_empty() => return Ok(array),
        None => (array.buffers().to_vec(), array.children().to_vec()),
    };
    let children = children.into_iter().map(|child| own_values(child, stream)).collect::<Result<_>>()?;
    let (of, dictionary) = (array.data_type().clone(), array.dictionary().cloned());
    DeviceArray::try_new(of, array.len(), array.offset(), array.null_count(), buffers, children, dictionary)
}

fn compact(array: DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let (len, field) = (array.len(), Field::new("", array.data_type().clone(), true));
    let batch = DeviceBatch::try_new(Arc::new(Schema::new(vec![field])), len, vec![array])?;
    let column = batch.compact(stream)?.into_columns().pop();
    column.ok_or_else(|| Error::internal("a batch without its column"))
}

/// New buffers and children of an array; `None` if they would save little.
type Trimmed = Option<(Vec<Option<Buffer>>, Vec<DeviceArray>)>;

/// A buffer of integers in host memory.
struct Integers<'a> {
    bytes: crossdock_memory::HostView<'a>,
    width: usize,
}

impl<'a> Integers<'a> {
    fn of(array: &'a DeviceArray, buffer: usize, stream: &Stream) -> Result<Option<Self>> {
        let Some(found) = array.buffers().get(buffer).and_then(Option::as_ref) else { return Ok(None) };
        let width = array.layout().kind(buffer).and_then(BufferKind::width).unwrap_or(1);
        Ok(Some(Self { bytes: found.host_view(stream)?, width }))
    }

    fn get(&self, i: usize) -> Result<i64> {
        let bytes = self.bytes.get(i * self.width..(i + 1) * self.width);
        let bytes = bytes.ok_or_else(|| Error::bad_data(format!("a buffer has no value {i}")))?;
        let mut wide = [if bytes.last().is_some_and(|last| *last > 127) { 0xff } else { 0 }; 8];
        wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(i64::from_le_bytes(wide))
    }

    fn position(&self, i: usize) -> Result<usize> {
        let n = self.get(i)?;
        usize::try_from(n).map_err(|_| Error::bad_data(format!("an offset is {n}, expected 0 or more")))
    }

    /// Returns a buffer with a new value for each row.
    fn map(
        &self,
        len: usize,
        stream: &Stream,
        mut value: impl FnMut(usize) -> Result<usize>,
    ) -> Result<Buffer> {
        let buffer = stream.memory().alloc_with(stream, len * self.width, |to| {
            for (i, to) in to.chunks_exact_mut(self.width).enumerate() {
                to.copy_from_slice(&(value(i)? as u64).to_le_bytes()[..self.width]);
            }
            Ok(())
        })?;
        Ok(buffer.freeze_now())
    }
}

/// The validity of the rows of an array without an offset.
struct Valid<'a>(Option<crossdock_memory::HostView<'a>>);

impl<'a> Valid<'a> {
    fn of(array: &'a DeviceArray, stream: &Stream) -> Result<Self> {
        let bits = array.buffers().first().and_then(Option::as_ref);
        let bits = bits.filter(|_| array.layout().has_validity && array.null_count() != Some(0));
        Ok(Self(bits.map(|bits| bits.host_view(stream)).transpose()?))
    }

    fn get(&self, i: usize) -> bool {
        let byte =
            |bits: &crossdock_memory::HostView<'a>| bits.get(i / 8).is_some_and(|b| b >> (i % 8) & 1 == 1);
        self.0.as_ref().is_none_or(byte)
    }
}

/// Extends a range to contain another range, which is not empty.
fn extend(range: &mut Range<usize>, other: Range<usize>) {
    *range =
        if range.start == range.end { other } else { range.start.min(other.start)..range.end.max(other.end) };
}

fn saves_rows(child: &DeviceArray, used: &Range<usize>) -> bool {
    child.len() > used.len().saturating_mul(2).saturating_add(MIN_SAVED_ROWS)
}

/// The bytes that the views of text or binary values refer to.
fn own_data(array: &DeviceArray, stream: &Stream) -> Result<Trimmed> {
    let [_, Some(views), data @ ..] = array.buffers() else { return Ok(None) };
    let (views, valid) = (views.host_view(stream)?, Valid::of(array, stream)?);
    let n = |view: &[u8], at: usize| {
        let bytes = view.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        usize::try_from(i32::from_le_bytes(bytes.unwrap_or_default()))
            .map_err(|_| Error::bad_data("a view has a negative length, buffer or offset"))
    };
    let rows = || views.chunks_exact(VIEW_BYTES).take(array.len()).enumerate();
    let mut used = 0usize;
    for (i, view) in rows().filter(|(i, _)| valid.get(*i)) {
        let bytes = n(view, 0).map_err(|error| error.context(format_args!("row {i}")))?;
        used = used.saturating_add(if bytes > MAX_INLINE_BYTES { bytes } else { 0 });
    }
    let total: usize = data.iter().flatten().filter_map(Buffer::len).sum();
    let limit = used.saturating_mul(2).saturating_add(MIN_SAVED_BYTES);
    if total <= limit || i32::try_from(used).is_err() {
        return Ok(None);
    }
    let data = data.iter().map(|data| data.as_ref().map(|data| data.host_view(stream)).transpose());
    let data = data.collect::<Result<Vec<_>>>()?;
    let mut own = stream.memory().alloc(stream, used)?;
    let to = own.host_slice_mut().ok_or_else(|| Error::internal("the host cannot write its own memory"))?;
    let mut end = 0;
    let new_views = stream.memory().alloc_with(stream, array.len() * VIEW_BYTES, |new_views| {
        for ((i, view), new) in rows().zip(new_views.chunks_exact_mut(VIEW_BYTES)) {
            if !valid.get(i) {
                new.fill(0);
                continue;
            }
            new.copy_from_slice(view);
            let bytes = n(view, 0)?;
            if bytes <= MAX_INLINE_BYTES {
                continue;
            }
            let (buffer, at) = (n(view, 8)?, n(view, 12)?);
            let value = data.get(buffer).and_then(Option::as_ref);
            let value = value.and_then(|data| data.get(at..at.checked_add(bytes)?));
            let value = value.ok_or_else(|| {
                Error::bad_data(format!("row {i}: bytes {at}..+{bytes} lie outside data buffer {buffer}"))
            })?;
            let to = to.get_mut(end..end + bytes);
            to.ok_or_else(|| Error::bad_data("the views have changed"))?.copy_from_slice(value);
            new[8..12].fill(0);
            new[12..].copy_from_slice(&(end as u32).to_le_bytes());
            end += bytes;
        }
        Ok(())
    })?;
    let validity = array.buffers().first().cloned().flatten();
    Ok(Some((vec![validity, Some(new_views.freeze_now()), Some(own.freeze_now())], Vec::new())))
}

/// The elements that list-views refer to.
fn own_elements(array: &DeviceArray, stream: &Stream) -> Result<Trimmed> {
    let (Some(offsets), Some(sizes)) = (Integers::of(array, 1, stream)?, Integers::of(array, 2, stream)?)
    else {
        return Ok(None);
    };
    let valid = Valid::of(array, stream)?;
    let size = |i: usize| if valid.get(i) { sizes.position(i) } else { Ok(0) };
    let mut used = 0..0;
    for i in 0..array.len() {
        let (at, size) = (offsets.position(i)?, size(i)?);
        if size > 0 {
            extend(&mut used, at..at.saturating_add(size));
        }
    }
    let Some(child) = array.children().first().filter(|child| saves_rows(child, &used)) else {
        return Ok(None);
    };
    let child = child.slice(used.start, used.len())?;
    let new_offsets = offsets.map(array.len(), stream, |i| {
        Ok(if size(i)? > 0 { offsets.position(i)?.saturating_sub(used.start) } else { 0 })
    })?;
    let new_sizes = sizes.map(array.len(), stream, size)?;
    let validity = array.buffers().first().cloned().flatten();
    Ok(Some((vec![validity, Some(new_offsets), Some(new_sizes)], vec![child])))
}

/// The values that a dense union refers to. `ids` are the type ids of the children.
fn own_children(array: &DeviceArray, ids: &[i8], stream: &Stream) -> Result<Trimmed> {
    let (Some(types), Some(offsets)) = (Integers::of(array, 0, stream)?, Integers::of(array, 1, stream)?)
    else {
        return Ok(None);
    };
    let child_of = |i: usize| {
        let id = types.get(i)?;
        let child = ids.iter().position(|known| i64::from(*known) == id);
        child.ok_or_else(|| Error::bad_data(format!("row {i} has the type id {id}, which the union lacks")))
    };
    let mut used = vec![0..0; ids.len()];
    for i in 0..array.len() {
        let at = offsets.position(i)?;
        if let Some(used) = used.get_mut(child_of(i)?) {
            extend(used, at..at.saturating_add(1));
        }
    }
    if !array.children().iter().zip(&used).any(|(child, used)| saves_rows(child, used)) {
        return Ok(None);
    }
    let children =
        array.children().iter().zip(&used).map(|(child, used)| child.slice(used.start, used.len()));
    let new_offsets = offsets.map(array.len(), stream, |i| {
        let start = used.get(child_of(i)?).map_or(0, |used| used.start);
        Ok(offsets.position(i)?.saturating_sub(start))
    })?;
    let types = array.buffers().first().cloned().flatten();
    Ok(Some((vec![types, Some(new_offsets)], children.collect::<Result<_>>()?)))
}

/// The runs that the rows of a run-end encoded array belong to. The array keeps its offset.
fn own_runs(array: &DeviceArray, stream: &Stream) -> Result<Trimmed> {
    let [ends, values] = array.children() else { return Ok(None) };
    let (first_row, last_row) = (array.offset(), array.offset() + array.len());
    let Some(integers) = Integers::of(ends, 1, stream)? else { return Ok(None) };
    // The run ends ascend.
    let runs_until = |row: usize| -> Result<usize> {
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if integers.position(ends.offset() + middle)? <= row {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    };
    let used = match array.len() {
        0 => 0..0,
        _ => {
            let first = runs_until(first_row)?;
            first..runs_until(last_row - 1)?.saturating_add(1).clamp(first, ends.len())
        }
    };
    if !saves_rows(ends, &used) {
        return Ok(None);
    }
    let slice = |child: &DeviceArray| child.slice(used.start, used.len());
    Ok(Some((array.buffers().to_vec(), vec![slice(ends)?, slice(values)?])))
}
