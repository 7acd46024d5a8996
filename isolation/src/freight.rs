//! Arrays as plain data and places in shared memory.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use crossdock_arrays::layout::{BufferKind, ChildRule, Layout, layout};
use crossdock_arrays::{DeviceArray, DeviceBatch, import_field_ref, import_schema};
use crossdock_memory::{Buffer, ForeignOwner, HostView, Ready, Stream};
use crossdock_plugin_api::encoded::blob::schema;
use crossdock_plugin_api::{
    Device, EncodedArray, EncodedNode, Error, LogicalType, NodeParts, Owned, Result, abi,
};
use serde::{Deserialize, Serialize};

use crate::device_parts::DeviceParts;
use crate::mapping::Mapping;
use crate::outgoing::Outgoing;
use crate::rooms::Streams;
use crate::shared::{Incoming, Place};

/// A batch of a schema that both sides know.
#[derive(Serialize, Deserialize)]
pub struct BatchParts {
    rows: u64,
    metadata: Vec<(String, String)>,
    /// Of all columns, in pre-order; a dictionary after the children.
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

/// An encoded array, or a node with all that is below it.
#[derive(Serialize, Deserialize)]
pub struct TreeParts {
    nodes: Vec<NodeRecord>,
    buffers: Vec<BufferRecord>,
}

#[derive(Serialize, Deserialize)]
struct BufferRecord {
    /// `None`: on a device, where neither side looks.
    place: Option<Place>,
    bytes: u64,
    /// What its address is a multiple of.
    alignment: u64,
    device: DeviceParts,
}

#[derive(Serialize, Deserialize)]
struct NodeRecord {
    encoding: String,
    schema: Option<Vec<u8>>,
    dtype: Vec<u8>,
    length: u64,
    metadata: Vec<u8>,
    n_buffers: u32,
    n_children: u32,
}

/// A schema as bytes.
pub fn write_schema(of: &abi::ArrowSchema) -> Result<Vec<u8>> {
    // SAFETY: as it came from a plugin's or the host's hands, which vouch for it.
    unsafe { schema::write(of) }
}

/// A schema from bytes.
pub fn read_schema(bytes: &[u8]) -> Result<(Owned<abi::ArrowSchema>, SchemaRef)> {
    let raw = schema::read(bytes)?;
    let known = Arc::new(import_schema(&raw)?);
    Ok((raw, known))
}

/// Of the one column that a node decodes to.
pub fn column_schema(node: EncodedNode<'_>) -> Result<SchemaRef> {
    // SAFETY: a node's schema, which lives as long as its array.
    let field = unsafe { import_field_ref(node.schema()?) }?;
    Ok(Arc::new(Schema::new(vec![field])))
}

impl BatchParts {
    /// A batch. What lies in no file yet is copied into one, or into a room where it lies on a device that the message takes.
    pub fn write(mut batch: DeviceBatch, streams: &Streams, to: &mut Outgoing) -> Result<Self> {
        let stream = streams.of(batch.device());
        batch.resolve_sizes(stream)?;
        let is_part = match to.takes_files() {
            true => is_small_part(&batch, stream)?,
            false => batch.columns().iter().any(has_other_rows),
        };
        if is_part {
            batch = batch.compact(stream)?;
        }
        let mut views = Vec::new();
        for column in batch.columns() {
            views_of(column, stream, to, &mut views)?;
        }
        to.only(views.iter().map(|view| &**view));
        let mut arrays = Vec::new();
        for column in batch.columns() {
            write_array(column, stream, to, &mut arrays)?;
        }
        to.lend()?;
        let metadata = batch.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Self { rows: batch.len() as u64, metadata, arrays })
    }

