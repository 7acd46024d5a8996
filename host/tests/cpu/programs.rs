//! What programs do with buffers, and with what a plugin decodes below them, here values that do not begin where their buffer
//! does.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock::api::{
    About, Call, Device, EncodedArray, EncodedNode, Encoding, Host as HostHandle, LogicalType, NodeParts,
    Operator, Owned, Plugin, Result, abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_arrays::{DeviceArray, DeviceBatch, cells, export_batch, export_field};
use crossdock_memory::{Buffer, ForeignOwner, Memory, Ready, Stream};

const IDS: [&str; 9] = [
    "of.load",
    "of.unpack",
    "of.codes",
    "of.child",
    "of.cast",
    "of.dictionary",
    "of.runs",
    "of.patches",
    "of.sequence",
];

/// The same for the metadata.
const OF_PROGRAMS: &str =
    "of.load of.unpack of.codes of.child of.cast of.dictionary of.runs of.patches of.sequence";

/// Has programs alone, called after what they begin with.
struct Programs;

impl Plugin for Programs {
    fn create(_: HostHandle) -> Result<Self> {
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Programs {
    fn ids(&self) -> &[&'static str] {
        &IDS
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(Some(4 * node.length()))
    }

    fn decodes(&self) -> bool {
        false
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let add = Operator::Add(100);
        Ok(Some(match node.encoding() {
            "of.load" => vec![Operator::Load { buffer: 0, at: 4 }],
            "of.unpack" => vec![Operator::Unpack { buffer: 0, bits: 32, first: 2 }, add],
            "of.codes" => vec![Operator::Unpack { buffer: 0, bits: 8, first: 0 }],
            "of.child" => vec![Operator::Child(0), add],
            "of.cast" => vec![Operator::Cast(0), add],
            "of.dictionary" => vec![Operator::Dictionary { codes: 0, values: 1 }, add],
            "of.runs" => vec![Operator::Runs { ends: 0, values: 1, first: 1 }, add],
            "of.patches" => {
                let patch = Operator::Patch { indices: 0, values: 1, first: 1 };
                vec![Operator::Load { buffer: 0, at: 0 }, patch, add]
            }
            _ => vec![Operator::Sequence { base: 0, step: 1 }],
        }))
    }
}

/// Decodes its nodes to 1, 2, 3 and so on, from the second place of a buffer on.
struct Further(Memory);

impl Plugin for Further {
    fn create(host: HostHandle) -> Result<Self> {
        Memory::from_host(&host).map(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Further {
    fn ids(&self) -> &[&'static str] {
        &["further"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        // SAFETY: the call's own stream, which its caller keeps alive.
        let stream = unsafe { Stream::of_call(&self.0, call.device(), call.stream()) }?;
        // SAFETY: the tree was found sound: each node has a schema that lives as long as the array.
        let field = unsafe { crossdock_arrays::import_field_ref(node.schema()?) }?;
        let width = field.data_type().primitive_width().unwrap();
        let bytes = (0..=node.length()).flat_map(|i| i.to_le_bytes()[..width].to_vec()).collect::<Vec<u8>>();
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&bytes);
            Ok(())
        };
        let buffer = self.0.alloc_with(&stream, bytes.len(), fill)?.freeze(&stream)?;
        let (data_type, n) = (field.data_type().clone(), node.length() as usize);
        // Of values that may be null the fourth place's is.
        let bits = |to: &mut [u8]| {
            to.fill(0b1111_0111);
            Ok(())
        };
        let validity =
            field.is_nullable().then(|| self.0.alloc_with(&stream, n / 8 + 1, bits)?.freeze(&stream));
        let (validity, null_count) =
            (validity.transpose()?, if field.is_nullable() { None } else { Some(0) });
        let buffers = vec![validity, Some(buffer)];
        let column = DeviceArray::try_new(data_type, n + 1, 0, null_count, buffers, vec![], None)?;
        let schema = Arc::new(Schema::new(vec![field.with_name("")]));
        let batch = export_batch(&DeviceBatch::try_new(schema, n + 1, vec![column])?, false, &stream)?;
        // As others export a part of an array.
        let mut raw = batch.into_raw();
        raw.array.array.length = n as i64;
        // SAFETY: the struct has one child, which lives as long.
        let child = unsafe { &mut **raw.array.array.children };
        (child.length, child.offset) = (n as i64, 1);
        // SAFETY: the batch was the `Owned` one's.
        Ok(unsafe { Owned::new(raw) })
    }
}

fn plugin(entry: &'static abi::PluginEntry, name: &'static str, encodings: &'static str) -> LinkedPlugin {
    let about = About {
        name,
        version: "0.1.0",
        description: "decodes",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings,
    };
    LinkedPlugin::new(entry, about.meta())
}

fn session(device: Device, limit_bytes: Option<usize>) -> Session {
    static PROGRAMS: abi::PluginEntry = entry::<Programs>();
    static FURTHER: abi::PluginEntry = entry::<Further>();
    let search = Search::nowhere()
        .linked(plugin(&PROGRAMS, "programs", OF_PROGRAMS))
        .linked(plugin(&FURTHER, "further", "further"));
    let backend = limit_bytes
        .into_iter()
        .fold(Backend::builder().untouchable(true), |builder, bytes| builder.limit_bytes(bytes));
    let host = Host::builder().backend(backend.build()).search(search).build().unwrap();
    host.session().device(device).open().unwrap()
}

/// A node of this encoding, type and length, with so many buffers and children.
fn node(encoding: &str, data_type: DataType, length: u64, n_buffers: u32, n_children: u32) -> NodeParts {
    NodeParts {
        encoding: encoding.into(),
        logical_type: LogicalType::Schema(export_field(&Field::new("", data_type, false)).unwrap()),
        length,
        metadata: Vec::new(),
        n_buffers,
        n_children,
    }
}

fn nullable(node: NodeParts, data_type: DataType) -> NodeParts {
    let field = export_field(&Field::new("", data_type, true)).unwrap();
    NodeParts { logical_type: LogicalType::Schema(field), ..node }
}

fn words(words: impl IntoIterator<Item = i32>) -> Vec<u8> {
    words.into_iter().flat_map(i32::to_le_bytes).collect()
}

fn tree(nodes: Vec<NodeParts>, buffers: Vec<Vec<u8>>) -> EncodedArray {
    let lent = |bytes: Vec<u8>| {
        let (address, n) = (bytes.as_ptr() as u64, bytes.len() as u64);
        // SAFETY: the owner has as many bytes there, which stay.
        let buffer =
            unsafe { Buffer::foreign(&ForeignOwner::new(bytes), Device::CPU, address, Some(n), Ready::Now) };
        buffer.to_encoded()
    };
    EncodedArray::new(nodes, buffers.into_iter().map(lent).collect()).unwrap()
}

/// What a tree of i32 decodes to, which is the same on every device.
fn decoded(nodes: impl Fn() -> Vec<NodeParts>, buffers: &[Vec<u8>]) -> Vec<i32> {
    let [on_cpu, elsewhere] = [Device::CPU, Device::UNTOUCHABLE].map(|device| {
        let session = session(device, None);
        let batch = session.decode(tree(nodes(), buffers.to_vec())).unwrap();
        assert_eq!(batch.device(), device);
        let batch = batch.move_to(session.stream(), Device::CPU).unwrap();
        let column = &batch.columns()[0];
        let values = column.buffers()[1].as_ref().unwrap();
        let values = values.slice(4 * column.offset(), 4 * column.len()).unwrap();
        let bytes = values.host_view(session.stream()).unwrap();
        bytes.chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
    });
    assert_eq!(on_cpu, elsewhere);
    on_cpu
}

#[test]
fn words_of_a_buffer_are_loaded_from_the_byte_that_the_program_says() {
    let nodes = || vec![node("of.load", DataType::Int32, 3, 1, 0)];
    assert_eq!(decoded(nodes, &[words([9, 10, 20, 30])]), [10, 20, 30]);
}

#[test]
fn packed_words_are_unpacked_from_the_first_that_is_meant() {
    let nodes = || vec![node("of.unpack", DataType::Int32, 3, 1, 0)];
    // With as many bits as a word has, every place of a block has the word of another one: all are the same here.
    assert_eq!(decoded(nodes, &[words([7; 1024])]), [107, 107, 107]);
}

#[test]
fn values_that_do_not_begin_where_their_buffer_does_are_taken_from_where_they_begin() {
    let of = |encoding: &'static str, data_type: DataType| {
        move || vec![node(encoding, DataType::Int32, 3, 0, 1), node("further", data_type.clone(), 3, 0, 0)]
    };
    assert_eq!(decoded(of("of.child", DataType::Int32), &[]), [101, 102, 103]);
    assert_eq!(decoded(of("of.cast", DataType::UInt8), &[]), [101, 102, 103]);
    assert_eq!(decoded(of("of.cast", DataType::Int64), &[]), [101, 102, 103]);
}

#[test]
fn values_of_dictionaries_and_runs_go_through_the_steps_from_where_they_begin() {
    let of = |encoding: &'static str, length: u64| {
        move || {
            let child = |length| node("further", DataType::Int32, length, 0, 0);
            vec![
                node(encoding, DataType::Int32, length, 0, 2),
                child(3),
                child(if length == 3 { 4 } else { 3 }),
            ]
        }
    };
    // The codes are 1, 2 and 3.
    assert_eq!(decoded(of("of.dictionary", 3), &[]), [102, 103, 104]);
    // Runs of one value each, of which the first is left out.
    assert_eq!(decoded(of("of.runs", 2), &[]), [102, 103]);
}

#[test]
fn nulls_of_values_stay_where_they_are_looked_up_and_where_they_run() {
    let of = |encoding: &'static str, length: u64, n_values: u64| {
        let root = nullable(node(encoding, DataType::Int32, length, 0, 2), DataType::Int32);
        let values = nullable(node("further", DataType::Int32, n_values, 0, 0), DataType::Int32);
        vec![root, node("further", DataType::Int32, 3, 0, 0), values]
    };
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let session = session(device, None);
        let decoded = |nodes| {
            let batch = session.decode(tree(nodes, Vec::new())).unwrap();
            cells(&batch, batch.len(), session.stream()).unwrap().remove(0)
        };
        assert_eq!(decoded(of("of.dictionary", 3, 4)), ["102", "null", "104"], "{device}");
        assert_eq!(decoded(of("of.runs", 2, 3)), ["102", "null"], "{device}");
    }
}

