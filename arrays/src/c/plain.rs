//! Batches of nothing but numbers without nulls, each column one buffer: what tensors are. Seen and made without a tree in
//! between.

use std::ffi::c_void;

use arrow_schema::Schema;
use crossdock_memory::{Buffer, Device, Ready};
use crossdock_plugin_api::{Owned, abi};

use super::arena::{Builder, Size};
use crate::{DeviceArray, DeviceBatch};

/// Where the values of each column begin, if the batch lies on `device` and is ready, and each of its columns is a plain
/// one: values of the given width (bytes), as many as there are rows, no nulls, none of them missing. `each` is called
/// in order until one is not. On `false`, ask [`crate::import_batch`], which takes more and says what is wrong.
pub fn plain_values(
    batch: &Owned<abi::Batch>,
    device: Device,
    widths: impl ExactSizeIterator<Item = usize>,
    mut each: impl FnMut(u64),
) -> bool {
    let root = &batch.array.array;
    let here = Device::from_arrow(batch.array.device_type, batch.array.device_id) == device
        && batch.array.sync_event.is_null();
    let shape = root.length >= 0 && root.offset == 0 && root.n_buffers == 1 && root.null_count == 0;
    if !(here
        && root.release.is_some()
        && shape
        && root.n_children == widths.len() as i64
        && !root.children.is_null())
    {
        return false;
    }
    for (i, width) in widths.enumerate() {
        // SAFETY: `Owned` vouches for the array, whose list has `n_children` pointers to valid arrays or NULL.
        let child = unsafe { (*root.children.add(i)).as_ref() };
        let value = child.and_then(|child| {
            let column = Column::of(child, root.length, width)?;
            // A count of 0 beside a bitmap may be false: the nulls are counted by the longer way.
            let no_nulls = column.validity == 0 && matches!(child.null_count, 0 | -1);
            let enough = told_size(batch, 2 + i * 2).is_none_or(|size| size >= column.end as i64);
            let first = child.offset as u64 * width as u64;
            (no_nulls && enough).then_some(if child.length == 0 { 0 } else { column.values + first })
        });
        match value {
            Some(value) => each(value),
            None => return false,
        }
    }
    batch.buffer_sizes.is_null() || batch.n_buffer_sizes as i64 == 1 + 2 * root.n_children
}

/// Where the values of each column of `schema` begin, if the batch is one of nothing but such columns and all is ready:
/// [`crate::import_batch`] then has nothing to look for.
pub(super) fn plain_columns(batch: &Owned<abi::Batch>, schema: &Schema) -> Option<Vec<u64>> {
    let device = Device::from_arrow(batch.array.device_type, batch.array.device_id);
    let placed = match batch.array.device_type {
        abi::DEVICE_CPU => true,
        abi::DEVICE_CUDA => (0..=i64::from(i32::MAX)).contains(&device.id),
        _ => false,
    };
    let fields = schema.fields();
    if !placed || fields.iter().any(|field| field.data_type().primitive_width().is_none()) {
        return None;
    }
    let mut addresses = Vec::with_capacity(fields.len());
    let widths = fields.iter().map(|field| field.data_type().primitive_width().unwrap_or(0));
    let plain = plain_values(batch, device, widths, |address| addresses.push(address));
    // Sizes that cannot be are for the longer way to explain.
    let sound = |(i, address): (usize, &u64)| {
        let (validity, values) = (told_size(batch, 1 + i * 2), told_size(batch, 2 + i * 2));
        let end = values.map(|size| u64::try_from(size).ok().and_then(|size| address.checked_add(size)));
        validity.is_none_or(|size| size == 0) && end.is_none_or(|end| end.is_some_and(is_address))
    };
    (plain && addresses.iter().enumerate().all(sound)).then_some(addresses)
}

/// The batch as it crosses the boundary, if it is one of nothing but plain columns without nulls, each from the beginning
/// of a buffer that is ready: there is nothing to find out first.
pub(super) fn export_plain_batch(batch: &DeviceBatch, lent: bool) -> Option<Owned<abi::Batch>> {
    let device = batch.device();
    let values = |column: &DeviceArray| {
        let plain = column.null_count() == Some(0)
            && column.offset() == 0
            && column.data_type().primitive_width().is_some();
        let buffer = column.buffers().get(1)?.as_ref().filter(|_| plain)?;
        (buffer.ready().is_now() && buffer.device() == device && buffer.len()? > 0).then(|| buffer.clone())
    };
    let mut kept = Vec::with_capacity(batch.columns().len());
    for column in batch.columns() {
        kept.push(values(column)?);
    }
    if lent {
        kept.iter().for_each(Buffer::mark_lent);
    }
    let span = |buffer: &Buffer| (buffer.address(), buffer.len().unwrap_or(0));
    // SAFETY: the batch's buffers are what its arrays say, which was checked when those were made, and are kept.
    Some(unsafe { export_plain(device, batch.len(), kept, span, Ready::Now) })
}

