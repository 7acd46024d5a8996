//! Tests the nodes and bytes of exported trees of slices.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};
use crossdock_arrays::{DeviceBatch, export_batch, export_schema};
use crossdock_memory::Device;
use crossdock_plugin_api::{CallSettings, EncodedArray, Options, Plugin};

use crate::tree::{Node, Rig};

/// The nodes of an exported column as text. The text of a node has its id, length, metadata, bytes
/// of the buffers, and number of children.
fn exported(rig: &Rig, field: &Field, batches: &[DeviceBatch]) -> Vec<String> {
    let schema = Schema::new(vec![field.clone()]);
    let settings = CallSettings::new(Device::CPU);
    let exporter = rig.plugin.exporter().unwrap();
    let raw = export_schema(&schema).unwrap();
    let mut writer =
        settings.enter(|call| exporter.begin(call, "encoded-array", &raw, &Options::new(), None)).unwrap();
    for batch in batches {
        let raw = export_batch(batch, false, &rig.host.stream(Device::CPU)).unwrap();
        assert!(settings.enter(|call| writer.write(call, raw)).unwrap().is_empty());
    }
    let mut capsules = settings.enter(|call| writer.finish(call)).unwrap();
    assert_eq!(capsules.len(), 1);
    let raw = capsules.remove(0).take().unwrap();
    // SAFETY: the plugin exported the array.
    let array = unsafe { EncodedArray::from_raw(raw) }.unwrap();
    (0..array.n_nodes()).map(|index| line(&array, index)).collect()
}

fn line(array: &EncodedArray, index: usize) -> String {
    let node = array.node(index).unwrap();
    let buffers = (0..node.n_buffers()).map(|i| {
        let buffer = node.buffer(i).unwrap();
        if buffer.bytes == 0 {
            return Vec::new();
        }
        // SAFETY: the buffer is in host memory, and the array keeps it alive.
        unsafe { std::slice::from_raw_parts(buffer.address.cast::<u8>(), buffer.bytes as usize) }.to_vec()
    });
    let buffers: Vec<_> = buffers.collect();
    let (id, len, children) = (node.encoding(), node.length(), node.n_children());
    format!("{id} {len} {:?} {buffers:?} {children}", node.metadata())
}

/// Decodes a node and exports slices of the decoded array. Each slice is given as start and length.
/// Returns the exported nodes.
fn slices(node: &Node, ranges: &[(usize, usize)]) -> Vec<String> {
    let rig = Rig::new();
    let whole = rig.decode_batch(node).unwrap();
    let parts: Vec<_> = ranges.iter().map(|(start, len)| whole.slice(*start, *len).unwrap()).collect();
    exported(&rig, &Field::new("", node.data_type.clone(), node.nullable), &parts)
}

fn uint16(values: &[u16]) -> Node {
    Node::words(DataType::UInt16, values, u16::to_le_bytes)
}

fn over(id: &'static str, data_type: DataType, len: usize, metadata: &[u8], children: Vec<Node>) -> Node {
    Node { metadata: metadata.to_vec(), children, ..Node::new(id, data_type, len) }
}

#[test]
fn exports_bytes_of_slices_and_bit_offsets() {
    let numbers: Vec<u16> = (1..=12).collect();
    let node = uint16(&numbers).with_validity(vec![0b1110_1111, 0b1011]);
    let expected = [
        "vortex.primitive 2 [] [[10, 0, 11, 0]] 1",
        // The tenth value is the second bit of the second byte.
        "vortex.bool 2 [8, 1] [[11]] 0",
    ];
    assert_eq!(slices(&node, &[(9, 2)]), expected);
    let over_a_byte = [
        "vortex.primitive 6 [] [[5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0]] 1",
        "vortex.bool 6 [8, 4] [[239, 11]] 0",
    ];
    assert_eq!(slices(&node, &[(4, 6)]), over_a_byte);
    // Without nulls there is no validity child.
    assert_eq!(slices(&node, &[(6, 3)]), ["vortex.primitive 3 [] [[7, 0, 8, 0, 9, 0]] 0"]);
}