/// Why a tree is not decoded on the CPU.
fn refused(nodes: Vec<NodeParts>, buffers: &[Vec<u8>]) -> String {
    session(Device::CPU, None).decode(tree(nodes, buffers.to_vec())).unwrap_err().one_line()
}

#[test]
fn patches_are_put_where_they_belong_and_go_through_the_steps_that_follow() {
    let nodes = |length| {
        // The indices are 1, 2 and so on, from each of which 1 is taken off.
        let (indices, values) = (DataType::UInt16, DataType::Int32);
        vec![
            node("of.patches", DataType::Int32, length, 1, 2),
            node("further", indices, 2, 0, 0),
            node("further", values, 2, 0, 0),
        ]
    };
    assert_eq!(decoded(|| nodes(4), &[words([9, 9, 9, 9])]), [101, 102, 109, 109]);
    let told = refused(nodes(1), &[words([9])]);
    assert!(told.contains("indices that rise, each within the array, got another as number 1"), "{told}");
}

#[test]
fn packed_codes_are_looked_up_and_those_that_stand_for_nothing_are_refused() {
    let nodes = || {
        vec![
            node("of.dictionary", DataType::Int32, 3, 0, 2),
            node("of.codes", DataType::UInt8, 3, 1, 0),
            node("further", DataType::Int32, 3, 0, 0),
        ]
    };
    assert_eq!(decoded(nodes, &[vec![2; 1024]]), [103, 103, 103]);
    let told = refused(nodes(), &[vec![3; 1024]]);
    assert!(told.contains("dictionary: expected codes below 3, got another as number 0"), "{told}");
}

