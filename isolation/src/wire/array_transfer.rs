//! Array transfer: represents batches and encoded arrays as plain data. Each buffer is a place in a
//! file or a shared device segment.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use crossdock_arrays::layout::{BufferKind, ChildRule, Layout, layout};
use crossdock_arrays::{DeviceArray, DeviceBatch, import_field_ref, import_schema};
use crossdock_memory::{Buffer, ForeignOwner, HostView, Ready, Stream};
use crossdock_plugin_api::encoded::blob::schema;
use crossdock_plugin_api::{Device, EncodedArray, EncodedNode, Error, Owned, Result, abi};
use serde::{Deserialize, Serialize};

use crate::files::mapping::Mapping;
use crate::wire::device_parts::DeviceParts;
use crate::wire::device_segments::Streams;
use crate::wire::incoming::{Incoming, Place};
use crate::wire::node_transfer::NodeRecord;
pub use crate::wire::node_transfer::write_schema;
use crate::wire::outgoing::Outgoing;

/// A batch without its schema, because both processes know the schema.
#[derive(Serialize, Deserialize)]
pub struct BatchParts {
    rows: u64,
    metadata: Vec<(String, String)>,
    /// The arrays of all columns in pre-order. A dictionary follows the children of its array.
    arrays: Vec<ArrayParts>,
}

#[derive(Serialize, Deserialize)]
struct ArrayParts {
    rows: u64,
    offset: u64,
    null_count: Option<u64>,
    buffers: Vec<Option<Place>>,
    n_children: u32,
    has_dictionary: bool,
}

/// An encoded array, or a subtree of an encoded array.
#[derive(Serialize, Deserialize)]
pub struct TreeParts {
    nodes: Vec<NodeRecord>,
    buffers: Vec<BufferRecord>,
}

#[derive(Serialize, Deserialize)]
struct BufferRecord {
    /// `None` for a buffer on a device whose buffers are not transferred. Then only the metadata of
    /// the buffer is sent.
    place: Option<Place>,
    bytes: u64,
    /// The address of the buffer is a multiple of this alignment (bytes).
    alignment: u64,
    device: DeviceParts,
}

/// Parses a schema.
pub fn read_schema(bytes: &[u8]) -> Result<(Owned<abi::ArrowSchema>, SchemaRef)> {
    let raw = schema::read(bytes)?;
    let schema = Arc::new(import_schema(&raw)?);
    Ok((raw, schema))
}

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
    pub fn write(mut batch: DeviceBatch, streams: &Streams, to: &mut Outgoing) -> Result<Self> {
        let stream = streams.for_device(batch.device());
        batch.resolve_sizes(stream)?;
        let needs_compaction = match to.sends_whole_files() {
            true => is_small_part(&batch, stream)?,
            false => batch.columns().iter().any(has_other_rows),
        };
        if needs_compaction {
            batch = batch.compact(stream)?;
        }
        let mut views = Vec::new();
        for column in batch.columns() {
            collect_views(column, stream, to, &mut views)?;
        }
        to.restrict_to(views.iter().map(|view| &**view));
        let mut arrays = Vec::new();
        for column in batch.columns() {
            write_array(column, stream, to, &mut arrays)?;
        }
        to.fill_segments()?;
        let metadata = batch.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Self { rows: batch.len() as u64, metadata, arrays })
    }

    /// Returns the batch after all checks that do not read buffers.
    ///
    /// # Errors
    /// The arrays do not fit the schema, or a place is outside the message's files and segments.
    pub fn read(self, schema: &SchemaRef, from: &Incoming) -> Result<DeviceBatch> {
        let mut parts = self.arrays.into_iter();
        let mut columns = Vec::new();
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

/// Collects views of all buffers in host memory.
fn collect_views<'a>(
    array: &'a DeviceArray,
    stream: &Stream,
    to: &Outgoing,
    views: &mut Vec<HostView<'a>>,
) -> Result<()> {
    for buffer in array
        .buffers()
        .iter()
        .flatten()
        .filter(|buffer| is_host_memory(buffer) && !to.accepts_device(buffer.device()))
    {
        views.push(buffer.host_view(stream)?);
    }
    array
        .children()
        .iter()
        .chain(array.dictionary())
        .try_for_each(|child| collect_views(child, stream, to, views))
}

