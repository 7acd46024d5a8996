//! Exports `ArrowArray` and `ArrowDeviceArray`.

use std::ffi::c_void;

use crossdock_memory::{Buffer, Device, Error, Ready, Result, Stream};
use crossdock_plugin_api::{Owned, abi};

use super::arena::Builder;
use super::metadata;
use super::plain::export_plain_batch;
use super::prepare::{Prepared, join, needs_own_sizes, variadic_sizes};
use super::schema_out::export_schema;
use crate::layout::BufferKind;
use crate::metadata::pairs;
use crate::{DeviceArray, DeviceBatch, PendingBatch};

/// Exports a batch to the host, to a plugin, or to another process of this host. The exported batch
/// has exact null counts and the table of buffer sizes, and it shares the buffers until it is
/// released. If a null count is unknown, or if the buffers have different events, the export
/// launches work on `stream`, which must belong to the batch's device.
///
/// For other consumers, see [`export_batch_to_external`].
pub fn export_batch(batch: &DeviceBatch, with_schema: bool, stream: &Stream) -> Result<Owned<abi::Batch>> {
    export(batch, None, with_schema, stream, (false, None))
}

/// Exports several batches on `device`, each as [`export_batch`] does without a schema. If the
/// buffers of all batches have different events, work is launched once, and not for each batch.
pub fn export_batches(
    batches: &[DeviceBatch],
    device: Device,
    stream: &Stream,
) -> Result<Vec<Owned<abi::Batch>>> {
    let joined = join(batches, device, stream)?;
    let export = |batch| export(batch, None, false, stream, (false, joined.as_ref()));
    batches.iter().map(export).collect()
}

/// Like [`export_batch`], for a consumer of batches whose number of rows is on the device
/// (`n_rows_device`). The host does not read this number. The columns must have a fixed width,
/// because the export reads offsets of columns without it.
///
/// # Errors
///
/// Internal if a column has no fixed width.
pub fn export_pending(batch: &PendingBatch, stream: &Stream, to_external: bool) -> Result<Owned<abi::Batch>> {
    let counter = batch.counter();
    if counter.is_some() && !batch.has_fixed_width() {
        return Err(Error::internal("only columns of a fixed width can be exported with a counter of rows"));
    }
    export(batch.padded(), counter, false, stream, (to_external, None))
}

/// Like [`export_batch`], for an external consumer, which may release the batch while the
/// consumer's own work on the device still runs.
pub fn export_batch_to_external(
    batch: &DeviceBatch,
    with_schema: bool,
    stream: &Stream,
) -> Result<Owned<abi::Batch>> {
    export(batch, None, with_schema, stream, (true, None))
}

fn export(
    batch: &DeviceBatch,
    counter: Option<&Buffer>,
    with_schema: bool,
    stream: &Stream,
    (to_external, joined): (bool, Option<&Ready>),
) -> Result<Owned<abi::Batch>> {
    if !with_schema
        && counter.is_none()
        && batch.metadata().is_empty()
        && let Some(plain) = export_plain_batch(batch, to_external)
    {
        return Ok(plain);
    }
    let columns: Vec<&DeviceArray> = batch.columns().iter().collect();
    let device = batch.device();
    let (mut prepared, mut size, ready) = Prepared::new(&columns, counter, device, stream, joined)?;
    if to_external {
        prepared.mark_exported();
    }
    if !batch.metadata().is_empty() {
        prepared.metadata = metadata::write(&pairs(batch.metadata()))?;
    }
    size.nodes += columns.len();
    size.buffers += 1;
    size.other_words += columns.len();
    let mut out = Out { builder: Builder::new(size), prepared, on_cpu: device == Device::CPU };
    let mut root = abi::ArrowArray {
        length: batch.len() as i64,
        n_buffers: 1,
        buffers: out.builder.list(1),
        ..Default::default()
    };
    out.builder.size(0);
    out.children(&mut root, batch.columns())?;
    let (buffer_sizes, n_buffer_sizes) = out.builder.sizes();
    let mut raw = abi::Batch::new();
    // The metadata bytes are on the heap, so the pointer to them stays valid when `out` moves.
    let metadata = &out.prepared.metadata;
    raw.metadata = if metadata.is_empty() { std::ptr::null() } else { metadata.as_ptr().cast() };
    raw.array = finish(out, root, device, ready);
    raw.n_rows_device = counter.map_or(std::ptr::null(), |counter| counter.address() as *const i64);
    raw.buffer_sizes = buffer_sizes;
    raw.n_buffer_sizes = n_buffer_sizes;
    // SAFETY: all fields of the struct are set, and the release of its array frees the arena.
    let mut raw = unsafe { Owned::new(raw) };
    if with_schema {
        let schema = export_schema(batch.schema())?.into_raw();
        // SAFETY: `raw` was just created with an empty schema, so overwriting the schema leaks
        // nothing.
        unsafe { (*raw.as_mut_ptr()).schema = schema };
    }
    Ok(raw)
}

/// Exports one array to any consumer of the C Device interface. See [`export_batch`].
pub fn export_device_array(array: &DeviceArray, stream: &Stream) -> Result<Owned<abi::ArrowDeviceArray>> {
    let device = array.device();
    let (prepared, size, ready) = Prepared::new(&[array], None, device, stream, None)?;
    prepared.mark_exported();
    let mut out = Out { builder: Builder::new(size), prepared, on_cpu: device == Device::CPU };
    let mut root = abi::ArrowArray::default();
    out.node(array, &mut root)?;
    // SAFETY: all fields of the struct are set, and its release frees the arena.
    Ok(unsafe { Owned::new(finish(out, root, device, ready)) })
}