#[test]
fn nodes_may_take_as_many_bytes_as_there_are_and_no_more() {
    let plan = |limit_bytes| {
        let tree = tree(vec![node("of.sequence", DataType::Int32, 64, 0, 0)], Vec::new());
        session(Device::CPU, Some(limit_bytes)).plan_decoding(&tree, Device::CPU)
    };
    plan(256).unwrap();
    let told = plan(255).unwrap_err().one_line();
    assert!(told.contains("64 values would take 256 bytes, more than the 255 that there are"), "{told}");
    // Neither is too large alone: the codes are there while the values are made.
    let both = |limit_bytes| {
        let children =
            [node("of.sequence", DataType::Int32, 64, 0, 0), node("further", DataType::Int32, 3, 0, 0)];
        let mut nodes = vec![node("of.dictionary", DataType::Int32, 64, 0, 2)];
        nodes.extend(children);
        session(Device::CPU, Some(limit_bytes)).plan_decoding(&tree(nodes, Vec::new()), Device::CPU)
    };
    both(512).unwrap();
    let told = both(511).unwrap_err().one_line();
    assert!(told.contains("512 bytes together, more than the 511 that there are"), "{told}");
}

#[test]
fn what_planning_a_large_tree_holds_is_counted_before_anything_is_decoded() {
    const NODES: usize = 2000;
    let large = || {
        let leaf = || node("further", DataType::Int32, 0, 0, 0);
        let root = node("further", DataType::Int32, 0, 0, NODES as u32);
        tree(std::iter::once(root).chain((0..NODES).map(|_| leaf())).collect(), Vec::new())
    };
    let told = session(Device::CPU, Some(1 << 20)).decode(large()).unwrap_err().one_line();
    assert!(told.contains("a tree of 2001 nodes"), "{told}");
    session(Device::CPU, Some(64 << 20)).decode(large()).unwrap();
}

#[test]
fn what_was_decoded_elsewhere_is_moved_to_where_it_is_wanted() {
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let tree = tree(vec![node("further", DataType::Int32, 3, 0, 0)], Vec::new());
        assert_eq!(session(device, None).decode(tree).unwrap().device(), device);
    }
}
