//! Imports and exports batches of plain columns without creating a tree of arrays. A column is
//! plain if it is fixed-width, has no nulls and needs only one buffer, as a tensor does.

use std::ffi::c_void;

use arrow_schema::Schema;
use crossdock_memory::{Buffer, Device, Ready};
use crossdock_plugin_api::{Owned, abi};

use super::arena::{Builder, Size};
use crate::{DeviceArray, DeviceBatch, fixed_width};

/// Calls `each` with the address of the first value of each column, in order. Returns true if the
/// batch is on `device`, is ready, and consists of plain columns whose values have the given widths
/// in bytes. If the result is false, `each` may have been called for some of the columns. The
/// caller can then use [`crate::import_batch`], which accepts all valid batches and describes the
/// errors of invalid batches.
pub fn plain_values(
    batch: &Owned<abi::Batch>,
    device: Device,
    widths: impl ExactSizeIterator<Item = usize>,
    mut each: impl FnMut(u64),
) -> bool {
    let root = &batch.array.array;
    let is_ready_here = Device::from_arrow(batch.array.device_type, batch.array.device_id) == device
        && batch.array.sync_event.is_null();
    let is_unsliced = root.length >= 0 && root.offset == 0 && root.n_buffers == 1 && root.null_count == 0;
    if !(is_ready_here
        && batch.n_rows_device.is_null()
        && root.release.is_some()
        && is_unsliced
        && root.n_children == widths.len() as i64
        && !root.children.is_null())
    {
        return false;
    }
    for (i, width) in widths.enumerate() {
        // SAFETY: `Owned` holds a valid batch, whose list has `n_children` pointers, each to a
        // valid array or NULL.
        let child = unsafe { (*root.children.add(i)).as_ref() };
        let value = child.and_then(|child| {
            let column = Column::of(child, root.length, width)?;
            // A null count of 0 may be wrong if there is a validity bitmap. The caller passes such
            // a batch to `import_batch`, which counts the nulls.
            let no_nulls = column.validity == 0 && matches!(child.null_count, 0 | -1);
            let has_all_bytes = declared_size(batch, 2 + i * 2).is_none_or(|size| size >= column.end as i64);
            let first = child.offset as u64 * width as u64;
            (no_nulls && has_all_bytes).then_some(if child.length == 0 { 0 } else { column.values + first })
        });
        match value {
            Some(value) => each(value),
            None => return false,
        }
    }
    batch.buffer_sizes.is_null() || batch.n_buffer_sizes as i64 == 1 + 2 * root.n_children
}

/// The address of the first value of each column of `schema`, if all columns are plain and the
/// batch is ready.
pub(super) fn plain_columns(batch: &Owned<abi::Batch>, schema: &Schema) -> Option<Vec<u64>> {
    let device = Device::from_arrow(batch.array.device_type, batch.array.device_id);
    let is_known_device = match batch.array.device_type {
        abi::DEVICE_CPU => true,
        abi::DEVICE_CUDA => (0..=i64::from(i32::MAX)).contains(&device.id),
        _ => false,
    };
    let fields = schema.fields();
    if !is_known_device || fields.iter().any(|field| fixed_width(field.data_type()).is_none()) {
        return None;
    }
    let mut addresses = Vec::with_capacity(fields.len());
    let widths = fields.iter().map(|field| fixed_width(field.data_type()).unwrap_or(0));
    let plain = plain_values(batch, device, widths, |address| addresses.push(address));
    // A batch with an impossible size is not treated as plain, so that the general import reports
    // the size as an error.
    let has_possible_sizes = |(i, address): (usize, &u64)| {
        let (validity, values) = (declared_size(batch, 1 + i * 2), declared_size(batch, 2 + i * 2));
        let end = values.map(|size| u64::try_from(size).ok().and_then(|size| address.checked_add(size)));
        validity.is_none_or(|size| size == 0) && end.is_none_or(|end| end.is_some_and(is_address))
    };
    (plain && addresses.iter().enumerate().all(has_possible_sizes)).then_some(addresses)
}

