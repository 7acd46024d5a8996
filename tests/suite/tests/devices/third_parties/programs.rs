//! Tests encodings of two third-party plugins. The host decodes these encodings with programs, and
//! fuses the programs with the programs of the shipped plugins. The encodings are `example.scaled`
//! in C, which has no decoder, and `example.xor` in Rust.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt8Type, UInt16Type};
use arrow_array::{Float32Array, Float64Array};
use arrow_schema::DataType;
use crossdock::Host;
use crossdock::memory::Backend;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::tree::Node;
use crossdock_tests::{built, crossdock, csv_plugin, example_plugin};

use crate::third_parties::trees::{bit_packed, decoded, packed, session};

/// A node of 32-bit integers. Each integer is the sum of the reference 1000 and a value of the
/// child.
fn with_reference_1000(packed: Node) -> Node {
    let packed = Node { data_type: DataType::Int32, ..packed };
    let (len, metadata) = (packed.len, vec![0x18, 0xd0, 0x0f]);
    Node { metadata, children: vec![packed], ..Node::new("fastlanes.for", DataType::Int32, len) }
}

#[test]
fn c_encoding_with_only_a_program_decodes_on_every_device() {
    let plugin = csv_plugin();
    let words: Vec<u32> = (0..3000).map(|i| i * 11 % 128).collect();
    for &device in devices() {
        let session = session(&plugin, device);
        for of_buffers in [Device::CPU, device] {
            let node = Node::scaled(
                DataType::Float32,
                &0.25f32.to_le_bytes(),
                with_reference_1000(bit_packed::<7>(&words)),
            );
            let array = decoded(&session, node.tree(&session, of_buffers));
            let expected = Float32Array::from_iter_values(words.iter().map(|w| (w + 1000) as f32 * 0.25));
            assert_eq!(*array.as_primitive::<Float32Type>(), expected, "{device} from {of_buffers}");
        }
        let wide =
            Node::words(DataType::Int64, &[-3i64, 1 << 60, 7], i64::to_ne_bytes).with_validity(vec![0b011]);
        let array = decoded(
            &session,
            Node::scaled(DataType::Float64, &1e-3f64.to_le_bytes(), wide).tree(&session, Device::CPU),
        );
        let values: Vec<_> = array.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(values, [Some(-3.0 * 1e-3), Some((1u64 << 60) as f64 * 1e-3), None], "{device}");
    }
}

#[test]
fn integers_of_any_width_are_cast_to_floats() {
    let plugin = csv_plugin();
    let bits = |i: usize| i % 3 != 1;
    for &device in devices() {
        let session = session(&plugin, device);
        for len in [0usize, 1, 1023, 1024, 1025, 100_003] {
            let bytes: Vec<i8> = (0..len).map(|i| (i * 7) as i8).collect();
            let halves: Vec<i16> = (0..len).map(|i| (i * 7919) as i16).collect();
            let mut validity = vec![0; len.div_ceil(8)];
            (0..len).filter(|i| bits(*i)).for_each(|i| validity[i / 8] |= 1 << (i % 8));
            let child = Node::words(DataType::Int8, &bytes, i8::to_ne_bytes).with_validity(validity);
            let tree = Node::scaled(DataType::Float32, &0.5f32.to_le_bytes(), child);
            let array = decoded(&session, tree.tree(&session, device));
            let expected = bytes.iter().enumerate().map(|(i, byte)| bits(i).then(|| f32::from(*byte) * 0.5));
            assert_eq!(
                *array.as_primitive::<Float32Type>(),
                expected.collect::<Float32Array>(),
                "{device} {len}"
            );
            let child = Node::words(DataType::Int16, &halves, i16::to_ne_bytes);
            let tree = Node::scaled(DataType::Float64, &3f64.to_le_bytes(), child);
            let array = decoded(&session, tree.tree(&session, Device::CPU));
            let expected = Float64Array::from_iter_values(halves.iter().map(|half| f64::from(*half) * 3.0));
            assert_eq!(*array.as_primitive::<Float64Type>(), expected, "{device} {len}");
        }
    }
}

#[test]
fn programs_of_several_plugins_are_combined() {
    let Some(example) = example_plugin("programs_of_several_plugins_are_combined") else { return };
    let backend = Backend::builder().untouchable(true).build();
    let host = Host::builder()
        .backend(backend)
        .plugins(built())
        .plugins(csv_plugin())
        .plugins(example)
        .build()
        .unwrap();
    let words: Vec<u32> = (0..5000).map(|i| i % 512).collect();
    for &device in devices() {
        let session = host.session().device(device).open().unwrap();
        let unsigned = Node::xor(DataType::UInt32, &[0xff, 1, 0, 0], bit_packed::<9>(&words));
        // The parent has the same bits as the child, but declares a signed type.
        let signed = Node::xor(DataType::Int32, &[0; 4], unsigned);
        let node = Node::scaled(DataType::Float32, &2f32.to_le_bytes(), with_reference_1000(signed));
        let array = decoded(&session, node.tree(&session, Device::CPU));
        let expected =
            Float32Array::from_iter_values(words.iter().map(|w| ((w ^ 0x1ff) + 1000) as f32 * 2.0));
        assert_eq!(*array.as_primitive::<Float32Type>(), expected, "{device}");
    }
}