#[test]
fn several_batches_become_chunks_and_no_batches_become_an_empty_node() {
    let expected = [
        "vortex.chunked 3 [] [] 3",
        "vortex.primitive 3 [] [[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]] 0",
        "vortex.primitive 2 [] [[2, 0, 3, 0]] 0",
        "vortex.primitive 1 [] [[1, 0]] 0",
    ];
    assert_eq!(slices(&uint16(&[1, 2, 3]), &[(1, 2), (0, 1)]), expected);
    assert_eq!(slices(&uint16(&[1, 2, 3]), &[]), ["vortex.primitive 0 [] [[]] 0"]);
}

#[test]
fn sliced_list_exports_all_elements_and_fixed_size_list_only_its_slice() {
    let item = Arc::new(Field::new("item", DataType::UInt16, false));
    let offsets = Node::words(DataType::UInt8, &[0u8, 1, 1, 3], |offset| [offset]);
    let lists = over(
        "vortex.list",
        DataType::List(item.clone()),
        3,
        &[0x08, 3, 0x10, 0],
        vec![uint16(&[1, 2, 3]), offsets],
    );
    let expected = [
        // The metadata states 3 elements, and type number 6 (i32) for the offsets.
        "vortex.list 2 [8, 3, 16, 6] [] 2",
        "vortex.primitive 3 [] [[1, 0, 2, 0, 3, 0]] 0",
        "vortex.primitive 3 [] [[1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]] 0",
    ];
    assert_eq!(slices(&lists, &[(1, 2)]), expected);
    let fixed = DataType::FixedSizeList(item, 3);
    let fixed = over("vortex.fixed_size_list", fixed, 2, &[], vec![uint16(&[1, 2, 3, 4, 5, 6])]);
    let expected = ["vortex.fixed_size_list 1 [] [] 1", "vortex.primitive 3 [] [[4, 0, 5, 0, 6, 0]] 0"];
    assert_eq!(slices(&fixed, &[(1, 1)]), expected);
}

#[test]
fn sliced_struct_has_validity_before_sliced_fields() {
    let fields = Fields::from(vec![Field::new("a", DataType::UInt16, false)]);
    let validity = Node { buffers: vec![vec![0b101]], ..Node::new("vortex.bool", DataType::Boolean, 3) };
    let node = over("vortex.struct", DataType::Struct(fields), 3, &[], vec![validity, uint16(&[1, 2, 3])]);
    let expected =
        ["vortex.struct 2 [] [] 2", "vortex.bool 2 [8, 1] [[5]] 0", "vortex.primitive 2 [] [[2, 0, 3, 0]] 0"];
    assert_eq!(slices(&Node { nullable: true, ..node }, &[(1, 2)]), expected);
}

#[test]
fn exports_slices_of_decimals_dates_and_text() {
    let bytes = Node::words(DataType::Int8, &[5i8, -1], i8::to_le_bytes);
    let decimals = over("vortex.decimal_byte_parts", DataType::Decimal128(2, 0), 2, &[0x08, 4], vec![bytes]);
    // Type number 4 means values of 128 bits.
    let expected = format!("vortex.decimal 1 [8, 4] [{:?}] 0", [255; 16]);
    assert_eq!(slices(&decimals, &[(1, 1)]), [expected]);

    let days = Node::words(DataType::Int32, &[1i32, 2], i32::to_le_bytes);
    let dates = over("vortex.ext", DataType::Date32, 2, &[], vec![days]);
    let expected = ["vortex.ext 1 [] [] 1", "vortex.primitive 1 [] [[2, 0, 0, 0]] 0"];
    assert_eq!(slices(&dates, &[(1, 1)]), expected);

    let offsets = Node::words(DataType::UInt8, &[0u8, 1, 3], |offset| [offset]);
    let texts = over("vortex.varbin", DataType::Utf8View, 2, &[0x08, 0], vec![offsets]);
    let texts = Node { buffers: vec![b"abc".to_vec()], ..texts };
    let exported = slices(&texts, &[(1, 1)]);
    let view = [2, 0, 0, 0, b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(exported.len(), 1);
    assert!(exported[0].starts_with("vortex.varbinview 1 [] ["), "{exported:?}");
    assert!(exported[0].ends_with(&format!("{view:?}] 0")), "{exported:?}");
}
