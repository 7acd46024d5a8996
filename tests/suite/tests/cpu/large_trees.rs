//! Tests that the nodes of a large encoded array count against the memory limit while the array is
//! read and decoded.

use arrow_schema::DataType;
use crossdock::memory::Backend;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Result, Session};
use crossdock_tests::built;
use crossdock_tests::failing::error_chain;
use crossdock_tests::tree::Node;

const CHUNKS: u64 = 8000;

fn chunked(session: &Session) -> Vec<u8> {
    let ends: Vec<u64> = (0..=CHUNKS).collect();
    let chunk = |at: u64| Node::words(DataType::Int32, &[at as i32], i32::to_le_bytes);
    let offsets = Node::words(DataType::UInt64, &ends, u64::to_le_bytes);
    let children = std::iter::once(offsets).chain((0..CHUNKS).map(chunk)).collect();
    Node { children, ..Node::new("vortex.chunked", DataType::Int32, CHUNKS) }.to_bytes(session)
}

fn rows(session: &Session, bytes: &[u8]) -> Result<usize> {
    let options = ReadOptions { from: Some("encodings".into()), ..ReadOptions::default() };
    let mut rows = 0;
    for batch in session.read(Input::bytes(bytes.to_vec()), &options)? {
        rows += batch?.len();
    }
    Ok(rows)
}

#[test]
fn rejects_large_trees_within_the_memory_limit() {
    let open = |limit_bytes| {
        let backend = Backend::builder().limit_bytes(limit_bytes).pool_bytes(0).build();
        let host = Host::builder().plugins(built()).backend(backend.clone()).build().unwrap();
        (host.session().open().unwrap(), host, backend)
    };
    let bytes = chunked(&open(1 << 30).0);
    // The first limit is too small to read the tree. The second limit is large enough to read the
    // tree, but too small to decode it. The third limit is large enough for both.
    for (limit_bytes, expected) in
        [(4 << 20, Some("a tree of many nodes")), (12 << 20, Some("a tree of 8002 nodes")), (64 << 20, None)]
    {
        let (session, host, backend) = open(limit_bytes);
        match (rows(&session, &bytes), expected) {
            (Ok(rows), None) => assert_eq!(rows as u64, CHUNKS),
            (Err(error), Some(expected)) => {
                let message = error_chain(&error);
                assert!(
                    message.contains(expected) && message.contains("asked for"),
                    "{limit_bytes}: {message}"
                );
            }
            (other, _) => panic!("{limit_bytes}: {other:?}"),
        }
        host.settle();
        assert_eq!(backend.ledger().live_bytes(), 0, "{limit_bytes}");
    }
}
