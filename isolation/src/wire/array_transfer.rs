//! Array transfer: represents batches and encoded arrays as plain data. Each buffer is a place in a
//! file or a shared segment.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{DeviceBatch, import_field_ref};
use crossdock_memory::{Buffer, ForeignOwner, HostView, Ready, Stream};
use crossdock_parts::{BufferRecord, PartReader, buffers, has_other_rows, used_and_total_bytes};
use crossdock_plugin_api::{Device, EncodedArray, EncodedNode, Error, Owned, Result, abi};
use serde::{Deserialize, Serialize};

use crate::files::mapping::Mapping;
use crate::wire::incoming::{Incoming, Place};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::Streams;

/// A batch without its schema, because both processes know the schema.
#[derive(Serialize, Deserialize)]
pub struct BatchParts(crossdock_parts::BatchParts<Place>);

/// An encoded array, or a subtree of an encoded array. A buffer on a device whose buffers are not
/// transferred has no place. Then only the metadata of the buffer is sent.
#[derive(Serialize, Deserialize)]
pub struct TreeParts(crossdock_parts::TreeParts<Place>);

/// Returns the schema of the column to which a node decodes.
pub fn column_schema(node: EncodedNode<'_>) -> Result<SchemaRef> {
    // SAFETY: `EncodedArray` has checked the node's schema, and `node` borrows the array until the
    // schema is imported.
    let field = unsafe { import_field_ref(node.schema()?) }?;
    Ok(Arc::new(Schema::new(vec![field])))
}

impl BatchParts {
    /// Adds a batch to a message. A buffer that is in no file yet is copied into a file. If the
    /// buffer is on a device that the message accepts, it is copied into a shared segment instead.
    pub fn write(batch: DeviceBatch, streams: &Streams, to: &mut Outgoing) -> Result<Self> {
        let parts = Self::add(batch, streams, to)?;
        to.fill_segments()?;
        Ok(parts)
    }

    /// Like [`Self::write`], but the caller must call [`Outgoing::fill_segments`] after the last
    /// batch of the message. All batches are then in the same segment.
    pub fn add(mut batch: DeviceBatch, streams: &Streams, to: &mut Outgoing) -> Result<Self> {
        let stream = streams.for_device(batch.device());
        batch.resolve_sizes(stream)?;
        let needs_compaction = match to.sends_whole_files() {
            true => is_small_part(&batch, stream)?,
            false => batch.columns().iter().any(has_other_rows),
        };
        if needs_compaction {
            batch = batch.compact(stream)?;
        }
        let views = buffers(batch.columns()).into_iter().filter(|buffer| is_host_memory(buffer));
        let views = views.map(|buffer| buffer.host_view(stream)).collect::<Result<Vec<HostView<'_>>>>()?;
        to.restrict_to(views.iter().map(|view| &**view));
        let bytes = batch.buffer_bytes();
        let parts = crossdock_parts::BatchParts::write(&batch, |buffer| {
            let is_in_segment = to.accepts_batch(buffer.device(), bytes);
            if is_in_segment && !is_host_memory(buffer) {
                return to.place_in_segment(buffer.clone(), 1);
            }
            let view = buffer.host_view(stream)?;
            if is_in_segment && !view.is_empty() && !to.sends_file_of(&view) {
                return to.place_in_segment(buffer.clone(), 1);
            }
            to.place(&view, 1)
        })?;
        Ok(Self(parts))
    }

    /// Returns the batch after all checks that do not read buffers.
    ///
    /// # Errors
    /// The arrays do not fit the schema, or a place is outside the message's files and segments.
    pub fn read(self, schema: &SchemaRef, mut from: &Incoming) -> Result<DeviceBatch> {
        self.0.read(schema, &mut from)
    }
}

/// The buffers of a message. They begin at multiples of 64 bytes.
impl PartReader<Place> for &Incoming {
    fn buffer(&mut self, place: Place, _: usize) -> Result<Buffer> {
        Incoming::buffer(self, place)
    }
}

