//! Decoding by programs, over buffers and over children that a plugin decodes.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock::Session;
use crossdock::api::{
    Call, Device, EncodedNode, Encoding, Host as HostHandle, LogicalType, NodeParts, Operator, Owned, Plugin,
    Result, abi, entry,
};
use crossdock::memory::Backend;
use crossdock_arrays::{DeviceArray, DeviceBatch, cells, export_batch, export_field};
use crossdock_memory::{Memory, Stream};

use crate::common::encoding::{self, node, tree};

/// The encodings, with one program each.
const IDS: [&str; 9] = [
    "test.load",
    "test.unpack",
    "test.codes",
    "test.child",
    "test.cast",
    "test.dictionary",
    "test.runs",
    "test.patches",
    "test.sequence",
];

/// The ids of the encodings, in the form in which the metadata lists them.
const IDS_IN_METADATA: &str = "test.load test.unpack test.codes test.child test.cast test.dictionary \
    test.runs test.patches test.sequence";

/// A plugin whose encodings have only programs.
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

    fn size(&self, node: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(Some(4 * node.length()))
    }

    fn decodes(&self) -> bool {
        false
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let add = Operator::Add(100);
        Ok(Some(match node.encoding() {
            "test.load" => vec![Operator::Load { buffer: 0, at: 4 }],
            "test.unpack" => vec![Operator::Unpack { buffer: 0, bits: 32, first: 2 }, add],
            "test.codes" => vec![Operator::Unpack { buffer: 0, bits: 8, first: 0 }],
            "test.child" => vec![Operator::Child(0), add],
            "test.cast" => vec![Operator::Cast(0), add],
            "test.dictionary" => vec![Operator::Dictionary { codes: 0, values: 1 }, add],
            "test.runs" => vec![Operator::Runs { ends: 0, values: 1, first: 1 }, add],
            "test.patches" => {
                let patch = Operator::Patch { indices: 0, values: 1, first: 1 };
                vec![Operator::Load { buffer: 0, at: 0 }, patch, add]
            }
            _ => vec![Operator::Sequence { base: 0, step: 1 }],
        }))
    }
}

/// A plugin whose encoding decodes to 1, 2, 3 and so on, in arrays with the offset 1.
struct WithOffset(Memory);

