//! Tests that a session decodes encoded arrays on every device, from buffers on any device, and
//! rejects malformed arrays.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::{Host, NodePlan, Session, Table};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_field};
use crossdock_memory::{Buffer, Memory};
use crossdock_plugin_api::{
    Call, Device, EncodedArray, EncodedNode, Encoding, LogicalType, NodeParts, Owned, Plugin,
    PluginDescription, Result, abi, entry,
};
use crossdock_test_support::devices;
use crossdock_tests::{built, built_file};

fn host() -> Host {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder().backend(backend).plugins(built()).build().unwrap()
}

fn session(device: Device) -> Session {
    host().session().device(device).open().unwrap()
}

fn node(id: &str, field: &Field, length: u64, metadata: &[u8], n_buffers: u32, n_children: u32) -> NodeParts {
    let logical_type = LogicalType::Schema(export_field(field).unwrap());
    NodeParts { encoding: id.into(), logical_type, length, metadata: metadata.into(), n_buffers, n_children }
}

fn int32(nullable: bool) -> Field {
    Field::new("", DataType::Int32, nullable)
}

/// Copies bytes to a buffer on a device.
fn buffer(session: &Session, device: Device, bytes: &[u8]) -> Buffer {
    let stream = session.memory().default_stream(device).unwrap();
    let copy = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    session.memory().alloc_with(&stream, bytes.len(), copy).unwrap().freeze(&stream).unwrap()
}