/// Whether the batch uses only a small part of a buffer, for example because the batch is a slice.
/// Every transfer of such a batch would copy the whole buffer. Buffers in mapped files do not
/// count, because they are sent without a copy.
fn is_small_part(batch: &DeviceBatch, stream: &Stream) -> Result<bool> {
    const MIN_SAVED_BYTES: usize = 64 << 10;
    for (used, total, buffer) in
        batch.columns().iter().filter_map(|column| used_and_total_bytes(column, column.len()))
    {
        if total <= used.saturating_mul(2).saturating_add(MIN_SAVED_BYTES) {
            continue;
        }
        if !is_host_memory(buffer) || Mapping::file_containing(&buffer.host_view(stream)?).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_host_memory(buffer: &Buffer) -> bool {
    matches!(buffer.device().r#type, abi::DEVICE_CPU | abi::DEVICE_CUDA_HOST)
}

impl TreeParts {
    /// Creates parts with `n` equal nodes without buffers. The nodes form no tree.
    #[cfg(test)]
    pub fn of_equal_nodes(node: EncodedNode<'_>, n: usize) -> Self {
        let one = || Self::write(node, &mut Outgoing::default()).unwrap_or_else(|error| panic!("{error}"));
        let nodes = (0..n).flat_map(|_| one().0.nodes).collect();
        Self(crossdock_parts::TreeParts { nodes, buffers: Vec::new() })
    }

    /// Adds a node and all its descendants to a message. If a buffer is on a device that the
    /// message does not accept, only the metadata of the buffer is sent.
    pub fn write(root: EncodedNode<'_>, to: &mut Outgoing) -> Result<Self> {
        let parts = crossdock_parts::TreeParts::write(root, |buffer| place_of(buffer, to))?;
        // The segments are filled before the borrow of the array ends.
        to.fill_segments()?;
        Ok(Self(parts))
    }

    /// Returns the encoded array.
    ///
    /// # Errors
    /// The nodes form no tree, or a place is outside the message's files and segments.
    pub fn read(self, from: &Incoming) -> Result<EncodedArray> {
        self.0.read(|record| read_buffer(&record, from))
    }
}

fn place_of(buffer: &abi::EncodedBuffer, to: &mut Outgoing) -> Result<Option<Place>> {
    // All fields are zero if the node is already decoded and the buffer was moved out of it.
    let (alignment, device, bytes) = (buffer.alignment.max(1), buffer.device, buffer.bytes);
    if device == Device::CPU && buffer.release.is_some() && bytes > 0 {
        let too_long = |_| Error::internal("a buffer that is longer than the address space");
        let bytes = usize::try_from(bytes).map_err(too_long)?;
        // SAFETY: the buffer belongs to an `EncodedArray` that the caller borrows. It is in host
        // memory and not released, so `bytes` bytes are readable at its address.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), bytes) };
        to.place(bytes, alignment).map(Some)
    } else if to.accepts_device(Device::from_arrow(device.r#type, device.id)) && bytes > 0 {
        let owner = ForeignOwner::new(());
        let address = buffer.address.addr() as u64;
        // SAFETY: the buffer has `bytes` bytes at the address on `device`, and the event belongs to
        // the buffer. `borrowed` needs no owner, because the caller borrows the array until
        // `TreeParts::write` has copied the buffer.
        let borrowed = unsafe {
            let ready = Ready::from_sync_event(buffer.sync_event, &owner);
            Buffer::foreign(&owner, device, address, Some(bytes), ready)
        };
        to.place_in_segment(borrowed, alignment).map(Some)
    } else {
        Ok(None)
    }
}

fn read_buffer(record: &BufferRecord<Place>, from: &Incoming) -> Result<Owned<abi::EncodedBuffer>> {
    let placeholder = || {
        let address = if record.bytes == 0 { 0 } else { record.alignment };
        let owner = ForeignOwner::new(());
        // SAFETY: no code dereferences the address. Either the buffer has no bytes, or it is on a
        // device. A plugin's process decodes only arrays whose buffers are in host memory or were
        // transferred.
        unsafe { Buffer::foreign(&owner, record.device.into(), address, Some(record.bytes), Ready::Now) }
    };
    let buffer = match record.place {
        Some(place) => from.buffer(place)?,
        None if record.bytes == 0 || from.is_trusted() => placeholder(),
        None => return Err(Error::bad_data(format!("a buffer of {} bytes that was not sent", record.bytes))),
    };
    let mut raw = buffer.to_encoded().into_raw();
    // In a device segment, the alignment of a buffer may be smaller than the declared alignment.
    let max_alignment = if buffer.device() == Device::CPU {
        u64::MAX
    } else {
        1 << buffer.address().trailing_zeros().min(63)
    };
    raw.alignment = record.alignment.min(max_alignment);
    // SAFETY: `raw` is the buffer that `to_encoded` exported. For host memory, `EncodedArray::new`
    // checks that the address is a multiple of the alignment. For device memory, the lines above
    // limit the alignment.
    Ok(unsafe { Owned::new(raw) })
}

/// Copies all host buffers of an array into shared memory, so that the array is copied only once
/// even if it is sent to plugins' processes several times.
pub fn to_shared_memory(array: EncodedArray) -> Result<EncodedArray> {
    let mut to = Outgoing::to_plugin(None);
    let tree = TreeParts::write(array.root()?, &mut to)?;
    let files = Incoming::from_this_process(to.into_files()?)?;
    let mut shared = array;
    let mut records = tree.0.buffers.iter();
    for index in 0..shared.n_nodes() {
        for i in 0..shared.node(index)?.n_buffers() {
            let record = records.next().filter(|record| record.place.is_some());
            let Some(record) = record else { continue };
            shared.replace_buffer(index, i, |_| read_buffer(record, &files))?;
        }
    }
    Ok(shared)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use arrow_schema::{DataType, Field};
    use crossdock_arrays::{DeviceArray, first_difference};
    use crossdock_plugin_api::{LogicalType, NodeParts};
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::files::mapping::ReceiveBudget;
    use crate::wire::segments::{SegmentSender, SentSegment, fill};

    const ROWS: usize = 1 << 20;

    /// Creates a tree of one node with an unknown encoding.
    pub fn one_node(length: u64, buffers: Vec<Owned<abi::EncodedBuffer>>) -> EncodedArray {
        let node = NodeParts {
            encoding: "test".into(),
            logical_type: LogicalType::Dtype(vec![1]),
            length,
            metadata: Vec::new(),
            n_buffers: buffers.len() as u32,
            n_children: 0,
        };
        EncodedArray::new(vec![node], buffers).unwrap()
    }

    /// Creates a column of numbers in memory that is not shared.
    fn numbers(stream: &Stream) -> DeviceBatch {
        let values = stream.memory().alloc_with(stream, 8 * ROWS, |to| {
            let values = to.chunks_mut(8).zip(0u64..);
            values.for_each(|(place, value)| place.copy_from_slice(&value.to_le_bytes()));
            Ok(())
        });
        let buffers = vec![None, Some(values.unwrap().freeze_now())];
        let column =
            DeviceArray::try_new(DataType::UInt64, ROWS, 0, Some(0), buffers, Vec::new(), None).unwrap();
        let schema = Schema::new(vec![Field::new("number", DataType::UInt64, false)]);
        DeviceBatch::try_new(Arc::new(schema), ROWS, vec![column]).unwrap()
    }

    /// Sends a batch to the host. Returns the total length of the files in bytes, and the batch
    /// that the host reads.
    fn send(batch: &DeviceBatch, stream: &Stream) -> (u64, DeviceBatch) {
        let mut to = Outgoing::default();
        let streams = Streams::new(stream.clone(), None);
        let parts = BatchParts::write(batch.clone(), &streams, &mut to).unwrap();
        let files = to.into_files().unwrap();
        let size = |file: &std::os::fd::OwnedFd| {
            std::fs::File::from(file.try_clone().unwrap()).metadata().unwrap().len()
        };
        let bytes = files.iter().map(size).sum();
        let from = Incoming::from_plugin(files, &ReceiveBudget::default()).unwrap();
        (bytes, parts.read(batch.schema(), &from).unwrap())
    }

    #[test]
    fn slice_sends_only_its_rows_and_mapped_memory_is_not_copied() {
        let host = TestHost::new();
        let stream = host.stream(Device::CPU);
        let whole = numbers(&stream);
        let (bytes, received) = send(&whole, &stream);
        assert_eq!(bytes, 8 * ROWS as u64);
        assert_eq!(first_difference(&whole, &received, &stream).unwrap(), None);
        for (start, rows) in [(0, 1000), (ROWS / 2, 1000), (ROWS - 1, 1)] {
            let slice = whole.slice(start, rows).unwrap();
            let (bytes, received_slice) = send(&slice, &stream);
            assert!(bytes <= 8 * rows as u64 + 64, "{bytes} bytes for {rows} rows");
            assert_eq!(first_difference(&slice, &received_slice, &stream).unwrap(), None);
            // A received batch is already in a file, which is sent whole.
            let (bytes, resent) = send(&received.slice(start, rows).unwrap(), &stream);
            assert_eq!(bytes, 8 * ROWS as u64, "the file that it lies in");
            assert_eq!(first_difference(&slice, &resent, &stream).unwrap(), None);
        }
    }

    /// Returns the total length in bytes of the files that a plugin receives for a batch.
    fn bytes_sent_to_plugin(batch: &DeviceBatch, stream: &Stream) -> u64 {
        let mut to = Outgoing::to_plugin(None);
        let streams = Streams::new(stream.clone(), None);
        BatchParts::write(batch.clone(), &streams, &mut to).unwrap();
        let files = to.into_files().unwrap().into_iter().map(std::fs::File::from);
        files.map(|file| file.metadata().unwrap().len()).sum()
    }

    #[test]
    fn plugin_receives_only_the_sent_part_of_a_file() {
        let host = TestHost::new();
        let stream = host.stream(Device::CPU);
        // The file of a batch from another plugin is sent without a copy if the batch covers the
        // whole file.
        let (_, received) = send(&numbers(&stream), &stream);
        assert_eq!(bytes_sent_to_plugin(&received, &stream), 8 * ROWS as u64);
        for (start, rows) in [(0, 1000), (ROWS / 2, ROWS / 2), (1, ROWS - 1)] {
            let bytes = bytes_sent_to_plugin(&received.slice(start, rows).unwrap(), &stream);
            assert!(
                bytes <= 8 * ROWS as u64 && (rows > 1000 || bytes <= 8 * rows as u64 + 64),
                "{bytes} bytes for {rows} rows"
            );
        }
        // The batch is a part of a user's file.
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[7; 4 * 4096]).unwrap();
        let mapping = Mapping::new(Arc::new(file)).unwrap().unwrap();
        let owner = ForeignOwner::new(mapping.clone());
        let part = &mapping.bytes()[4096..4096 + 800];
        let address = part.as_ptr().addr() as u64;
        // SAFETY: the buffer is 800 bytes of the mapping, and `owner` keeps the mapping.
        let values = unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(800), Ready::Now) };
        let buffers = vec![None, Some(values)];
        let column =
            DeviceArray::try_new(DataType::UInt64, 100, 0, Some(0), buffers, Vec::new(), None).unwrap();
        let schema = Schema::new(vec![Field::new("number", DataType::UInt64, false)]);
        let batch = DeviceBatch::try_new(Arc::new(schema), 100, vec![column]).unwrap();
        assert_eq!(bytes_sent_to_plugin(&batch, &stream), 800);
        assert_eq!(send(&batch, &stream).0, 4 * 4096, "the host receives the file itself");
    }

    /// Segments on the untouchable device.
    struct TestSegments(Stream, Mutex<Vec<Buffer>>);

    impl SegmentSender for TestSegments {
        fn device(&self) -> Device {
            self.0.device()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
            let mut segment = self.0.memory().alloc(&self.0, bytes)?;
            let filled = fill(&mut segment, buffers, &self.0)?;
            self.1.lock().unwrap().push(segment.freeze_now());
            Ok(SentSegment { number: 0, bytes: bytes as u64, file: None, filled })
        }
    }

    #[test]
    fn slice_on_a_device_sends_only_its_rows_in_segments() {
        let host = TestHost::new();
        let (cpu, device) = (host.stream(Device::CPU), host.stream(Device::UNTOUCHABLE));
        let whole = numbers(&cpu).move_to(&device, Device::UNTOUCHABLE).unwrap();
        let streams = Streams::new(cpu.clone(), Some(device.clone()));
        for (start, rows) in [(0, ROWS), (ROWS / 2, 1000), (ROWS - 1, 1), (7, 0)] {
            let slice = whole.slice(start, rows).unwrap();
            let segments = Arc::new(TestSegments(device.clone(), Mutex::default()));
            let mut to = Outgoing::to_host(Some(segments.clone()));
            let parts = BatchParts::write(slice.clone(), &streams, &mut to).unwrap();
            assert!(to.into_files().unwrap().is_empty(), "buffers were copied to the host");
            let segments = std::mem::take(&mut *segments.1.lock().unwrap());
            let bytes: usize = segments.iter().map(|segment| segment.len().unwrap()).sum();
            assert!(bytes <= 8 * rows + 64, "{bytes} bytes for {rows} rows");
            let from =
                Incoming::from_plugin(Vec::new(), &ReceiveBudget::default()).unwrap().with_segments(segments);
            let received = parts.read(whole.schema(), &from).unwrap();
            assert!(rows == 0 || received.device() == Device::UNTOUCHABLE);
            assert_eq!(first_difference(&slice, &received, &device).unwrap(), None);
        }
    }

    #[test]
    fn rejects_plugin_tree_whose_device_buffers_were_not_sent() {
        let host = TestHost::new();
        let device = host.stream(Device::UNTOUCHABLE);
        let bytes = device.memory().alloc(&device, 64).unwrap().freeze_now();
        let tree = one_node(8, vec![bytes.to_encoded()]);
        let parts = || TreeParts::write(tree.root().unwrap(), &mut Outgoing::default()).unwrap();
        let from = Incoming::from_plugin(Vec::new(), &ReceiveBudget::default()).unwrap();
        let error = parts().read(&from).err().unwrap();
        assert!(error.message().contains("64 bytes that was not sent"), "{error}");
        // Messages from the host are trusted, so they may contain such a buffer.
        assert!(parts().read(&Incoming::from_host(Vec::new()).unwrap()).is_ok());
    }
}
