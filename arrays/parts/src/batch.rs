//! Batches as plain data.

use arrow_schema::{DataType, SchemaRef};
use crossdock_arrays::layout::{BufferKind, ChildRule, Layout, layout};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Error, Result};
use serde::{Deserialize, Serialize};

/// A batch without its schema, which is sent separately. `P` represents a buffer.
#[derive(Serialize, Deserialize)]
pub struct BatchParts<P> {
    rows: u64,
    metadata: Vec<(String, String)>,
    /// The arrays of all columns in pre-order. A dictionary follows the children of its array.
    arrays: Vec<ArrayParts<P>>,
}

#[derive(Serialize, Deserialize)]
struct ArrayParts<P> {
    rows: u64,
    offset: u64,
    null_count: Option<u64>,
    buffers: Vec<Option<P>>,
    n_children: u32,
    has_dictionary: bool,
}

/// Returns the buffers of received parts.
pub trait PartReader<P> {
    /// Returns the buffer that `part` represents. If the buffer is in host memory, its address is a
    /// multiple of `alignment` (bytes, a power of two up to 16).
    ///
    /// # Errors
    /// There is no such buffer.
    fn buffer(&mut self, part: P, alignment: usize) -> Result<Buffer>;
}

impl<P> BatchParts<P> {
    /// Describes a batch whose sizes are all known. `part` decides what represents a buffer.
    ///
    /// # Errors
    /// The errors of `part`.
    pub fn write(batch: &DeviceBatch, mut part: impl FnMut(&Buffer) -> Result<P>) -> Result<Self> {
        let mut arrays = Vec::with_capacity(batch.columns().len());
        for column in batch.columns() {
            write_array(column, &mut part, &mut arrays)?;
        }
        let metadata = batch.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Self { rows: batch.len() as u64, metadata, arrays })
    }

    /// Returns the batch after all checks that do not read buffers.
    ///
    /// # Errors
    /// The arrays do not fit the schema; the errors of `from`.
    pub fn read(self, schema: &SchemaRef, from: &mut impl PartReader<P>) -> Result<DeviceBatch> {
        let mut parts = self.arrays.into_iter();
        let mut columns = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let column = read_array(field.data_type(), &mut parts, from);
            columns.push(column.map_err(|error| error.context(format_args!("column '{}'", field.name())))?);
        }
        if parts.next().is_some() {
            return Err(Error::bad_data(format!(
                "the message has more arrays than the {} columns",
                schema.fields().len()
            )));
        }
        let batch = DeviceBatch::try_new(schema.clone(), size(self.rows)?, columns)?;
        Ok(batch.with_metadata(self.metadata.into_iter().collect()))
    }
}

fn write_array<P>(
    array: &DeviceArray,
    part: &mut impl FnMut(&Buffer) -> Result<P>,
    out: &mut Vec<ArrayParts<P>>,
) -> Result<()> {
    let mut part_of = |buffer: &Option<Buffer>| buffer.as_ref().map(&mut *part).transpose();
    out.push(ArrayParts {
        rows: array.len() as u64,
        offset: array.offset() as u64,
        null_count: array.null_count().map(|n| n as u64),
        buffers: array.buffers().iter().map(&mut part_of).collect::<Result<_>>()?,
        n_children: array.children().len() as u32,
        has_dictionary: array.dictionary().is_some(),
    });
    array.children().iter().chain(array.dictionary()).try_for_each(|child| write_array(child, part, out))
}

/// Reads the array and its children. The depth of the recursion is the depth of the type, which is
/// limited.
fn read_array<P>(
    data_type: &DataType,
    parts: &mut impl Iterator<Item = ArrayParts<P>>,
    from: &mut impl PartReader<P>,
) -> Result<DeviceArray> {
    let record =
        parts.next().ok_or_else(|| Error::bad_data("the message has fewer arrays than the columns"))?;
    let layout = layout(data_type);
    let Layout { children: expected, dictionary: values, .. } = layout;
    if record.n_children as usize != expected.len() || record.has_dictionary != values.is_some() {
        return Err(Error::bad_data(format!(
            "an array of type {data_type} has {} children, expected {}",
            record.n_children,
            expected.len()
        )));
    }
    let buffers = record.buffers.into_iter().enumerate().map(|(i, part)| {
        let alignment = layout.kind(i).map_or(1, alignment_of);
        part.map(|part| from.buffer(part, alignment)).transpose()
    });
    let buffers = buffers.collect::<Result<_>>()?;
    let fields = (0..expected.len()).filter_map(|i| expected.get(i));
    let children = fields.map(|field| read_array(field.data_type(), parts, from)).collect::<Result<_>>()?;
    let dictionary = values.map(|(_, values)| read_array(values, parts, from)).transpose()?;
    let null_count = record.null_count.map(size).transpose()?;
    DeviceArray::try_new(
        data_type.clone(),
        size(record.rows)?,
        size(record.offset)?,
        null_count,
        buffers,
        children,
        dictionary,
    )
}

/// The alignment in bytes that readers of a buffer expect.
fn alignment_of(kind: BufferKind) -> usize {
    /// The largest alignment of a type of Rust or C whose values a buffer contains.
    const MAX_ALIGNMENT: u32 = 16;
    match kind.width() {
        Some(width @ 1..) => 1 << width.trailing_zeros().min(MAX_ALIGNMENT.ilog2()),
        _ => 1,
    }
}

/// All buffers of the arrays.
pub fn buffers(arrays: &[DeviceArray]) -> Vec<&Buffer> {
    fn collect<'a>(array: &'a DeviceArray, all: &mut Vec<&'a Buffer>) {
        all.extend(array.buffers().iter().flatten());
        array.children().iter().chain(array.dictionary()).for_each(|child| collect(child, all));
    }
    let mut all = Vec::new();
    arrays.iter().for_each(|array| collect(array, &mut all));
    all
}

/// Returns the number of bytes that `rows` rows of the array use of the first buffer after the
/// validity bitmap, the length of this buffer in bytes, and the buffer. Returns `None` if the
/// layout has no such buffer.
pub fn used_and_total_bytes(array: &DeviceArray, rows: usize) -> Option<(usize, usize, &Buffer)> {
    let layout = array.layout();
    let bits = match layout.buffers().first()? {
        BufferKind::Bits => 1,
        kind => 8 * kind.width()?,
    };
    let buffer = array.buffers().get(usize::from(layout.has_validity))?.as_ref()?;
    Some(((rows + 1).saturating_mul(bits) / 8, buffer.len().unwrap_or(0), buffer))
}

/// Bytes behind the last row that are padding, and not other rows.
pub(crate) const MAX_PADDING: usize = 64;

/// Whether the buffers contain rows outside the array, for example because the array is a slice.
pub fn has_other_rows(array: &DeviceArray) -> bool {
    let used = used_and_total_bytes(array, array.len());
    let is_longer = used.is_some_and(|(used, total, _)| total > used + MAX_PADDING);
    let has_rows_below = |n_rows| {
        let has_other_rows = |child: &DeviceArray| child.len() > n_rows || has_other_rows(child);
        array.children().iter().any(has_other_rows)
    };
    is_longer || array.offset() > 0 || child_rows(array).is_some_and(has_rows_below)
}

/// The number of rows of each child that the array's rows use; `None` if it depends on the contents
/// of a buffer.
pub(crate) fn child_rows(array: &DeviceArray) -> Option<usize> {
    match array.layout().child_rule {
        ChildRule::SameRows => Some(array.len()),
        ChildRule::Times(n) => Some(array.len().saturating_mul(n)),
        _ => None,
    }
}

fn size(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::bad_data(format!("{n} values")))
}