    /// The batch of this schema, after the checks that need no look at contents.
    pub fn read(self, schema: &SchemaRef, from: &Incoming) -> Result<DeviceBatch> {
        let mut parts = self.arrays.into_iter();
        let mut columns = Vec::new();
        for field in schema.fields() {
            let column = read_array(field.data_type(), &mut parts, from);
            columns.push(column.map_err(|error| error.context(format_args!("column '{}'", field.name())))?);
        }
        if parts.next().is_some() {
            return Err(Error::bad_data(format!("more arrays than {} columns have", schema.fields().len())));
        }
        let batch = DeviceBatch::try_new(schema.clone(), size(self.rows)?, columns)?;
        Ok(batch.with_metadata(self.metadata.into_iter().collect()))
    }
}

/// The bytes of all buffers in host memory.
fn views_of<'a>(
    array: &'a DeviceArray,
    stream: &Stream,
    to: &Outgoing,
    views: &mut Vec<HostView<'a>>,
) -> Result<()> {
    for buffer in
        array.buffers().iter().flatten().filter(|buffer| is_of_the_host(buffer) && !to.takes(buffer.device()))
    {
        views.push(buffer.host_view(stream)?);
    }
    array.children().iter().chain(array.dictionary()).try_for_each(|child| views_of(child, stream, to, views))
}

