//! Encoded arrays, decoded by a session: on every device, from buffers anywhere, and what is refused.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::{Host, NodePlan, Session, Table};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_batch, export_field};
use crossdock_memory::{Buffer, Memory};
use crossdock_plugin_api::{
    About, Call, Device, EncodedArray, EncodedNode, Encoding, LogicalType, NodeParts, Owned, Plugin, Result,
    abi, entry,
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

/// Bytes on a device.
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

/// `values` above a reference of 1000, with the nulls that `bits` says.
fn above_a_thousand(session: &Session, device: Device, values: &[i32], bits: u8) -> EncodedArray {
    let n = values.len() as u64;
    let truths = Field::new("", DataType::Boolean, false);
    // A reference is a protobuf's field 3, zigzag: 2000 is 1000.
    let nodes = vec![
        node("fastlanes.for", &int32(true), n, &[0x18, 0xd0, 0x0f], 0, 1),
        node("vortex.primitive", &int32(true), n, &[], 1, 1),
        node("vortex.bool", &truths, n, &[], 1, 0),
    ];
    let values = buffer(session, device, &bytes_of(values));
    EncodedArray::new(nodes, vec![values.to_encoded(), buffer(session, device, &[bits]).to_encoded()])
        .unwrap()
}

/// What came out, in words.
fn shown(session: &Session, array: EncodedArray) -> String {
    let batch = session.decode(array).unwrap();
    let schema = batch.schema().clone();
    let table = Table::from_batches(session, schema, vec![batch]).unwrap();
    table.to_record_batches().unwrap().iter().map(|batch| format!("{:?}", batch.column(0))).collect()
}

fn refused(session: &Session, array: EncodedArray) -> String {
    session.decode(array).expect_err("it was decoded").one_line()
}

#[test]
fn a_tree_is_decoded_on_every_device_wherever_its_buffers_are() {
    for &device in devices() {
        let session = session(device);
        for of_buffers in [Device::CPU, device] {
            let text = shown(&session, above_a_thousand(&session, of_buffers, &[1, 2, 3, -4], 0b1011));
            let numbers: Vec<&str> = text.split_whitespace().filter(|word| word.ends_with(',')).collect();
            assert_eq!(numbers, ["1001,", "1002,", "null,", "996,"], "{device} from {of_buffers}: {text}");
        }
        // What strangers were lent goes back when the device is done with it.
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
fn an_encoding_that_nobody_knows_is_told_with_its_place_and_those_that_are_known() {
    let session = session(Device::CPU);
    let nodes = vec![
        node("fastlanes.for", &int32(false), 2, &[0x18, 0], 0, 1),
        node("somebody.else.v7", &int32(false), 2, &[], 0, 0),
    ];
    let line = refused(&session, EncodedArray::new(nodes, vec![]).unwrap());
    assert!(line.contains("fastlanes.for[0]/somebody.else.v7"), "{line}");
    assert!(line.contains("vortex.primitive"), "{line}");
}

#[test]
fn sessions_know_what_their_own_hosts_plugins_know() {
    let with = session(Device::CPU);
    let file = built_file("libcrossdock_arrow_ipc_plugin.so");
    let search = Search::nowhere().given(file);
    let without = Host::builder().search(search).build().unwrap().session().open().unwrap();
    let of = |session: &Session| above_a_thousand(session, Device::CPU, &[0], 1);
    let line = refused(&without, of(&without));
    assert!(line.contains("no encoding"), "{line}");
    assert!(shown(&with, of(&with)).contains("1000"));
    assert!(without.encodings().is_empty());
    let known = with.encodings();
    let (_, plugins) = known.iter().find(|(id, _)| id == "fastlanes.for").unwrap();
    assert_eq!(plugins.iter().map(|plugin| plugin.name().to_string()).collect::<Vec<_>>(), ["encodings"]);
}

#[test]
fn what_a_node_claims_is_held_against_it() {
    let session = session(Device::CPU);
    let of = |length: u64, field: Field, values: &[i32]| {
        let parts = vec![node("vortex.primitive", &field, length, &[], 1, 0)];
        let values = buffer(&session, Device::CPU, &bytes_of(values)).to_encoded();
        refused(&session, EncodedArray::new(parts, vec![values]).unwrap())
    };
    let line = of(3, int32(false), &[1, 2]);
    assert!(line.contains("8 bytes, expected 12"), "{line}");
    let line = of(2, Field::new("", DataType::Int64, false), &[1, 2]);
    assert!(line.contains("8 bytes, expected 16"), "{line}");
    let nodes = vec![
        node("fastlanes.for", &int32(false), 2, &[0x18, 0], 0, 1),
        node("vortex.primitive", &Field::new("", DataType::Int64, false), 2, &[], 1, 0),
    ];
    let values = buffer(&session, Device::CPU, &[0; 16]).to_encoded();
    let line = refused(&session, EncodedArray::new(nodes, vec![values]).unwrap());
    assert!(line.contains("Int64, expected 2 of Int32"), "{line}");
}

/// Two numbers a value, null or not.
fn pairs(nullable: bool) -> Field {
    Field::new_fixed_size_list("", Field::new("item", DataType::Int32, nullable), 2, false)
}

/// A plugin that decodes to something else than its nodes claim, by their ids.
struct Liar(Memory);

impl Plugin for Liar {
    fn create(host: crossdock_plugin_api::Host) -> Result<Self> {
        Memory::from_host(&host).map(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Liar {
    fn ids(&self) -> &[&'static str] {
        &["liar.honest", "liar.short", "liar.long", "liar.null", "liar.type", "liar.nested"]
    }

    fn check(&self, _: EncodedNode<'_>) -> Result<()> {
        Ok(())
    }

    fn size(&self, _: EncodedNode<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        node: EncodedNode<'_>,
        _: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let stream = self.0.default_stream(Device::CPU)?;
        let rows = match node.encoding() {
            "liar.short" => node.length() as usize - 1,
            "liar.long" => node.length() as usize + 1,
            _ => node.length() as usize,
        };
        let filled = |bytes: usize, with: u8| {
            let fill = |to: &mut [u8]| {
                to.fill(with);
                Ok(())
            };
            self.0.alloc_with(&stream, bytes, fill).map(|buffer| buffer.freeze_now())
        };
        // All but the first and the third of each eight are null.
        let bits = filled(rows.div_ceil(8), 0b101)?;
        let (validity, null_count) =
            if node.encoding() == "liar.null" { (Some(bits), None) } else { (None, Some(0)) };
        let buffers = vec![validity, Some(filled(4 * rows, 7)?)];
        let mut column =
            DeviceArray::try_new(DataType::Int32, rows, 0, null_count, buffers, Vec::new(), None)?;
        let mut field = int32(true);
        match node.encoding() {
            "liar.type" => {
                field = Field::new("", DataType::Float32, true);
                let buffers = vec![None, Some(filled(4 * rows, 7)?)];
                column =
                    DeviceArray::try_new(DataType::Float32, rows, 0, Some(0), buffers, Vec::new(), None)?;
            }
            "liar.nested" => {
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
        // It tells what it made only where that is another type.
        export_batch(&batch, node.encoding() == "liar.type", &stream)
    }
}

#[test]
fn what_a_plugin_decodes_is_held_against_what_its_node_claims() {
    static ENTRY: abi::PluginEntry = entry::<Liar>();
    let about = About {
        name: "liar",
        version: "0.1.0",
        description: "decodes to something else",
        licence: "Apache-2.0",
        interfaces: "crossdock.encoding/1",
        formats: "",
        encodings: "liar.honest liar.short liar.long liar.null liar.type liar.nested",
    };
    for &device in devices() {
        let search = Search::nowhere().linked(LinkedPlugin::new(&ENTRY, about.meta()));
        let backend = Backend::builder().untouchable(true).build();
        let host = Host::builder().backend(backend).search(search).build().unwrap();
        let session = host.session().device(device).open().unwrap();
        let tree = |id: &str, nullable: bool| {
            EncodedArray::new(vec![node(id, &int32(nullable), 5, &[], 0, 0)], Vec::new()).unwrap()
        };
        let honest = tree("liar.honest", false);
        // It knows no device: what it gives is taken there.
        assert_eq!(session.plan_decoding(&honest, device).unwrap(), [NodePlan::Plugin(Device::CPU)]);
        let honest = session.decode(honest).unwrap();
        assert_eq!((honest.len(), honest.device()), (5, device));
        let null = session.decode(tree("liar.null", true)).unwrap();
        assert_eq!(null.columns()[0].count_nulls(session.stream()).unwrap(), 3, "{device}");
        for (id, expected) in [
            ("liar.short", "4 values came out, it claimed 5"),
            ("liar.long", "6 values came out, it claimed 5"),
            ("liar.null", "3 nulls came out, its type has none"),
        ] {
            let line = refused(&session, tree(id, false));
            assert!(
                line.contains(expected) && line.contains(id) && line.contains("liar 0.1.0"),
                "{device}: {line}"
            );
        }
        let nested = |nullable| {
            EncodedArray::new(vec![node("liar.nested", &pairs(nullable), 5, &[], 0, 0)], Vec::new()).unwrap()
        };
        assert_eq!(session.decode(nested(true)).unwrap().len(), 5);
        for (tree, expected) in [
            (tree("liar.type", false), "own schema has [Float32], expected [Int32]"),
            (nested(false), "nulls came out in its '.item', its type has none"),
        ] {
            let line = refused(&session, tree);
            assert!(line.contains(expected) && line.contains("liar 0.1.0"), "{device}: {line}");
        }
    }
}

#[test]
fn a_claim_beyond_all_memory_is_refused_before_anything_is_allocated() {
    let limited = Backend::builder().limit_bytes(1 << 20).build();
    let host = Host::builder().backend(limited).plugins(built()).build().unwrap();
    for (session, length) in [(session(Device::CPU), 1 << 50), (host.session().open().unwrap(), 1 << 20)] {
        let nodes = vec![node("vortex.constant", &int32(false), length, &[], 1, 0)];
        let scalar = buffer(&session, Device::CPU, &[0x18, 2]).to_encoded();
        let line = refused(&session, EncodedArray::new(nodes, vec![scalar]).unwrap());
        assert!(line.contains("vortex.constant") && line.contains("bytes, more than"), "{line}");
    }
}

#[test]
fn an_array_goes_through_the_importer_with_its_types_as_arrow_writes_them() {
    let session = session(Device::CPU);
    let array = above_a_thousand(&session, Device::CPU, &[5, 6], 0b11);
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
                    let text = shown(&session, above_a_thousand(&session, Device::CPU, &[i], 1));
                    assert!(text.contains(&(1000 + i).to_string()), "{text}");
                }
            });
        }
    });
}

#[test]
fn the_plugin_says_before_it_is_loaded_what_it_decodes() {
    let session = session(Device::CPU);
    let plugin = session.plugin("encodings").unwrap();
    let mut told: Vec<_> = plugin.metadata().encodings.clone();
    let mut decoded: Vec<_> = plugin.encodings().to_vec();
    told.sort();
    decoded.sort();
    assert_eq!(told, decoded);
    let out = crossdock_tests::crossdock(&["plugins", "--explain"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("decodes: ") && text.contains("vortex.alprd"), "{text}");
}

#[test]
fn types_are_turned_into_those_of_vortex_and_back_and_the_values_stay() {
    let session = session(Device::CPU);
    let array = session.with_vortex_types(above_a_thousand(&session, Device::CPU, &[5, -6], 0b11)).unwrap();
    assert!((0..array.n_nodes()).all(|i| array.node(i).unwrap().dtype().is_some()));
    let again = session.with_vortex_types(array).unwrap();
    assert!(again.root().unwrap().schema().is_err());
    let array = session.with_arrow_types(again).unwrap();
    assert!((0..array.n_nodes()).all(|i| array.node(i).unwrap().schema().is_ok()));
    let text = shown(&session, array);
    assert!(text.contains("1005") && text.contains("994"), "{text}");

    let duration = Field::new("", DataType::Duration(arrow_schema::TimeUnit::Second), false);
    let parts = vec![node("vortex.primitive", &duration, 1, &[], 1, 0)];
    let values = buffer(&session, Device::CPU, &[0; 8]).to_encoded();
    let refused = session.with_vortex_types(EncodedArray::new(parts, vec![values]).unwrap());
    let line = refused.err().unwrap().one_line();
    assert!(line.contains("Vortex has no type for Arrow's Duration(s)"), "{line}");
}

/// A tree of two nodes or more of a type, the first of which is `id`, each with the bytes of its buffers.
fn tree(session: &Session, nodes: Vec<NodeParts>, buffers: &[&[u8]]) -> EncodedArray {
    let buffers = buffers.iter().map(|bytes| buffer(session, Device::CPU, bytes).to_encoded()).collect();
    EncodedArray::new(nodes, buffers).unwrap()
}

#[test]
fn what_lies_in_parts_and_in_chunks_is_decoded_where_it_is_wanted() {
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
            // Right parts of 60 bits, and one left part.
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
        let there = Device::cuda(7);
        let plans = session.plan_decoding(&array, there).unwrap();
        assert_eq!(plans[0], NodePlan::Plugin(there), "{id}");
        let host = session.plan_decoding(&array, Device::CPU).unwrap();
        assert_eq!(host[0], NodePlan::Plugin(Device::CPU), "{id}");
    }
}

#[test]
fn values_that_are_arrays_or_long_are_decoded_where_they_are_wanted() {
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
        let held = field(data_type.clone());
        // How its values are written makes no difference to where what stands above them is decoded.
        let null = |n| node("vortex.constant", &held, n, &[], 1, 0);
        let words = |field: &Field, n: u64| node("vortex.primitive", field, n, &[], 1, 0);
        let (scalar, eight, one) = (&[8u8, 0][..], &[0u8; 8][..], &[1u8, 0, 0, 0, 0, 0, 0, 0][..]);
        let item = field(DataType::List(Arc::new(Field::new("item", data_type, true))));
        let trees = [
            (vec![null(3)], vec![scalar]),
            (
                vec![node("vortex.dict", &held, 1, &[8, 1], 0, 2), words(&code, 1), null(1)],
                vec![&eight[..1], scalar],
            ),
            (
                vec![node("vortex.runend", &held, 1, &[8, 3, 16, 1], 0, 2), words(&place, 1), null(1)],
                vec![one, scalar],
            ),
            (
                vec![node("vortex.sparse", &held, 2, &[10, 4, 8, 1, 24, 3], 1, 2), words(&place, 1), null(1)],
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
                let there = [NodePlan::Plugin(device), NodePlan::Program(device)];
                assert!(plans.iter().all(|plan| there.contains(plan)), "{id} of {held}: {plans:?}");
            }
            assert!(shown(&session, array).to_lowercase().contains("null"), "{id} of {held}");
        }
    }
}
