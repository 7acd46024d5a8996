//! Nodes of `example.xor` that do not fit: an error each, which names the node and what is wrong with it.

use arrow_schema::{DataType, Field};
use crossdock::Host;
use crossdock::memory::Backend;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::tree::Node;
use crossdock_tests::{built, example_plugin};

use crate::third_parties::trees::session;

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

#[test]
fn claims_that_are_too_much_together_are_refused_before_anything_is_allocated() {
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
    let line = session.decode(columns(3).tree(&session, Device::CPU)).expect_err("it was decoded").one_line();
    assert!(line.contains("vortex.struct: its nodes would take 12") && line.contains("1048576"), "{line}");
    // One after the other they fit: each is gone when the one above it is decoded.
    let of = |below: Node| {
        let (len, metadata) = (below.len, vec![0x20, 1]);
        Node { metadata, children: vec![below], ..Node::new("fastlanes.for", DataType::UInt64, len) }
    };
    let mut chain = columns(1).children.remove(0);
    for _ in 0..5 {
        chain = of(chain);
    }
    assert_eq!(session.decode(chain.tree(&session, Device::CPU)).unwrap().len(), VALUES as usize);
}