/// Exports a batch whose columns are plain, ready, and begin at the first byte of their buffers.
/// Returns `None` for any other batch. `to_external` is true if the consumer belongs to another
/// library; see [`Buffer::mark_exported`].
pub(super) fn export_plain_batch(batch: &DeviceBatch, to_external: bool) -> Option<Owned<abi::Batch>> {
    let device = batch.device();
    let values = |column: &DeviceArray| {
        let plain = column.null_count() == Some(0)
            && column.offset() == 0
            && fixed_width(column.data_type()).is_some();
        let buffer = column.buffers().get(1)?.as_ref().filter(|_| plain)?;
        (buffer.ready().is_now() && buffer.device() == device && buffer.len()? > 0).then(|| buffer.clone())
    };
    let mut buffers = Vec::with_capacity(batch.columns().len());
    for column in batch.columns() {
        buffers.push(values(column)?);
    }
    if to_external {
        buffers.iter().for_each(Buffer::mark_exported);
    }
    let span = |buffer: &Buffer| (buffer.address(), buffer.len().unwrap_or(0));
    // SAFETY: `DeviceArray` checks that its buffer contains all values of its length. The exported
    // batch owns the buffers, which are readable already.
    Some(unsafe { export_plain(device, batch.len(), buffers, span, Ready::Now) })
}

/// Returns true only if the batch has exactly the columns of `schema`, all columns have a fixed
/// width, all null counts are known, and only nullable fields have nulls. [`crate::import_batch`]
/// accepts every such batch on any device. It also accepts some of the batches for which the result
/// is false.
pub(super) fn is_plain(array: &Owned<abi::ArrowDeviceArray>, schema: &Schema) -> bool {
    let root = &array.array;
    let device = Device::from_arrow(array.device_type, array.device_id);
    let is_known_device = match array.device_type {
        abi::DEVICE_CPU => array.sync_event.is_null(),
        abi::DEVICE_CUDA => (0..=i64::from(i32::MAX)).contains(&device.id),
        _ => false,
    };
    let is_unsliced = root.length >= 0 && root.offset == 0 && root.n_buffers == 1 && root.null_count == 0;
    let is_plain_struct = root.release.is_some() && root.dictionary.is_null() && !root.buffers.is_null();
    if !(is_known_device && is_unsliced && is_plain_struct && root.n_children == schema.fields().len() as i64)
        || (root.n_children > 0 && root.children.is_null())
    {
        return false;
    }
    // SAFETY: `n_buffers` is 1 and the list is not NULL, so the list of a valid array has one
    // entry.
    if !unsafe { *root.buffers }.is_null() {
        return false;
    }
    schema.fields().iter().enumerate().all(|(i, field)| {
        let Some(width) = fixed_width(field.data_type()) else { return false };
        // SAFETY: `Owned` holds a valid array, whose list has `n_children` pointers, each to a
        // valid array or NULL.
        let child = unsafe { (*root.children.add(i)).as_ref() };
        let column = child.and_then(|child| Some((child, Column::of(child, root.length, width)?)));
        column.is_some_and(|(child, column)| match child.null_count {
            0 => column.validity == 0,
            nulls => {
                let bits = (child.offset + child.length) as u64 / 8;
                let has_bitmap =
                    column.validity != 0 && column.validity.checked_add(bits).is_some_and(is_address);
                (1..=child.length).contains(&nulls) && has_bitmap && field.is_nullable()
            }
        })
    })
}

/// A fixed-width column.
struct Column {
    /// Address of the buffer of values. It is 0 only if there are no rows.
    values: u64,
    /// Address of the validity bitmap; 0 if there is none.
    validity: u64,
    /// Position in the buffer after the last value, in bytes.
    end: usize,
}

