//! Nodes of `example.xor` that do not fit: an error each, which names the node and what is wrong with it.

use arrow_schema::{DataType, Field};
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::example_plugin;

use crate::trees::{Node, session};

/// Three floats above three words.
fn honest() -> Node {
    Node::xor(
        DataType::Float32,
        &[1, 2, 3, 4],
        Node::words(DataType::UInt32, &[1u32, 2, 3], u32::to_ne_bytes),
    )
}

fn changed(change: impl FnOnce(&mut Node)) -> Node {
    let mut node = honest();
    change(&mut node);
    node
}

fn lies() -> Vec<(Node, &'static str)> {
    let list = DataType::List(Field::new("item", DataType::Float32, false).into());
    let words = || Node::words(DataType::UInt32, &[1u32, 2, 3], u32::to_ne_bytes);
    vec![
        (changed(|node| node.metadata.clear()), "its metadata has 0 bytes, expected a reference word of 4"),
        (
            changed(|node| node.metadata.push(0)),
            "its metadata has 5 bytes, expected a reference word of 4, or so many",
        ),
        (changed(|node| node.data_type = DataType::Utf8), "its type has the format 'u'"),
        (changed(|node| node.data_type = DataType::Boolean), "its type has the format 'b'"),
        (changed(|node| node.data_type = list), "its type has the format '+l'"),
        (
            changed(|node| node.data_type = DataType::Float64),
            "its metadata has 4 bytes, expected a reference word of 8",
        ),
        (changed(|node| node.children.clear()), "0 buffers and 0 children, expected none and one"),
        (changed(|node| node.children.push(words())), "0 buffers and 2 children"),
        (changed(|node| node.buffers.push(vec![0; 12])), "1 buffers and 1 children"),
        (changed(|node| node.len = 4), "3 values of format 'I', expected 4 of 'I'"),
        (changed(|node| node.len = u64::MAX), "expected 18446744073709551615 of 'I'"),
        (
            changed(|node| (node.len, node.children[0].len) = (u64::MAX, u64::MAX)),
            "18446744073709551615 values are more than there can be",
        ),
        (changed(|node| node.children[0].data_type = DataType::Int32), "3 values of format 'i'"),
        (changed(|node| node.children[0].nullable = true), "a type with nulls, expected one without"),
        (changed(|node| node.children[0].buffers[0].truncate(8)), "8 bytes, expected 12"),
        (changed(|node| node.id = "example.xor.v2"), "no plugin of the session decodes 'example.xor.v2'"),
    ]
}

#[test]
fn a_node_that_does_not_fit_is_refused_with_its_place() {
    let Some(plugin) = example_plugin("a_node_that_does_not_fit_is_refused_with_its_place") else { return };
    for &device in devices() {
        let session = session(&plugin, device);
        for (node, expected) in lies() {
            let tree = node.tree(&session, Device::CPU);
            let line = session.decode(tree).expect_err(expected).one_line();
            assert!(line.contains(expected), "{line:?} does not contain {expected:?}");
            assert!(line.contains("example.xor"), "{line:?} does not say where");
        }
        assert_eq!(session.decode(honest().tree(&session, device)).unwrap().len(), 3);
    }
}

#[test]
fn a_claim_beyond_all_memory_is_refused_before_anything_is_allocated() {
    let test = "a_claim_beyond_all_memory_is_refused_before_anything_is_allocated";
    let Some(plugin) = example_plugin(test) else { return };
    let session = session(&plugin, Device::CPU);
    let constant =
        Node { buffers: vec![vec![0x20, 1]], ..Node::new("vortex.constant", DataType::UInt64, 1 << 50) };
    let node = Node::xor(DataType::UInt64, &[0; 8], constant);
    let line = session.decode(node.tree(&session, Device::CPU)).expect_err("it was decoded").one_line();
    assert!(line.contains("example.xor") && line.contains("more than the"), "{line}");
}
