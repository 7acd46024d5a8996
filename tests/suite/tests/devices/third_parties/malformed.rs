//! Tests that malformed nodes of `example.xor` are rejected with an error that names the node and
//! the mistake.

use arrow_schema::{DataType, Field};
use crossdock::Host;
use crossdock::memory::Backend;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::tree::Node;
use crossdock_tests::{built, example_plugin};

use crate::third_parties::trees::session;

/// A valid node: three floats, whose child has three words.
fn valid_node() -> Node {
    Node::xor(
        DataType::Float32,
        &[1, 2, 3, 4],
        Node::words(DataType::UInt32, &[1u32, 2, 3], u32::to_ne_bytes),
    )
}

fn changed(change: impl FnOnce(&mut Node)) -> Node {
    let mut node = valid_node();
    change(&mut node);
    node
}

fn malformed_nodes() -> Vec<(Node, &'static str)> {
    let list = DataType::List(Field::new("item", DataType::Float32, false).into());
    let words = || Node::words(DataType::UInt32, &[1u32, 2, 3], u32::to_ne_bytes);
    vec![
        (
            changed(|node| node.metadata.clear()),
            "its metadata has 0 bytes, expected 1, 2, 4 or 8 reference words of 4",
        ),
        (
            changed(|node| node.metadata.push(0)),
            "its metadata has 5 bytes, expected 1, 2, 4 or 8 reference words of 4",
        ),
        (changed(|node| node.data_type = DataType::Utf8), "its type has the format 'u'"),
        (changed(|node| node.data_type = DataType::Boolean), "its type has the format 'b'"),
        (changed(|node| node.data_type = list), "its type has the format '+l'"),
        (
            changed(|node| node.data_type = DataType::Float64),
            "its metadata has 4 bytes, expected 1, 2, 4 or 8 reference words of 8",
        ),
        (changed(|node| node.children.clear()), "0 buffers and 0 children, expected 0 and 1"),
        (changed(|node| node.children.push(words())), "0 buffers and 2 children"),
        (changed(|node| node.buffers.push(vec![0; 12])), "1 buffers and 1 children"),
        (changed(|node| node.len = 4), "3 values of format 'I', expected 4 of 'I'"),
        (changed(|node| node.len = u64::MAX), "expected 18446744073709551615 of 'I'"),
        (
            changed(|node| (node.len, node.children[0].len) = (u64::MAX, u64::MAX)),
            "its length, 18446744073709551615, overflows an address",
        ),
        (changed(|node| node.children[0].data_type = DataType::Int32), "3 values of format 'i'"),
        (changed(|node| node.children[0].nullable = true), "a nullable type, expected a non-nullable one"),
        (changed(|node| node.children[0].buffers[0].truncate(8)), "8 bytes, expected 12"),
        (changed(|node| node.id = "example.xor.v2"), "no plugin of the session decodes 'example.xor.v2'"),
    ]
}

#[test]
fn error_for_malformed_node_names_its_path() {
    let Some(plugin) = example_plugin("error_for_malformed_node_names_its_path") else { return };
    for &device in devices() {
        let session = session(&plugin, device);
        for (node, expected) in malformed_nodes() {
            let tree = node.tree(&session, Device::CPU);
            let line = session.decode(tree).expect_err(expected).one_line();
            assert!(line.contains(expected), "{line:?} does not contain {expected:?}");
            assert!(line.contains("example.xor"), "{line:?} does not name the node");
        }
        assert_eq!(session.decode(valid_node().tree(&session, device)).unwrap().len(), 3);
    }
}

#[test]
fn rejects_declared_length_larger_than_memory_before_allocating() {
    let test = "rejects_declared_length_larger_than_memory_before_allocating";
    let Some(plugin) = example_plugin(test) else { return };
    let session = session(&plugin, Device::CPU);
    let constant =
        Node { buffers: vec![vec![0x20, 1]], ..Node::new("vortex.constant", DataType::UInt64, 1 << 50) };
    let node = Node::xor(DataType::UInt64, &[0; 8], constant);
    let line = session.decode(node.tree(&session, Device::CPU)).expect_err("the tree is rejected").one_line();
    assert!(line.contains("example.xor") && line.contains("expected at most"), "{line}");
}

#[test]
fn rejects_declared_lengths_whose_sum_exceeds_memory() {
    const VALUES: u64 = 50_000;
    let backend = Backend::builder().limit_bytes(1 << 20).build();
    let host = Host::builder().plugins(built()).backend(backend).build().unwrap();
    let session = host.session().open().unwrap();
    let columns = |n: usize| {
        let column = || Node {
            buffers: vec![vec![0x20, 1]],
            ..Node::new("vortex.constant", DataType::UInt64, VALUES)
        };
        let fields: Vec<_> = (0..n).map(|i| Field::new(i.to_string(), DataType::UInt64, false)).collect();
        let children = (0..n).map(|_| column()).collect();
        let of_columns = DataType::Struct(fields.into());
        Node { children, ..Node::new("vortex.struct", of_columns, VALUES) }
    };
    assert_eq!(session.decode(columns(2).tree(&session, Device::CPU)).unwrap().len(), VALUES as usize);
    let line =
        session.decode(columns(3).tree(&session, Device::CPU)).expect_err("the tree is rejected").one_line();
    assert!(line.contains("vortex.struct: the nodes together need 12") && line.contains("1048576"), "{line}");
    // A chain of nodes needs less memory than the children of one node, because the values of each
    // node are released as soon as its parent is decoded.
    let parent_of = |child: Node| {
        let (len, metadata) = (child.len, vec![0x20, 1]);
        Node { metadata, children: vec![child], ..Node::new("fastlanes.for", DataType::UInt64, len) }
    };
    let mut chain = columns(1).children.remove(0);
    for _ in 0..5 {
        chain = parent_of(chain);
    }
    assert_eq!(session.decode(chain.tree(&session, Device::CPU)).unwrap().len(), VALUES as usize);
}