impl Column {
    /// Reads `child`. Returns `None` if it is not a fixed-width column of `rows` rows.
    fn of(child: &abi::ArrowArray, rows: i64, width: usize) -> Option<Self> {
        let end = usize::try_from(child.offset.checked_add(child.length)?).ok()?.checked_mul(width)?;
        let plain = child.release.is_some()
            && child.length == rows
            && child.offset >= 0
            && child.n_buffers == 2
            && child.n_children == 0
            && child.dictionary.is_null()
            && !child.buffers.is_null();
        if !plain {
            return None;
        }
        // SAFETY: `n_buffers` is 2 and the list is not NULL, so the list of a valid array has two
        // entries.
        let (validity, values) = unsafe { (*child.buffers as u64, *child.buffers.add(1) as u64) };
        let has_values = values != 0 && values.checked_add(end as u64).is_some_and(is_address);
        (has_values || rows == 0).then_some(Self { values, validity, end })
    }
}

fn is_address(end: u64) -> bool {
    end <= i64::MAX as u64
}

/// The declared size of buffer `i` in pre-order, in bytes; `None` if it is unknown. If the list of
/// sizes is too short, the result is less than the size of any valid buffer.
fn declared_size(batch: &abi::Batch, i: usize) -> Option<i64> {
    if batch.buffer_sizes.is_null() {
        return None;
    }
    if i >= batch.n_buffer_sizes {
        return Some(i64::MIN);
    }
    // SAFETY: a valid batch has `n_buffer_sizes` sizes, and `i` is less than `n_buffer_sizes`.
    Some(unsafe { *batch.buffer_sizes.add(i) }).filter(|size| *size != -1)
}

/// Exports a batch of plain columns on `device`. Each element of `owners` owns one column. `span`
/// returns the address of a column's first value (0 if there are no rows) and the column's size in
/// bytes.
///
/// # Safety
/// The addresses are readable on `device` after `ready`, for the sizes that `span` returns, until
/// `owners` is dropped, which may happen on any thread. Each column has the bytes of `rows` values
/// of its type in the schema.
pub unsafe fn export_plain<T: Send + 'static, Owners: AsRef<[T]> + Send + 'static>(
    device: Device,
    rows: usize,
    owners: Owners,
    span: impl Fn(&T) -> (u64, usize),
    ready: Ready,
) -> Owned<abi::Batch> {
    let n = owners.as_ref().len();
    let mut builder = Builder::new(Size { nodes: n, buffers: 1 + 2 * n, other_words: n });
    let mut root = abi::ArrowArray {
        length: rows as i64,
        n_buffers: 1,
        buffers: builder.list(1),
        n_children: n as i64,
        ..Default::default()
    };
    builder.size(0);
    let nodes = builder.nodes(n);
    root.children = builder.list::<*mut abi::ArrowArray>(n);
    for (i, column) in owners.as_ref().iter().enumerate() {
        let (address, bytes) = span(column);
        let list = builder.list::<*const c_void>(2);
        // SAFETY: the builder allocated and zeroed `n` nodes, a list of `n` children, and this
        // column's list of two buffers. No other code refers to them.
        unsafe {
            let node = nodes.add(i);
            *root.children.add(i) = node;
            *list.add(1) = address as *const c_void;
            (*node).length = rows as i64;
            (*node).n_buffers = 2;
            (*node).buffers = list;
        }
        builder.size(0);
        builder.size(bytes as i64);
    }
    let mut raw = abi::Batch::new();
    (raw.buffer_sizes, raw.n_buffer_sizes) = builder.sizes();
    let sync_event = ready.sync_event();
    builder.finish(&mut root, (owners, ready));
    raw.array = abi::ArrowDeviceArray {
        array: root,
        device_id: device.id,
        device_type: device.r#type,
        sync_event,
        reserved: [0; 3],
    };
    // SAFETY: all fields of the struct are set, and the release of its array frees the arena and
    // drops the owners.
    unsafe { Owned::new(raw) }
}