/// Exports one array on the CPU to any consumer of the C Data interface. See [`export_batch`].
///
/// # Errors
///
/// Returns an error if the array is on another device.
pub fn export_array(array: &DeviceArray, stream: &Stream) -> Result<Owned<abi::ArrowArray>> {
    let device = array.device();
    if device != Device::CPU {
        return Err(Error::invalid_argument(format!(
            "cannot export an array on {device} as an ArrowArray, whose buffers must be in host memory: move it to the cpu, \
             or export an ArrowDeviceArray"
        )));
    }
    let array = export_device_array(array, stream)?.into_raw().array;
    // SAFETY: all fields of the exported array are set. On the CPU there is no event to wait for.
    Ok(unsafe { Owned::new(array) })
}

fn finish(out: Out, mut root: abi::ArrowArray, device: Device, ready: Ready) -> abi::ArrowDeviceArray {
    let sync_event = ready.sync_event();
    out.builder.finish(&mut root, (out.prepared, ready));
    abi::ArrowDeviceArray {
        array: root,
        device_id: device.id,
        device_type: device.r#type,
        sync_event,
        reserved: [0; 3],
    }
}

struct Out {
    builder: Builder<(Prepared, Ready)>,
    prepared: Prepared,
    on_cpu: bool,
}

impl Out {
    /// Writes `array` and all its descendants. `Prepared::new` counted the nodes and words that
    /// they need.
    fn node(&mut self, array: &DeviceArray, to: &mut abi::ArrowArray) -> Result<()> {
        let layout = array.layout();
        let null_count = match array.null_count() {
            Some(n) => n,
            None => self
                .prepared
                .null_counts
                .next()
                .ok_or_else(|| Error::internal("an array's nulls were not counted before its export"))?,
        };
        let n_buffers = array.buffers().len() + usize::from(layout.variadic);
        let list = self.builder.list::<*const c_void>(n_buffers);
        for (i, slot) in array.buffers().iter().enumerate() {
            let absent = layout.is_validity(i) && null_count == 0;
            let buffer = slot.as_ref().filter(|_| !absent);
            let (address, size) = self.buffer(buffer, layout.kind(i));
            // SAFETY: the list has `n_buffers` entries, and `i` is less than `n_buffers`.
            unsafe { *list.add(i) = address };
            self.builder.size(size);
        }
        if layout.variadic {
            let (address, size) = self.view_sizes(array)?;
            // SAFETY: the list has `n_buffers` entries, and `n_buffers` is at least 1.
            unsafe { *list.add(n_buffers - 1) = address };
            self.builder.size(size);
        }
        to.length = array.len() as i64;
        to.offset = array.offset() as i64;
        to.null_count = null_count as i64;
        to.n_buffers = n_buffers as i64;
        to.buffers = list;
        self.children(to, array.children())?;
        if let Some(dictionary) = array.dictionary() {
            to.dictionary = self.builder.nodes(1);
            // SAFETY: the arena just allocated and zeroed this node. No other code refers to it.
            self.node(dictionary, unsafe { &mut *to.dictionary })?;
        }
        Ok(())
    }

    fn children(&mut self, to: &mut abi::ArrowArray, children: &[DeviceArray]) -> Result<()> {
        if children.is_empty() {
            return Ok(());
        }
        let nodes = self.builder.nodes(children.len());
        let list = self.builder.list::<*mut abi::ArrowArray>(children.len());
        to.n_children = children.len() as i64;
        to.children = list;
        for (i, child) in children.iter().enumerate() {
            // SAFETY: both allocations have `children.len()` entries. The node is zeroed, and no
            // other code refers to it.
            unsafe {
                let node = nodes.add(i);
                *list.add(i) = node;
                self.node(child, &mut *node)?;
            }
        }
        Ok(())
    }

    /// Returns the address and the size to export for a buffer. An empty buffer is exported as
    /// NULL. The exception is an empty buffer of offsets, which is exported as one zero offset.
    fn buffer(&self, buffer: Option<&Buffer>, kind: Option<BufferKind>) -> (*const c_void, i64) {
        match (buffer.filter(|buffer| !buffer.is_empty()), kind) {
            (Some(buffer), _) => {
                (buffer.address() as *const c_void, buffer.len().map_or(-1, |bytes| bytes as i64))
            }
            (None, Some(BufferKind::Offsets { width })) => {
                let zero = self.prepared.zero.map_or(self.builder.zero(), |address| address as *const c_void);
                (zero, width as i64)
            }
            (None, _) => (std::ptr::null(), 0),
        }
    }

    fn view_sizes(&mut self, array: &DeviceArray) -> Result<(*const c_void, i64)> {
        if let Some(view_sizes) = &array.view_sizes
            && !needs_own_sizes(array)
        {
            return Ok((
                view_sizes.address() as *const c_void,
                view_sizes.len().map_or(-1, |bytes| bytes as i64),
            ));
        }
        let sizes = variadic_sizes(array)?;
        let bytes = sizes.len() as i64 * 8;
        if sizes.is_empty() {
            self.prepared.view_sizes.next();
            return Ok((std::ptr::null(), 0));
        }
        if !self.on_cpu {
            let address = self.prepared.view_sizes.next();
            let address = address
                .ok_or_else(|| Error::internal("a view array's sizes were not written before its export"))?;
            return Ok((address as *const c_void, bytes));
        }
        let list = self.builder.list::<i64>(sizes.len());
        for (i, size) in sizes.iter().enumerate() {
            // SAFETY: the builder just allocated `sizes.len()` words.
            unsafe { *list.add(i) = *size };
        }
        Ok((list.cast(), bytes))
    }
}