impl Plugin for WithOffset {
    fn create(host: HostHandle) -> Result<Self> {
        Memory::from_host(&host).map(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for WithOffset {
    fn ids(&self) -> &[&'static str] {
        &["with-offset"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        _: Range<u64>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        // SAFETY: the call's stream is valid during the call.
        let stream = unsafe { Stream::from_call(&self.0, call.device(), call.stream()) }?;
        // SAFETY: the host checked the tree: each node has a schema, which lives as long as the
        // array.
        let field = unsafe { crossdock_arrays::import_field_ref(node.schema()?) }?;
        let width = field.data_type().primitive_width().unwrap();
        let bytes = (0..=node.length()).flat_map(|i| i.to_le_bytes()[..width].to_vec()).collect::<Vec<u8>>();
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&bytes);
            Ok(())
        };
        let values = self.0.alloc_with(&stream, bytes.len(), fill)?.freeze(&stream)?;
        let (data_type, n) = (field.data_type().clone(), node.length() as usize);
        // If the type is nullable, the value 3 is null.
        let bits = |to: &mut [u8]| {
            to.fill(0b1111_0111);
            Ok(())
        };
        let validity =
            field.is_nullable().then(|| self.0.alloc_with(&stream, n / 8 + 1, bits)?.freeze(&stream));
        let (validity, null_count) =
            (validity.transpose()?, if field.is_nullable() { None } else { Some(0) });
        let buffers = vec![validity, Some(values)];
        let column = DeviceArray::try_new(data_type, n + 1, 0, null_count, buffers, vec![], None)?;
        let schema = Arc::new(Schema::new(vec![field.with_name("")]));
        let batch = export_batch(&DeviceBatch::try_new(schema, n + 1, vec![column])?, false, &stream)?;
        // A slice of the column without its first value, as Arrow libraries export it.
        let mut raw = batch.into_raw();
        raw.array.array.length = n as i64;
        // SAFETY: the batch has one column, which lives as long as the batch.
        let child = unsafe { &mut **raw.array.array.children };
        (child.length, child.offset) = (n as i64, 1);
        // SAFETY: `raw` came from an `Owned`, and nothing else owns it.
        Ok(unsafe { Owned::new(raw) })
    }
}

fn session(device: Device, limit_bytes: Option<usize>) -> Session {
    static PROGRAMS: abi::PluginEntry = entry::<Programs>();
    static WITH_OFFSET: abi::PluginEntry = entry::<WithOffset>();
    let backend = limit_bytes
        .into_iter()
        .fold(Backend::builder().untouchable(true), |builder, bytes| builder.limit_bytes(bytes));
    let plugins = [
        (&PROGRAMS, encoding::description("programs", IDS_IN_METADATA)),
        (&WITH_OFFSET, encoding::description("with-offset", "with-offset")),
    ];
    encoding::host(backend.build(), plugins).session().device(device).open().unwrap()
}

fn nullable(node: NodeParts, data_type: DataType) -> NodeParts {
    let field = export_field(&Field::new("", data_type, true)).unwrap();
    NodeParts { logical_type: LogicalType::Schema(field), ..node }
}

fn bytes_of(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

/// The values that an array of i32 decodes to, which are the same on every device.
fn decoded(nodes: impl Fn() -> Vec<NodeParts>, buffers: &[Vec<u8>]) -> Vec<i32> {
    let [on_cpu, on_device] = [Device::CPU, Device::UNTOUCHABLE].map(|device| {
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
    assert_eq!(on_cpu, on_device);
    on_cpu
}

#[test]
fn load_operator_begins_at_its_byte_offset() {
    let nodes = || vec![node("test.load", DataType::Int32, 3, 1, 0)];
    assert_eq!(decoded(nodes, &[bytes_of([9, 10, 20, 30])]), [10, 20, 30]);
}

#[test]
fn unpack_operator_begins_at_its_first_value() {
    let nodes = || vec![node("test.unpack", DataType::Int32, 3, 1, 0)];
    // All values are equal, because packing transposes the values of a block.
    assert_eq!(decoded(nodes, &[bytes_of([7; 1024])]), [107, 107, 107]);
}

#[test]
fn child_and_cast_operators_apply_the_offset_of_the_child_array() {
    let nodes = |encoding: &'static str, data_type: DataType| {
        move || {
            vec![node(encoding, DataType::Int32, 3, 0, 1), node("with-offset", data_type.clone(), 3, 0, 0)]
        }
    };
    assert_eq!(decoded(nodes("test.child", DataType::Int32), &[]), [101, 102, 103]);
    assert_eq!(decoded(nodes("test.cast", DataType::UInt8), &[]), [101, 102, 103]);
    assert_eq!(decoded(nodes("test.cast", DataType::Int64), &[]), [101, 102, 103]);
}

#[test]
fn program_steps_apply_to_dictionary_and_run_values_that_have_an_offset() {
    let nodes = |encoding: &'static str, length: u64| {
        move || {
            let child = |length| node("with-offset", DataType::Int32, length, 0, 0);
            vec![
                node(encoding, DataType::Int32, length, 0, 2),
                child(3),
                child(if length == 3 { 4 } else { 3 }),
            ]
        }
    };
    // The codes are 1, 2 and 3.
    assert_eq!(decoded(nodes("test.dictionary", 3), &[]), [102, 103, 104]);
    // The runs have one value each, and the program skips the first.
    assert_eq!(decoded(nodes("test.runs", 2), &[]), [102, 103]);
}

#[test]
fn dictionaries_and_runs_keep_nulls_of_their_values() {
    let nodes = |encoding: &'static str, length: u64, n_values: u64| {
        let root = nullable(node(encoding, DataType::Int32, length, 0, 2), DataType::Int32);
        let values = nullable(node("with-offset", DataType::Int32, n_values, 0, 0), DataType::Int32);
        vec![root, node("with-offset", DataType::Int32, 3, 0, 0), values]
    };
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let session = session(device, None);
        let decoded = |nodes| {
            let batch = session.decode(tree(nodes, Vec::new())).unwrap();
            cells(&batch, batch.len(), session.stream()).unwrap().remove(0)
        };
        assert_eq!(decoded(nodes("test.dictionary", 3, 4)), ["102", "null", "104"], "{device}");
        assert_eq!(decoded(nodes("test.runs", 2, 3)), ["102", "null"], "{device}");
    }
}

/// The error of decoding an array on the CPU.
fn error_of(nodes: Vec<NodeParts>, buffers: &[Vec<u8>]) -> String {
    session(Device::CPU, None).decode(tree(nodes, buffers.to_vec())).unwrap_err().one_line()
}

#[test]
fn steps_after_patches_apply_to_patched_values() {
    let nodes = |length| {
        // The stored indices are 1 and 2. The program subtracts `first`, which is 1, from each
        // index.
        let (indices, values) = (DataType::UInt16, DataType::Int32);
        vec![
            node("test.patches", DataType::Int32, length, 1, 2),
            node("with-offset", indices, 2, 0, 0),
            node("with-offset", values, 2, 0, 0),
        ]
    };
    assert_eq!(decoded(|| nodes(4), &[bytes_of([9, 9, 9, 9])]), [101, 102, 109, 109]);
    let error = error_of(nodes(1), &[bytes_of([9])]);
    let expected =
        "patches: expected ascending indices within the array, but the index at position 1 is invalid";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn rejects_packed_codes_beyond_the_dictionary() {
    let nodes = || {
        vec![
            node("test.dictionary", DataType::Int32, 3, 0, 2),
            node("test.codes", DataType::UInt8, 3, 1, 0),
            node("with-offset", DataType::Int32, 3, 0, 0),
        ]
    };
    assert_eq!(decoded(nodes, &[vec![2; 1024]]), [103, 103, 103]);
    let error = error_of(nodes(), &[vec![3; 1024]]);
    assert!(
        error.contains("dictionary: expected codes below 3, but the entry at position 0 is invalid"),
        "{error}"
    );
}

#[test]
fn rejects_nodes_that_need_more_than_the_memory_limit() {
    let plan = |limit_bytes| {
        let tree = tree(vec![node("test.sequence", DataType::Int32, 64, 0, 0)], Vec::new());
        session(Device::CPU, Some(limit_bytes)).plan_decoding(&tree, Device::CPU)
    };
    plan(256).unwrap();
    let error = plan(255).unwrap_err().one_line();
    assert!(error.contains("64 values need 256 bytes, expected at most 255"), "{error}");
    // Neither node exceeds the limit alone, but the codes are still in memory while the values are
    // decoded.
    let plan_both = |limit_bytes| {
        let children =
            [node("test.sequence", DataType::Int32, 64, 0, 0), node("with-offset", DataType::Int32, 3, 0, 0)];
        let mut nodes = vec![node("test.dictionary", DataType::Int32, 64, 0, 2)];
        nodes.extend(children);
        session(Device::CPU, Some(limit_bytes)).plan_decoding(&tree(nodes, Vec::new()), Device::CPU)
    };
    plan_both(512).unwrap();
    let error = plan_both(511).unwrap_err().one_line();
    assert!(error.contains("the nodes together need 512 bytes, expected at most 511"), "{error}");
}

#[test]
fn memory_of_the_plan_counts_against_the_limit() {
    const NODES: usize = 2000;
    let large = || {
        let leaf = || node("with-offset", DataType::Int32, 0, 0, 0);
        let root = node("with-offset", DataType::Int32, 0, 0, NODES as u32);
        tree(std::iter::once(root).chain((0..NODES).map(|_| leaf())).collect(), Vec::new())
    };
    let error = session(Device::CPU, Some(1 << 20)).decode(large()).unwrap_err().one_line();
    assert!(error.contains("a tree of 2001 nodes"), "{error}");
    session(Device::CPU, Some(64 << 20)).decode(large()).unwrap();
}

#[test]
fn decoded_batch_is_moved_to_the_device_of_the_session() {
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let tree = tree(vec![node("with-offset", DataType::Int32, 3, 0, 0)], Vec::new());
        assert_eq!(session(device, None).decode(tree).unwrap().device(), device);
    }
}