/// Bytes of an array's first buffer after the validity: how many its rows have, and how many there are; `None` where it has no such.
fn own_and_all(array: &DeviceArray) -> Option<(usize, usize, &Buffer)> {
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

/// Whether most of what its buffers have belongs to other rows, as in a slice: that would be copied with every such slice. What goes
/// to the host in a file that is mapped is not copied at all.
fn is_small_part(batch: &DeviceBatch, stream: &Stream) -> Result<bool> {
    const WORTH_IT: usize = 64 << 10;
    for (own, all, buffer) in batch.columns().iter().filter_map(own_and_all) {
        if all <= own.saturating_mul(2).saturating_add(WORTH_IT) {
            continue;
        }
        if !is_of_the_host(buffer) || Mapping::file_around(&buffer.host_view(stream)?).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether its buffers contain rows outside the array, which a receiver of the buffers could read.
fn has_other_rows(array: &DeviceArray) -> bool {
    const PADDING: usize = 64;
    let more = own_and_all(array).is_some_and(|(own, all, _)| all > own + PADDING);
    let below = || matches!(array.layout().child_rule, ChildRule::SameRows | ChildRule::Times(_));
    more || array.offset() > 0 || (below() && array.children().iter().any(has_other_rows))
}

fn is_of_the_host(buffer: &Buffer) -> bool {
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
        if to.takes(buffer.device()) {
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

/// As deep as the type, which is no deeper than any type may be.
fn read_array(
    data_type: &DataType,
    parts: &mut impl Iterator<Item = ArrayParts>,
    from: &Incoming,
) -> Result<DeviceArray> {
    let own = parts.next().ok_or_else(|| Error::bad_data("fewer arrays than the columns have"))?;
    let Layout { children: expected, dictionary: values, .. } = layout(data_type);
    if own.n_children as usize != expected.len() || own.has_dictionary != values.is_some() {
        return Err(Error::bad_data(format!(
            "an array of type {data_type} with {} children, expected {}",
            own.n_children,
            expected.len()
        )));
    }
    let buffer = |place: Option<Place>| place.map(|place| from.buffer(place)).transpose();
    let buffers = own.buffers.into_iter().map(buffer).collect::<Result<_>>()?;
    let fields = (0..expected.len()).filter_map(|i| expected.get(i));
    let children = fields.map(|field| read_array(field.data_type(), parts, from)).collect::<Result<_>>()?;
    let dictionary = values.map(|(_, values)| read_array(values, parts, from)).transpose()?;
    let null_count = own.null_count.map(size).transpose()?;
    DeviceArray::try_new(
        data_type.clone(),
        size(own.rows)?,
        size(own.offset)?,
        null_count,
        buffers,
        children,
        dictionary,
    )
}

impl TreeParts {
    /// A table of many nodes, which is no tree.
    #[cfg(test)]
    pub fn of_equal_nodes(node: EncodedNode<'_>, n: usize) -> Self {
        let one = || Self::write(node, &mut Outgoing::default()).unwrap_or_else(|error| panic!("{error}"));
        Self { nodes: (0..n).flat_map(|_| one().nodes).collect(), buffers: Vec::new() }
    }

    /// A node and all that is below it. Of buffers on devices that the message does not take no more is told than that they are there.
    pub fn write(root: EncodedNode<'_>, to: &mut Outgoing) -> Result<Self> {
        let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
        for index in root.index()..root.end() {
            let node = root.at(index)?;
            nodes.push(NodeRecord {
                encoding: node.encoding().to_owned(),
                schema: if node.dtype().is_some() { None } else { Some(write_schema(node.schema()?)?) },
                dtype: node.dtype().unwrap_or_default().to_vec(),
                length: node.length(),
                metadata: node.metadata().to_vec(),
                n_buffers: node.n_buffers() as u32,
                n_children: node.n_children() as u32,
            });
            for i in 0..node.n_buffers() {
                buffers.push(write_buffer(&node.buffer(i)?, to)?);
            }
        }
        // While the array is there.
        to.lend()?;
        Ok(Self { nodes, buffers })
    }

    /// The tree.
    pub fn read(self, from: &Incoming) -> Result<EncodedArray> {
        let node = |record: NodeRecord| -> Result<NodeParts> {
            let logical_type = match record.schema {
                Some(bytes) => LogicalType::Schema(schema::read(&bytes)?),
                None => LogicalType::Dtype(record.dtype),
            };
            Ok(NodeParts {
                encoding: record.encoding,
                logical_type,
                length: record.length,
                metadata: record.metadata,
                n_buffers: record.n_buffers,
                n_children: record.n_children,
            })
        };
        let nodes = self.nodes.into_iter().map(node).collect::<Result<_>>()?;
        let buffers =
            self.buffers.into_iter().map(|record| read_buffer(&record, from)).collect::<Result<_>>()?;
        EncodedArray::new(nodes, buffers)
    }
}

fn write_buffer(buffer: &abi::EncodedBuffer, to: &mut Outgoing) -> Result<BufferRecord> {
    // What was taken out of a node that is decoded already is all zeros.
    let (alignment, device, bytes) = (buffer.alignment.max(1), buffer.device, buffer.bytes);
    let place = if device == Device::CPU && buffer.release.is_some() && bytes > 0 {
        let beyond = |_| Error::internal("a buffer beyond memory");
        let bytes = usize::try_from(bytes).map_err(beyond)?;
        // SAFETY: a buffer of a sound array, in host memory, which lives as long as the array that is borrowed here.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), bytes) };
        Some(to.place(bytes, alignment)?)
    } else if to.takes(Device::from_arrow(device.r#type, device.id)) && bytes > 0 {
        let owner = ForeignOwner::new(());
        let address = buffer.address.addr() as u64;
        // SAFETY: as above, and it is copied before this borrow ends; its event is its own.
        let there = unsafe {
            let ready = Ready::from_sync_event(buffer.sync_event, &owner);
            Buffer::foreign(&owner, device, address, Some(bytes), ready)
        };
        Some(to.place_on_device(there, alignment)?)
    } else {
        None
    };
    Ok(BufferRecord { place, bytes, alignment, device: device.into() })
}

fn read_buffer(record: &BufferRecord, from: &Incoming) -> Result<Owned<abi::EncodedBuffer>> {
    let nowhere = || {
        let address = if record.bytes == 0 { 0 } else { record.alignment };
        let owner = ForeignOwner::new(());
        // SAFETY: nobody reads what is on a device, or has no bytes; who decodes gets buffers in host memory.
        unsafe { Buffer::foreign(&owner, record.device.into(), address, Some(record.bytes), Ready::Now) }
    };
    let buffer = match record.place {
        Some(place) => from.buffer(place)?,
        None if record.bytes == 0 || from.is_believed() => nowhere(),
        None => return Err(Error::bad_data(format!("a buffer of {} bytes that did not come", record.bytes))),
    };
    let mut raw = buffer.to_encoded().into_raw();
    // On a device it may lie at a multiple of less than where it came from.
    let most = if buffer.device() == Device::CPU {
        u64::MAX
    } else {
        1 << buffer.address().trailing_zeros().min(63)
    };
    raw.alignment = record.alignment.min(most);
    // SAFETY: the same buffer; that its address is such a multiple is looked at with the tree.
    Ok(unsafe { Owned::new(raw) })
}

/// The array with all that it has in host memory where other processes can see it, so that it goes there any number of times and
/// is copied once.
pub fn share(array: EncodedArray) -> Result<EncodedArray> {
    let mut to = Outgoing::to_plugin(None);
    let tree = TreeParts::write(array.root()?, &mut to)?;
    let files = Incoming::of_this_process(to.into_files()?)?;
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
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::mapping::Allowance;
    use crate::rooms::{Lender, Lent, fill};

    const ROWS: usize = 1 << 20;

    /// A tree of no encoding that there is.
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

    /// A column of numbers, in memory of its own.
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

    /// How many bytes were sent, and what arrived.
    fn sent(batch: &DeviceBatch, stream: &Stream) -> (u64, DeviceBatch) {
        let mut to = Outgoing::default();
        let streams = Streams::new(stream.clone(), None);
        let parts = BatchParts::write(batch.clone(), &streams, &mut to).unwrap();
        let files = to.into_files().unwrap();
        let size = |file: &std::os::fd::OwnedFd| {
            std::fs::File::from(file.try_clone().unwrap()).metadata().unwrap().len()
        };
        let bytes = files.iter().map(size).sum();
        let from = Incoming::of_a_plugin(files, &Allowance::default()).unwrap();
        (bytes, parts.read(batch.schema(), &from).unwrap())
    }

    #[test]
    fn of_a_slice_its_own_rows_are_sent_and_what_is_mapped_is_not_copied_again() {
        let host = TestHost::new();
        let stream = host.stream(Device::CPU);
        let whole = numbers(&stream);
        let (bytes, arrived) = sent(&whole, &stream);
        assert_eq!(bytes, 8 * ROWS as u64);
        assert_eq!(first_difference(&whole, &arrived, &stream).unwrap(), None);
        for (at, rows) in [(0, 1000), (ROWS / 2, 1000), (ROWS - 1, 1)] {
            let slice = whole.slice(at, rows).unwrap();
            let (bytes, there) = sent(&slice, &stream);
            assert!(bytes <= 8 * rows as u64 + 64, "{bytes} bytes for {rows} rows");
            assert_eq!(first_difference(&slice, &there, &stream).unwrap(), None);
            // What arrived is in a file already, whatever is taken of it.
            let (bytes, again) = sent(&arrived.slice(at, rows).unwrap(), &stream);
            assert_eq!(bytes, 8 * ROWS as u64, "it goes on as the file that it lies in");
            assert_eq!(first_difference(&slice, &again, &stream).unwrap(), None);
        }
    }

    /// How many bytes a plugin gets to see of what is sent to it.
    fn shown_to_a_plugin(batch: &DeviceBatch, stream: &Stream) -> u64 {
        let mut to = Outgoing::to_plugin(None);
        let streams = Streams::new(stream.clone(), None);
        BatchParts::write(batch.clone(), &streams, &mut to).unwrap();
        let files = to.into_files().unwrap().into_iter().map(std::fs::File::from);
        files.map(|file| file.metadata().unwrap().len()).sum()
    }

    #[test]
    fn a_plugin_gets_no_more_of_a_file_than_what_is_sent_to_it() {
        let host = TestHost::new();
        let stream = host.stream(Device::CPU);
        // What another plugin sent: whole, it goes on as it came.
        let (_, arrived) = sent(&numbers(&stream), &stream);
        assert_eq!(shown_to_a_plugin(&arrived, &stream), 8 * ROWS as u64);
        for (at, rows) in [(0, 1000), (ROWS / 2, ROWS / 2), (1, ROWS - 1)] {
            let shown = shown_to_a_plugin(&arrived.slice(at, rows).unwrap(), &stream);
            assert!(
                shown <= 8 * ROWS as u64 && (rows > 1000 || shown <= 8 * rows as u64 + 64),
                "{shown} of {rows}"
            );
        }
        // A user's file, of which the batch is a part.
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[7; 4 * 4096]).unwrap();
        let mapping = Mapping::of(Arc::new(file)).unwrap().unwrap();
        let owner = ForeignOwner::new(mapping.clone());
        let part = &mapping.bytes()[4096..4096 + 800];
        let address = part.as_ptr().addr() as u64;
        // SAFETY: bytes of the mapping, which the owner keeps.
        let values = unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(800), Ready::Now) };
        let buffers = vec![None, Some(values)];
        let column =
            DeviceArray::try_new(DataType::UInt64, 100, 0, Some(0), buffers, Vec::new(), None).unwrap();
        let schema = Schema::new(vec![Field::new("number", DataType::UInt64, false)]);
        let batch = DeviceBatch::try_new(Arc::new(schema), 100, vec![column]).unwrap();
        assert_eq!(shown_to_a_plugin(&batch, &stream), 800);
        assert_eq!(sent(&batch, &stream).0, 4 * 4096, "to the host the file goes");
    }

    /// Rooms on the test device, one after the other.
    struct Rooms(Stream, Mutex<Vec<Buffer>>);

    impl Lender for Rooms {
        fn device(&self) -> Device {
            self.0.device()
        }

        fn lend(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Lent> {
            let mut room = self.0.memory().alloc(&self.0, bytes)?;
            fill(&mut room, buffers, &self.0)?;
            self.1.lock().unwrap().push(room.freeze_now());
            Ok(Lent { number: 0, bytes: bytes as u64, file: None, kept: None })
        }
    }

    #[test]
    fn what_lies_on_a_device_goes_in_rooms_and_of_a_slice_its_own_rows_do() {
        let host = TestHost::new();
        let (cpu, there) = (host.stream(Device::CPU), host.stream(Device::UNTOUCHABLE));
        let whole = numbers(&cpu).move_to(&there, Device::UNTOUCHABLE).unwrap();
        let streams = Streams::new(cpu.clone(), Some(there.clone()));
        for (at, rows) in [(0, ROWS), (ROWS / 2, 1000), (ROWS - 1, 1), (7, 0)] {
            let slice = whole.slice(at, rows).unwrap();
            let rooms = Arc::new(Rooms(there.clone(), Mutex::default()));
            let mut to = Outgoing::to(Some(rooms.clone()));
            let parts = BatchParts::write(slice.clone(), &streams, &mut to).unwrap();
            assert!(to.into_files().unwrap().is_empty(), "bytes went through the host");
            let rooms = std::mem::take(&mut *rooms.1.lock().unwrap());
            let bytes: usize = rooms.iter().map(|room| room.len().unwrap()).sum();
            assert!(bytes <= 8 * rows + 64, "{bytes} bytes for {rows} rows");
            let from = Incoming::of_a_plugin(Vec::new(), &Allowance::default()).unwrap().with_rooms(rooms);
            let arrived = parts.read(whole.schema(), &from).unwrap();
            assert!(rows == 0 || arrived.device() == Device::UNTOUCHABLE);
            assert_eq!(first_difference(&slice, &arrived, &there).unwrap(), None);
        }
    }

    #[test]
    fn a_plugin_s_tree_has_no_buffers_but_those_that_came() {
        let host = TestHost::new();
        let there = host.stream(Device::UNTOUCHABLE);
        let bytes = there.memory().alloc(&there, 64).unwrap().freeze_now();
        let tree = one_node(8, vec![bytes.to_encoded()]);
        let told = || TreeParts::write(tree.root().unwrap(), &mut Outgoing::default()).unwrap();
        let from = Incoming::of_a_plugin(Vec::new(), &Allowance::default()).unwrap();
        let refused = told().read(&from).err().unwrap();
        assert!(refused.message().contains("64 bytes that did not come"), "{refused}");
        // The host's word for where its own are is good.
        assert!(told().read(&Incoming::of_the_host(Vec::new()).unwrap()).is_ok());
    }
}