#[test]
fn alternating_reference_words_use_the_kernel_of_the_plugin() {
    let Some(plugin) = example_plugin("alternating_reference_words_use_the_kernel_of_the_plugin") else {
        return;
    };
    for &device in devices() {
        let session = session(&plugin, device);
        let halves: Vec<u16> = (0..1001).collect();
        let words = Node::words(DataType::UInt16, &halves, u16::to_ne_bytes);
        let node = Node::xor(DataType::UInt16, &[0x34, 0x12, 0xff, 0, 0, 0x80, 1, 0], words);
        let array = decoded(&session, node.tree(&session, device));
        let flipped = |(i, half): (usize, &u16)| half ^ [0x1234, 0xff, 0x8000, 1][i % 4];
        let expected: Vec<u16> = halves.iter().enumerate().map(flipped).collect();
        assert_eq!(array.as_primitive::<UInt16Type>().values(), &expected[..], "{device}");
        let bytes = Node::words(DataType::UInt8, &[1u8, 2, 3], |byte| [byte]).with_validity(vec![0b101]);
        let array =
            decoded(&session, Node::xor(DataType::UInt8, &[0x10, 0x20], bytes).tree(&session, device));
        let values: Vec<_> = array.as_primitive::<UInt8Type>().iter().collect();
        assert_eq!(values, [Some(0x11), None, Some(0x13)], "{device}");
    }
}

#[test]
fn c_encoding_error_for_malformed_node_names_its_path() {
    let plugin = csv_plugin();
    let integers = || Node::words(DataType::Int32, &[1i32, 2], i32::to_ne_bytes);
    let longs = || Node::words(DataType::Int64, &[1i64, 2], i64::to_ne_bytes);
    let valid_node = || Node::scaled(DataType::Float32, &[0; 4], integers());
    let malformed = [
        (Node { data_type: DataType::Int32, ..valid_node() }, "neither Float32 nor Float64"),
        (Node { metadata: vec![0; 5], ..valid_node() }, "metadata has 5 bytes, expected a scale of 4"),
        (Node { children: vec![], ..valid_node() }, "0 buffers and 0 children, expected none and one"),
        (Node { len: 3, ..valid_node() }, "its child has 2 values, expected 3 of Int32"),
        (
            Node::scaled(DataType::Float32, &[0; 4], longs()),
            "its child has 2 values, expected 2 of Int32 or narrower",
        ),
    ];
    for &device in devices() {
        let session = session(&plugin, device);
        for (node, expected) in &malformed {
            let line = session.decode(node.tree(&session, Device::CPU)).expect_err(expected).one_line();
            assert!(
                line.contains(expected) && line.contains("example.scaled"),
                "{line:?}, expected {expected:?}"
            );
        }
    }
}

#[test]
fn command_lists_the_encoding_of_the_c_plugin() {
    let out = crossdock(&["plugins", "--explain", "--plugins", csv_plugin().to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("  decodes: example.scaled\n"), "{text}");
}

#[test]
fn command_shows_the_decoding_plan_of_each_node() {
    let plugin = csv_plugin();
    let session = session(&plugin, Device::CPU);
    let bits = Node { buffers: vec![vec![0b11]], ..Node::new("vortex.bool", DataType::Boolean, 3) };
    let bytes = Node::new("vortex.bytebool", DataType::Boolean, 2);
    let bytes = Node { buffers: vec![vec![1, 0]], ..bytes };
    let tree = Node::scaled(DataType::Float32, &[0; 4], with_reference_1000(bit_packed::<7>(&[1, 2, 3])));
    let folder = tempfile::tempdir().unwrap();
    let plans = |node: &Node, device: &str| {
        let path = folder.path().join("tree.cdenc");
        let bytes = session.encoded_to_bytes(node.tree(&session, Device::CPU)).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let plugins = plugin.to_str().unwrap();
        let out = crossdock(&[
            "inspect",
            path.to_str().unwrap(),
            "--plugins",
            plugins,
            "--device",
            device,
            "--json",
        ]);
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let nodes = report["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["plan"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(plans(&tree, "cuda:7"), ["cuda:7, by a program", "with its parent", "with its parent"]);
    // The codes of a dictionary are decoded together with the dictionary only if they are
    // bit-packed. The values of a dictionary are always decoded separately.
    let values = || Node::words(DataType::UInt32, &[7u32], u32::to_ne_bytes);
    let names = |codes| Node {
        metadata: vec![0x08, 1],
        children: vec![codes, values()],
        ..Node::new("vortex.dict", DataType::UInt32, 3)
    };
    let (by_program, above) = ("cuda:7, by a program", "with its parent");
    let codes = packed(DataType::UInt8, 1, &[0; 3]);
    assert_eq!(plans(&names(codes), "cuda:7"), [by_program, above, by_program]);
    let codes = Node::words(DataType::UInt8, &[0u8; 3], |byte| [byte]);
    assert_eq!(plans(&names(codes), "cuda:7"), [by_program; 3]);
    assert_eq!(plans(&tree, "cpu"), ["cpu, by a program", "cpu, by the plugin", "by an ancestor"]);
    assert_eq!(plans(&bits, "cuda"), ["cuda:0, by the plugin"]);
    assert_eq!(plans(&bytes, "cuda"), ["cuda:0, by the plugin"]);
}