/// Whether a batch is one of plain columns of `schema`, nulls allowed where it allows them, with every null count told: then
/// [`crate::import_batch`] takes it, wherever it lies. On `false`, ask that.
pub(super) fn is_plain(array: &Owned<abi::ArrowDeviceArray>, schema: &Schema) -> bool {
    let root = &array.array;
    let device = Device::from_arrow(array.device_type, array.device_id);
    let placed = match array.device_type {
        abi::DEVICE_CPU => array.sync_event.is_null(),
        abi::DEVICE_CUDA => (0..=i64::from(i32::MAX)).contains(&device.id),
        _ => false,
    };
    let shape = root.length >= 0 && root.offset == 0 && root.n_buffers == 1 && root.null_count == 0;
    let whole = root.release.is_some() && root.dictionary.is_null() && !root.buffers.is_null();
    if !(placed && shape && whole && root.n_children == schema.fields().len() as i64)
        || (root.n_children > 0 && root.children.is_null())
    {
        return false;
    }
    // SAFETY: a valid array's list has its one entry.
    if !unsafe { *root.buffers }.is_null() {
        return false;
    }
    schema.fields().iter().enumerate().all(|(i, field)| {
        let Some(width) = field.data_type().primitive_width() else { return false };
        // SAFETY: `Owned` vouches for the array, whose list has `n_children` pointers to valid arrays or NULL.
        let child = unsafe { (*root.children.add(i)).as_ref() };
        let column = child.and_then(|child| Some((child, Column::of(child, root.length, width)?)));
        column.is_some_and(|(child, column)| match child.null_count {
            0 => column.validity == 0,
            nulls => {
                let bits = (child.offset + child.length) as u64 / 8;
                let there = column.validity != 0 && column.validity.checked_add(bits).is_some_and(is_address);
                (1..=child.length).contains(&nulls) && there && field.is_nullable()
            }
        })
    })
}

/// A column of values of one width.
struct Column {
    /// Where the buffer begins; not null where there are rows.
    values: u64,
    /// 0 for none.
    validity: u64,
    /// As many bytes as the values take, those before the first included.
    end: usize,
}

impl Column {
    /// `child` as such, if it is one of `rows` rows.
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
        // SAFETY: a valid array's list has its two entries.
        let (validity, values) = unsafe { (*child.buffers as u64, *child.buffers.add(1) as u64) };
        let whole = values != 0 && values.checked_add(end as u64).is_some_and(is_address);
        (whole || rows == 0).then_some(Self { values, validity, end })
    }
}

fn is_address(end: u64) -> bool {
    end <= i64::MAX as u64
}

/// The size of the `i`-th buffer in pre-order, where the batch tells it. A wrong one is one that is too small.
fn told_size(batch: &abi::Batch, i: usize) -> Option<i64> {
    if batch.buffer_sizes.is_null() {
        return None;
    }
    if i >= batch.n_buffer_sizes {
        return Some(i64::MIN);
    }
    // SAFETY: a batch has as many sizes as it says.
    Some(unsafe { *batch.buffer_sizes.add(i) }).filter(|size| *size != -1)
}

/// A batch of plain columns on `device`, one for each of `kept`: `span` tells the address of its first value (0 where there
/// are no rows) and its bytes.
///
/// # Safety
/// The addresses are readable on `device` after `ready`, as far as their bytes, until `kept` is dropped, which may be on any
/// thread. Each column's bytes are those of `rows` values of the type that the schema has there.
pub unsafe fn export_plain<T: Send + 'static, Kept: AsRef<[T]> + Send + 'static>(
    device: Device,
    rows: usize,
    kept: Kept,
    span: impl Fn(&T) -> (u64, usize),
    ready: Ready,
) -> Owned<abi::Batch> {
    let n = kept.as_ref().len();
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
    for (i, column) in kept.as_ref().iter().enumerate() {
        let (address, bytes) = span(column);
        let list = builder.list::<*const c_void>(2);
        // SAFETY: the node, its entry in the root's list and its own list are the arena's, zeroed and nobody else's; there are
        // `n` of each.
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
    builder.finish(&mut root, (kept, ready));
    raw.array = abi::ArrowDeviceArray {
        array: root,
        device_id: device.id,
        device_type: device.r#type,
        sync_event,
        reserved: [0; 3],
    };
    // SAFETY: the struct is complete, and its array's release frees the arena and what it keeps.
    unsafe { Owned::new(raw) }
}
