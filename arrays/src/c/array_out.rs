//! `ArrowArray` and `ArrowDeviceArray` out.

use std::ffi::c_void;

use crossdock_memory::{Buffer, Device, Error, Ready, Result, Stream};
use crossdock_plugin_api::{Owned, abi};

use super::arena::Builder;
use super::metadata;
use super::plain::export_plain_batch;
use super::prepare::{Prepared, needs_own_sizes, variadic_sizes};
use super::schema_out::export_schema;
use crate::layout::BufferKind;
use crate::metadata::pairs;
use crate::{DeviceArray, DeviceBatch};

/// The batch as it passes between host and plugin, or between processes: its buffers as they are, kept alive until the release,
/// with exact null counts and the table of buffer sizes. `stream` works on the batch's device if something has to be found out first: an
/// unknown null count, several moments of readiness.
///
/// For what another library gets, see [`lend_batch`].
pub fn export_batch(batch: &DeviceBatch, with_schema: bool, stream: &Stream) -> Result<Owned<abi::Batch>> {
    export(batch, with_schema, stream, false)
}

/// The same for a consumer that may be any library, and may release the batch while its own work still runs.
pub fn lend_batch(batch: &DeviceBatch, with_schema: bool, stream: &Stream) -> Result<Owned<abi::Batch>> {
    export(batch, with_schema, stream, true)
}

fn export(batch: &DeviceBatch, with_schema: bool, stream: &Stream, lent: bool) -> Result<Owned<abi::Batch>> {
    if !with_schema
        && batch.metadata().is_empty()
        && let Some(plain) = export_plain_batch(batch, lent)
    {
        return Ok(plain);
    }
    let columns: Vec<&DeviceArray> = batch.columns().iter().collect();
    let device = batch.device();
    let (mut prepared, mut size, ready) = Prepared::new(&columns, device, stream)?;
    if lent {
        prepared.mark_lent();
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
    // On the heap, where moving what owns it leaves it.
    let own = &out.prepared.metadata;
    raw.metadata = if own.is_empty() { std::ptr::null() } else { own.as_ptr().cast() };
    raw.array = finish(out, root, device, ready);
    raw.buffer_sizes = buffer_sizes;
    raw.n_buffer_sizes = n_buffer_sizes;
    // SAFETY: the struct is complete, and its array's release frees the arena.
    let mut raw = unsafe { Owned::new(raw) };
    if with_schema {
        let schema = export_schema(batch.schema())?.into_raw();
        // SAFETY: the batch is ours, and its schema empty so far.
        unsafe { (*raw.as_mut_ptr()).schema = schema };
    }
    Ok(raw)
}

/// One array, for any consumer of the C Device interface. See [`export_batch`].
pub fn export_device_array(array: &DeviceArray, stream: &Stream) -> Result<Owned<abi::ArrowDeviceArray>> {
    let device = array.device();
    let (prepared, size, ready) = Prepared::new(&[array], device, stream)?;
    prepared.mark_lent();
    let mut out = Out { builder: Builder::new(size), prepared, on_cpu: device == Device::CPU };
    let mut root = abi::ArrowArray::default();
    out.node(array, &mut root)?;
    // SAFETY: the struct is complete, and its release frees the arena.
    Ok(unsafe { Owned::new(finish(out, root, device, ready)) })
}

/// One array on the CPU, for any consumer of the C Data interface. See [`export_batch`].
pub fn export_array(array: &DeviceArray, stream: &Stream) -> Result<Owned<abi::ArrowArray>> {
    let device = array.device();
    if device != Device::CPU {
        return Err(Error::invalid_argument(format!(
            "an array on {device} cannot be an ArrowArray, whose readers expect host memory: move it to the cpu, or export \
             an ArrowDeviceArray"
        )));
    }
    let array = export_device_array(array, stream)?.into_raw().array;
    // SAFETY: what an exported device array holds is complete in itself; on the CPU nothing has to be waited for.
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
    /// Writes `array` and what is below it. The surveyed sizes have reserved a place for each.
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
            // SAFETY: the list has `n_buffers` entries, of which this is one.
            unsafe { *list.add(i) = address };
            self.builder.size(size);
        }
        if layout.variadic {
            let (address, size) = self.view_sizes(array)?;
            // SAFETY: the list's last entry.
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
            // SAFETY: a zeroed node of the arena, which nothing else refers to yet.
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
            // SAFETY: both have `children.len()` entries; the node is zeroed and nothing else refers to it yet.
            unsafe {
                let node = nodes.add(i);
                *list.add(i) = node;
                self.node(child, &mut *node)?;
            }
        }
        Ok(())
    }

    /// What to write down for a buffer: never an address at size 0, but one zero offset where offsets are empty.
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
        if let Some(theirs) = &array.view_sizes
            && !needs_own_sizes(array)
        {
            return Ok((theirs.address() as *const c_void, theirs.len().map_or(-1, |bytes| bytes as i64)));
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
            // SAFETY: `sizes.len()` words were just handed out.
            unsafe { *list.add(i) = *size };
        }
        Ok((list.cast(), bytes))
    }
}