/// Returns the number of bytes that the array's rows use of the first buffer after the validity
/// bitmap, the length of this buffer in bytes, and the buffer. Returns `None` if the layout has no
/// such buffer.
fn used_and_total_bytes(array: &DeviceArray) -> Option<(usize, usize, &Buffer)> {
    let layout = array.layout();
    let bits = match layout.buffers().first()? {
        BufferKind::Bits => 1,
        BufferKind::Fixed { bytes: width } | BufferKind::Offsets { width } => 8 * width,
        BufferKind::Views => 128,
        _ => return None,
    };
    let buffer = array.buffers().get(usize::from(layout.has_validity))?.as_ref()?;
    Some(((array.len() + 1).saturating_mul(bits) / 8, buffer.len().unwrap_or(0), buffer))
}

/// Whether the batch uses only a small part of a buffer, for example because the batch is a slice.
/// Every transfer of such a batch would copy the whole buffer. Buffers in mapped files do not
/// count, because they are sent without a copy.
fn is_small_part(batch: &DeviceBatch, stream: &Stream) -> Result<bool> {
    const MIN_SAVED_BYTES: usize = 64 << 10;
    for (used, total, buffer) in batch.columns().iter().filter_map(used_and_total_bytes) {
        if total <= used.saturating_mul(2).saturating_add(MIN_SAVED_BYTES) {
            continue;
        }
        if !is_host_memory(buffer) || Mapping::file_containing(&buffer.host_view(stream)?).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the buffers contain rows outside the array. The plugin could read these rows.
fn has_other_rows(array: &DeviceArray) -> bool {
    const MAX_PADDING: usize = 64;
    let is_longer = used_and_total_bytes(array).is_some_and(|(used, total, _)| total > used + MAX_PADDING);
    let has_rows_below = || matches!(array.layout().child_rule, ChildRule::SameRows | ChildRule::Times(_));
    is_longer || array.offset() > 0 || (has_rows_below() && array.children().iter().any(has_other_rows))
}

fn is_host_memory(buffer: &Buffer) -> bool {
    matches!(buffer.device().r#type, abi::DEVICE_CPU | abi::DEVICE_CUDA_HOST)
}

fn write_array(
    array: &DeviceArray,
    stream: &Stream,
    to: &mut Outgoing,
    out: &mut Vec<ArrayParts>,
) -> Result<()> {
    let mut place = |buffer: &Option<Buffer>| -> Result<Option<Place>> {
        let Some(buffer) = buffer else { return Ok(None) };
        if to.accepts_device(buffer.device()) {
            return to.place_on_device(buffer.clone(), 1).map(Some);
        }
        to.place(&buffer.host_view(stream)?, 1).map(Some)
    };
    out.push(ArrayParts {
        rows: array.len() as u64,
        offset: array.offset() as u64,
        null_count: array.null_count().map(|n| n as u64),
        buffers: array.buffers().iter().map(&mut place).collect::<Result<_>>()?,
        n_children: array.children().len() as u32,
        has_dictionary: array.dictionary().is_some(),
    });
    array
        .children()
        .iter()
        .chain(array.dictionary())
        .try_for_each(|child| write_array(child, stream, to, out))
}

/// Reads the array and its children. The depth of the recursion is the depth of the type, which is
/// limited.
fn read_array(
    data_type: &DataType,
    parts: &mut impl Iterator<Item = ArrayParts>,
    from: &Incoming,
) -> Result<DeviceArray> {
    let record =
        parts.next().ok_or_else(|| Error::bad_data("the message has fewer arrays than the columns"))?;
    let Layout { children: expected, dictionary: values, .. } = layout(data_type);
    if record.n_children as usize != expected.len() || record.has_dictionary != values.is_some() {
        return Err(Error::bad_data(format!(
            "an array of type {data_type} has {} children, expected {}",
            record.n_children,
            expected.len()
        )));
    }
    let buffer = |place: Option<Place>| place.map(|place| from.buffer(place)).transpose();
    let buffers = record.buffers.into_iter().map(buffer).collect::<Result<_>>()?;
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

impl TreeParts {
    /// Creates parts with `n` equal nodes without buffers. The nodes form no tree.
    #[cfg(test)]
    pub fn of_equal_nodes(node: EncodedNode<'_>, n: usize) -> Self {
        let one = || Self::write(node, &mut Outgoing::default()).unwrap_or_else(|error| panic!("{error}"));
        Self { nodes: (0..n).flat_map(|_| one().nodes).collect(), buffers: Vec::new() }
    }

    /// Adds a node and all its descendants to a message. If a buffer is on a device that the
    /// message does not accept, only the metadata of the buffer is sent.
    pub fn write(root: EncodedNode<'_>, to: &mut Outgoing) -> Result<Self> {
        let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
        for index in root.index()..root.end() {
            let node = root.at(index)?;
            nodes.push(NodeRecord::write(node)?);
            for i in 0..node.n_buffers() {
                buffers.push(write_buffer(&node.buffer(i)?, to)?);
            }
        }
        // The segments are filled before the borrow of the array ends.
        to.fill_segments()?;
        Ok(Self { nodes, buffers })
    }

    /// Returns the encoded array.
    ///
    /// # Errors
    /// The nodes form no tree, or a place is outside the message's files and segments.
    pub fn read(self, from: &Incoming) -> Result<EncodedArray> {
        let nodes = self.nodes.into_iter().map(NodeRecord::read).collect::<Result<_>>()?;
        let buffers =
            self.buffers.into_iter().map(|record| read_buffer(&record, from)).collect::<Result<_>>()?;
        EncodedArray::new(nodes, buffers)
    }
}

fn write_buffer(buffer: &abi::EncodedBuffer, to: &mut Outgoing) -> Result<BufferRecord> {
    // All fields are zero if the node is already decoded and the buffer was moved out of it.
    let (alignment, device, bytes) = (buffer.alignment.max(1), buffer.device, buffer.bytes);
    let place = if device == Device::CPU && buffer.release.is_some() && bytes > 0 {
        let too_long = |_| Error::internal("a buffer that is longer than the address space");
        let bytes = usize::try_from(bytes).map_err(too_long)?;
        // SAFETY: the buffer belongs to an `EncodedArray` that the caller borrows. It is in host
        // memory and not released, so `bytes` bytes are readable at its address.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), bytes) };
        Some(to.place(bytes, alignment)?)
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
        Some(to.place_on_device(borrowed, alignment)?)
    } else {
        None
    };
    Ok(BufferRecord { place, bytes, alignment, device: device.into() })
}

fn read_buffer(record: &BufferRecord, from: &Incoming) -> Result<Owned<abi::EncodedBuffer>> {
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
    let mut records = tree.buffers.iter();
    for index in 0..shared.n_nodes() {
        for i in 0..shared.node(index)?.n_buffers() {
            let record = records.next().filter(|record| record.place.is_some());
            let Some(record) = record else { continue };
            shared.replace_buffer(index, i, |_| read_buffer(record, &files))?;
        }
    }
    Ok(shared)
}

fn size(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::bad_data(format!("{n} values")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use arrow_schema::{Field, Schema};
    use crossdock_arrays::first_difference;
    use crossdock_plugin_api::{LogicalType, NodeParts};
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::files::mapping::ReceiveBudget;
    use crate::wire::device_segments::{SegmentSender, SentSegment, fill};

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

        fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
            let mut segment = self.0.memory().alloc(&self.0, bytes)?;
            fill(&mut segment, buffers, &self.0)?;
            self.1.lock().unwrap().push(segment.freeze_now());
            Ok(SentSegment { id: 0, bytes: bytes as u64, file: None, memory: None })
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