fn bytes_of(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// A tree of integers, which are the sums of the reference 1000 and `values`, with the validity
/// bitmap `bits`.
fn with_reference_1000(session: &Session, device: Device, values: &[i32], bits: u8) -> EncodedArray {
    let n = values.len() as u64;
    let boolean = Field::new("", DataType::Boolean, false);
    // The reference is field 3 of a protobuf message, zigzag-encoded: 2000 means 1000.
    let nodes = vec![
        node("fastlanes.for", &int32(true), n, &[0x18, 0xd0, 0x0f], 0, 1),
        node("vortex.primitive", &int32(true), n, &[], 1, 1),
        node("vortex.bool", &boolean, n, &[], 1, 0),
    ];
    let values = buffer(session, device, &bytes_of(values));
    EncodedArray::new(nodes, vec![values.to_encoded(), buffer(session, device, &[bits]).to_encoded()])
        .unwrap()
}

/// Decodes the array. Returns the debug text of the column.
fn debug_text(session: &Session, array: EncodedArray) -> String {
    let batch = session.decode(array).unwrap();
    let schema = batch.schema().clone();
    let table = Table::from_batches(session, schema, vec![batch]).unwrap();
    table.to_record_batches().unwrap().iter().map(|batch| format!("{:?}", batch.column(0))).collect()
}

fn decode_error(session: &Session, array: EncodedArray) -> String {
    session.decode(array).expect_err("the array is rejected").one_line()
}

#[test]
fn trees_decode_on_every_device_from_buffers_on_any_device() {
    for &device in devices() {
        let session = session(device);
        for of_buffers in [Device::CPU, device] {
            let text =
                debug_text(&session, with_reference_1000(&session, of_buffers, &[1, 2, 3, -4], 0b1011));
            let numbers: Vec<&str> = text.split_whitespace().filter(|word| word.ends_with(',')).collect();
            assert_eq!(numbers, ["1001,", "1002,", "null,", "996,"], "{device} from {of_buffers}: {text}");
        }
        // Exported memory is released only after the work on the device has run.
        session.stream().synchronize().unwrap();
        session.host().backend().trim();
        session.host().settle();
        assert!(
            session.host().ledger().leaks().is_empty(),
            "{device}: {:?}",
            session.host().ledger().leaks()
        );
    }
}

#[test]
fn error_for_unknown_encoding_names_its_path_and_the_known_encodings() {
    let session = session(Device::CPU);
    let nodes = vec![
        node("fastlanes.for", &int32(false), 2, &[0x18, 0], 0, 1),
        node("unknown.encoding.v7", &int32(false), 2, &[], 0, 0),
    ];
    let line = decode_error(&session, EncodedArray::new(nodes, vec![]).unwrap());
    assert!(line.contains("fastlanes.for[0]/unknown.encoding.v7"), "{line}");
    assert!(line.contains("vortex.primitive"), "{line}");
}

#[test]
fn sessions_use_the_encodings_of_their_host() {
    let with = session(Device::CPU);
    let file = built_file("libcrossdock_arrow_ipc_plugin.so");
    let search = Search::nowhere().with_path(file);
    let without = Host::builder().search(search).build().unwrap().session().open().unwrap();
    let array = |session: &Session| with_reference_1000(session, Device::CPU, &[0], 1);
    let line = decode_error(&without, array(&without));
    assert!(line.contains("its plugins decode: none"), "{line}");
    assert!(debug_text(&with, array(&with)).contains("1000"));
    assert!(without.encodings().is_empty());
    let known = with.encodings();
    let (_, plugins) = known.iter().find(|(id, _)| id == "fastlanes.for").unwrap();
    assert_eq!(plugins.iter().map(|plugin| plugin.name().to_string()).collect::<Vec<_>>(), ["encodings"]);
}

#[test]
fn rejects_nodes_whose_buffers_or_children_do_not_match() {
    let session = session(Device::CPU);
    let error_for = |length: u64, field: Field, values: &[i32]| {
        let parts = vec![node("vortex.primitive", &field, length, &[], 1, 0)];
        let values = buffer(&session, Device::CPU, &bytes_of(values)).to_encoded();
        decode_error(&session, EncodedArray::new(parts, vec![values]).unwrap())
    };
    let line = error_for(3, int32(false), &[1, 2]);
    assert!(line.contains("8 bytes, expected 12"), "{line}");
    let line = error_for(2, Field::new("", DataType::Int64, false), &[1, 2]);
    assert!(line.contains("8 bytes, expected 16"), "{line}");
    let nodes = vec![
        node("fastlanes.for", &int32(false), 2, &[0x18, 0], 0, 1),
        node("vortex.primitive", &Field::new("", DataType::Int64, false), 2, &[], 1, 0),
    ];
    let values = buffer(&session, Device::CPU, &[0; 16]).to_encoded();
    let line = decode_error(&session, EncodedArray::new(nodes, vec![values]).unwrap());
    assert!(line.contains("int64, expected 2 of int32"), "{line}");
}

/// The type of lists of two numbers.
fn pairs(nullable: bool) -> Field {
    Field::new_fixed_size_list("", Field::new("item", DataType::Int32, nullable), 2, false)
}

/// A plugin whose results do not match the declarations of the node. The encoding id selects the
/// mismatch.
struct Mismatching(Memory);

impl Plugin for Mismatching {
    fn create(host: crossdock_plugin_api::Host) -> Result<Self> {
        Memory::from_host(&host).map(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Mismatching {
    fn ids(&self) -> &[&'static str] {
        &[
            "mismatch.none",
            "mismatch.short",
            "mismatch.long",
            "mismatch.null",
            "mismatch.type",
            "mismatch.nested",
        ]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        node: EncodedNode<'_>,
        _: Range<u64>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let stream = self.0.default_stream(Device::CPU)?;
        let rows = match node.encoding() {
            "mismatch.short" => node.length() as usize - 1,
            "mismatch.long" => node.length() as usize + 1,
            _ => node.length() as usize,
        };
        let filled = |bytes: usize, with: u8| {
            let fill = |to: &mut [u8]| {
                to.fill(with);
                Ok(())
            };
            self.0.alloc_with(&stream, bytes, fill).map(|buffer| buffer.freeze_now())
        };
        // The bitmap: in each group of eight values, only the first and the third are valid.
        let bits = filled(rows.div_ceil(8), 0b101)?;
        let (validity, null_count) =
            if node.encoding() == "mismatch.null" { (Some(bits), None) } else { (None, Some(0)) };
        let buffers = vec![validity, Some(filled(4 * rows, 7)?)];
        let mut column =
            DeviceArray::try_new(DataType::Int32, rows, 0, null_count, buffers, Vec::new(), None)?;
        let mut field = int32(true);
        match node.encoding() {
            "mismatch.type" => {
                field = Field::new("", DataType::Float32, true);
                let buffers = vec![None, Some(filled(4 * rows, 7)?)];
                column =
                    DeviceArray::try_new(DataType::Float32, rows, 0, Some(0), buffers, Vec::new(), None)?;
            }
            "mismatch.nested" => {
                field = pairs(true);
                let bits = filled((2 * rows).div_ceil(8), 0b101)?;
                let buffers = vec![Some(bits), Some(filled(8 * rows, 7)?)];
                let pair =
                    DeviceArray::try_new(DataType::Int32, 2 * rows, 0, None, buffers, Vec::new(), None)?;
                let data_type = field.data_type().clone();
                column = DeviceArray::try_new(data_type, rows, 0, Some(0), vec![None], vec![pair], None)?;
            }
            _ => {}
        }
        let batch = DeviceBatch::try_new(Arc::new(Schema::new(vec![field])), rows, vec![column])?;
        // A schema is necessary only if the type of the column differs from the node's type.
        export_batch(&batch, node.encoding() == "mismatch.type", &stream)
    }
}

#[test]
fn rejects_decoded_values_that_do_not_match_the_node() {
    static ENTRY: abi::PluginEntry = entry::<Mismatching>();
    let about = PluginDescription {
        name: "mismatch",
        version: "0.1.0",
        description: "returns results that differ from the declarations",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings: "mismatch.none mismatch.short mismatch.long mismatch.null mismatch.type mismatch.nested",
        requires: "",
        api_range: abi::API_RANGE,
    };
    for &device in devices() {
        let search = Search::nowhere().linked(LinkedPlugin::new(&ENTRY, about.meta()));
        let backend = Backend::builder().untouchable(true).build();
        let host = Host::builder().backend(backend).search(search).build().unwrap();
        let session = host.session().device(device).open().unwrap();
        let tree = |id: &str, nullable: bool| {
            EncodedArray::new(vec![node(id, &int32(nullable), 5, &[], 0, 0)], Vec::new()).unwrap()
        };
        let matching = tree("mismatch.none", false);
        // The plugin decodes only on the CPU, so the host copies the result to the device.
        assert_eq!(session.plan_decoding(&matching, device).unwrap(), [NodePlan::Plugin(Device::CPU)]);
        let matching = session.decode(matching).unwrap();
        assert_eq!((matching.len(), matching.device()), (5, device));
        let null = session.decode(tree("mismatch.null", true)).unwrap();
        assert_eq!(null.columns()[0].count_nulls(session.stream()).unwrap(), 3, "{device}");
        for (id, expected) in [
            ("mismatch.short", "decoded 4 values, but the node declares 5"),
            ("mismatch.long", "decoded 6 values, but the node declares 5"),
            ("mismatch.null", "decoded 3 nulls, expected none"),
        ] {
            let line = decode_error(&session, tree(id, false));
            assert!(
                line.contains(expected) && line.contains(id) && line.contains("mismatch 0.1.0"),
                "{device}: {line}"
            );
        }
        let nested = |nullable| {
            EncodedArray::new(vec![node("mismatch.nested", &pairs(nullable), 5, &[], 0, 0)], Vec::new())
                .unwrap()
        };
        assert_eq!(session.decode(nested(true)).unwrap().len(), 5);
        for (tree, expected) in [
            (tree("mismatch.type", false), "schema of a batch has [float], expected [int32]"),
            (nested(false), "nulls in its '.item', expected none"),
        ] {
            let line = decode_error(&session, tree);
            assert!(line.contains(expected) && line.contains("mismatch 0.1.0"), "{device}: {line}");
        }
    }
}

#[test]
fn rejects_declared_length_larger_than_memory_before_allocating() {
    let limited = Backend::builder().limit_bytes(1 << 20).build();
    let host = Host::builder().backend(limited).plugins(built()).build().unwrap();
    for (session, length) in [(session(Device::CPU), 1 << 50), (host.session().open().unwrap(), 1 << 20)] {
        let nodes = vec![node("vortex.constant", &int32(false), length, &[], 1, 0)];
        let scalar = buffer(&session, Device::CPU, &[0x18, 2]).to_encoded();
        let line = decode_error(&session, EncodedArray::new(nodes, vec![scalar]).unwrap());
        assert!(line.contains("vortex.constant") && line.contains("bytes, expected at most"), "{line}");
    }
}

#[test]
fn encoded_array_is_imported_with_arrow_types() {
    let session = session(Device::CPU);
    let array = with_reference_1000(&session, Device::CPU, &[5, 6], 0b11);
    let capsule = crossdock_plugin_api::Capsule::new(array.into_raw());
    let mut reader =
        session.read_capsules("encoded-array", vec![capsule], None, &Default::default()).unwrap();
    assert_eq!(**reader.schema(), Schema::new(vec![int32(true)]));
    let batch = reader.next().unwrap().unwrap();
    assert_eq!(batch.len(), 2);
    assert!(reader.next().unwrap().is_none());
    drop((reader, batch));
    session.host().settle();
    assert!(session.host().ledger().leaks().is_empty());
}

#[test]
fn many_threads_decode_in_one_session() {
    let session = Arc::new(session(Device::CPU));
    std::thread::scope(|scope| {
        for i in 0..8 {
            let session = session.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    let text = debug_text(&session, with_reference_1000(&session, Device::CPU, &[i], 1));
                    assert!(text.contains(&(1000 + i).to_string()), "{text}");
                }
            });
        }
    });
}

#[test]
fn static_metadata_lists_the_encodings() {
    let session = session(Device::CPU);
    let plugin = session.plugin("encodings").unwrap();
    let mut declared: Vec<_> = plugin.metadata().encodings.clone();
    let mut decoded: Vec<_> = plugin.encodings().to_vec();
    declared.sort();
    decoded.sort();
    assert_eq!(declared, decoded);
    let out = crossdock_tests::crossdock(&["plugins", "--explain"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("decodes: ") && text.contains("vortex.alprd"), "{text}");
}

#[test]
fn values_survive_a_round_trip_through_vortex_types() {
    let session = session(Device::CPU);
    let array =
        session.with_vortex_types(with_reference_1000(&session, Device::CPU, &[5, -6], 0b11)).unwrap();
    assert!((0..array.n_nodes()).all(|i| array.node(i).unwrap().dtype().is_some()));
    let again = session.with_vortex_types(array).unwrap();
    assert!(again.root().unwrap().schema().is_err());
    let array = session.with_arrow_types(again).unwrap();
    assert!((0..array.n_nodes()).all(|i| array.node(i).unwrap().schema().is_ok()));
    let text = debug_text(&session, array);
    assert!(text.contains("1005") && text.contains("994"), "{text}");

    let duration = Field::new("", DataType::Duration(arrow_schema::TimeUnit::Second), false);
    let parts = vec![node("vortex.primitive", &duration, 1, &[], 1, 0)];
    let values = buffer(&session, Device::CPU, &[0; 8]).to_encoded();
    let result = session.with_vortex_types(EncodedArray::new(parts, vec![values]).unwrap());
    let line = result.err().unwrap().one_line();
    assert!(line.contains("Vortex has no type for Arrow's Duration(s)"), "{line}");
}

/// A tree with these nodes and buffer contents.
fn tree(session: &Session, nodes: Vec<NodeParts>, buffers: &[&[u8]]) -> EncodedArray {
    let buffers = buffers.iter().map(|bytes| buffer(session, Device::CPU, bytes).to_encoded()).collect();
    EncodedArray::new(nodes, buffers).unwrap()
}

#[test]
fn parts_and_chunks_decode_on_the_requested_device() {
    let session = session(Device::CPU);
    let field = |data_type: DataType| Field::new("", data_type, false);
    let (float, long, half) = (field(DataType::Float64), field(DataType::Int64), field(DataType::UInt16));
    let (text, offset) = (field(DataType::Utf8View), field(DataType::UInt64));
    let stamp = field(DataType::Timestamp(arrow_schema::TimeUnit::Second, None));
    let decimal = field(DataType::Decimal128(5, 0));
    let words = |field: &Field| node("vortex.primitive", field, 1, &[], 1, 0);
    let views = || node("vortex.varbinview", &text, 0, &[], 1, 0);
    let eight = [0u8; 8].as_slice();
    let trees = [
        (
            // The metadata: right parts of 60 bits, and a dictionary with one left part.
            vec![
                node("vortex.alprd", &float, 1, &[8, 60, 16, 1, 26, 1, 1, 32, 1], 0, 2),
                words(&half),
                words(&offset),
            ],
            vec![&[0u8; 2][..], eight],
        ),
        (
            vec![
                node("vortex.datetimeparts", &stamp, 1, &[8, 7, 16, 7, 24, 7], 0, 3),
                words(&long),
                words(&long),
                words(&long),
            ],
            vec![eight; 3],
        ),
        (vec![node("vortex.decimal", &decimal, 1, &[8, 3], 1, 0)], vec![eight]),
        (vec![node("vortex.decimal_byte_parts", &decimal, 1, &[8, 7], 0, 1), words(&long)], vec![eight]),
        (vec![node("vortex.bytebool", &field(DataType::Boolean), 8, &[], 1, 0)], vec![eight]),
        (
            vec![
                node("vortex.chunked", &text, 0, &[], 0, 2),
                node("vortex.primitive", &offset, 2, &[], 1, 0),
                views(),
            ],
            vec![&[0; 16][..], &[]],
        ),
    ];
    for (nodes, buffers) in trees {
        let id = nodes[0].encoding.clone();
        let array = tree(&session, nodes, &buffers);
        let device = Device::cuda(7);
        let has_program = ["vortex.alprd", "vortex.datetimeparts"].contains(&id.as_str());
        let expected = if has_program { NodePlan::Program(device) } else { NodePlan::Plugin(device) };
        assert_eq!(session.plan_decoding(&array, device).unwrap()[0], expected, "{id}");
        let host = session.plan_decoding(&array, Device::CPU).unwrap();
        assert_eq!(host[0], NodePlan::Plugin(Device::CPU), "{id}");
    }
}

#[test]
fn nested_and_long_values_decode_on_the_requested_device() {
    let session = session(Device::CPU);
    let field = |data_type: DataType| Field::new("", data_type, true);
    let number = Arc::new(Field::new("item", DataType::Int64, true));
    let types = [
        DataType::List(number.clone()),
        DataType::FixedSizeList(number.clone(), 2),
        DataType::Struct(vec![number].into()),
        DataType::Null,
        DataType::Utf8View,
        DataType::Decimal128(38, 0),
        DataType::Decimal256(76, 0),
    ];
    let (code, place) = (Field::new("", DataType::UInt8, false), Field::new("", DataType::UInt64, false));
    for data_type in types {
        let value_field = field(data_type.clone());
        // The children are constants. Their encoding does not affect on which device the parent is
        // decoded.
        let null = |n| node("vortex.constant", &value_field, n, &[], 1, 0);
        let words = |field: &Field, n: u64| node("vortex.primitive", field, n, &[], 1, 0);
        let (scalar, eight, one) = (&[8u8, 0][..], &[0u8; 8][..], &[1u8, 0, 0, 0, 0, 0, 0, 0][..]);
        let item = field(DataType::List(Arc::new(Field::new("item", data_type, true))));
        let trees = [
            (vec![null(3)], vec![scalar]),
            (
                vec![node("vortex.dict", &value_field, 1, &[8, 1], 0, 2), words(&code, 1), null(1)],
                vec![&eight[..1], scalar],
            ),
            (
                vec![node("vortex.runend", &value_field, 1, &[8, 3, 16, 1], 0, 2), words(&place, 1), null(1)],
                vec![one, scalar],
            ),
            (
                vec![
                    node("vortex.sparse", &value_field, 2, &[10, 4, 8, 1, 24, 3], 1, 2),
                    words(&place, 1),
                    null(1),
                ],
                vec![scalar, eight, scalar],
            ),
            (
                vec![
                    node("vortex.listview", &item, 1, &[8, 1, 16, 3, 24, 3], 0, 3),
                    null(1),
                    words(&place, 1),
                    words(&place, 1),
                ],
                vec![scalar, eight, one],
            ),
        ];
        for (nodes, buffers) in trees {
            let id = nodes[0].encoding.clone();
            let array = tree(&session, nodes, &buffers);
            for device in [Device::cuda(7), Device::CPU] {
                let plans = session.plan_decoding(&array, device).unwrap();
                let on_device = [NodePlan::Plugin(device), NodePlan::Program(device)];
                assert!(
                    plans.iter().all(|plan| on_device.contains(plan)),
                    "{id} of {value_field}: {plans:?}"
                );
            }
            assert!(debug_text(&session, array).to_lowercase().contains("null"), "{id} of {value_field}");
        }
    }
}
