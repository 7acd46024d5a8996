//! What is a tree of nodes, and what is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::encoded::MOST_DEPTH;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts, Owned, Result, abi};

/// Released once, which `count` hears of.
fn buffer(bytes: u64, alignment: u64, count: &Arc<AtomicUsize>) -> Owned<abi::EncodedBuffer> {
    unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
        // SAFETY: set below only.
        let count = unsafe {
            (*buffer).release = None;
            Arc::from_raw((*buffer).private_data.cast::<AtomicUsize>())
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    let mut raw = abi::EncodedBuffer::new();
    raw.address = 64 as *const std::ffi::c_void;
    (raw.bytes, raw.alignment) = (bytes, alignment);
    raw.release = Some(release);
    raw.private_data = Arc::into_raw(count.clone()).cast_mut().cast();
    // SAFETY: complete, and nobody else's.
    unsafe { Owned::new(raw) }
}

fn node(id: &str, n_buffers: u32, n_children: u32) -> NodeParts {
    let logical_type = LogicalType::Dtype(vec![1]);
    NodeParts { encoding: id.into(), logical_type, length: 1, metadata: vec![], n_buffers, n_children }
}

fn tree(shape: &[(&str, u32, u32)], buffers: usize, count: &Arc<AtomicUsize>) -> Result<EncodedArray> {
    let nodes = shape.iter().map(|(id, n_buffers, n_children)| node(id, *n_buffers, *n_children)).collect();
    EncodedArray::new(nodes, (0..buffers).map(|_| buffer(8, 8, count)).collect())
}

fn why_not(shape: &[(&str, u32, u32)], buffers: usize) -> String {
    let count = Arc::default();
    let error = tree(shape, buffers, &count).err().expect("it was taken for a tree");
    assert_eq!(count.load(Ordering::Relaxed), buffers, "not all buffers were released");
    error.message().to_string()
}

#[test]
fn nodes_find_their_children_and_their_buffers() {
    let count = Arc::default();
    let array = tree(&[("a", 1, 2), ("b", 0, 1), ("c", 2, 0), ("d", 1, 0)], 4, &count).unwrap();
    let root = array.root().unwrap();
    let ids: Vec<_> = root.children().map(|child| child.encoding().to_string()).collect();
    assert_eq!(ids, ["b", "d"]);
    assert_eq!(root.children().map(|child| child.end()).collect::<Vec<_>>(), [3, 4]);
    let c = array.node(2).unwrap();
    assert_eq!(c.path(), "a[0]/b[0]/c");
    // SAFETY: nobody else takes them.
    let taken = unsafe { c.take_buffer(1) }.unwrap();
    // SAFETY: as above.
    assert!(unsafe { c.take_buffer(1) }.is_err());
    assert!(c.buffer(2).is_err());
    drop(array);
    assert_eq!(count.load(Ordering::Relaxed), 3, "what was taken lives on");
    drop(taken);
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[test]
fn what_is_no_tree_is_refused_and_its_buffers_are_released() {
    assert!(why_not(&[], 0).contains("0 nodes"));
    assert!(why_not(&[("a", 0, 1)], 0).contains("too early"));
    assert!(why_not(&[("a", 0, 0), ("b", 0, 0)], 0).contains("no node's child"));
    assert!(why_not(&[("a", 2, 0)], 1).contains("2 buffers together, the array has 1"));
    assert!(why_not(&[("a", 0, 0)], 1).contains("0 buffers together, the array has 1"));
    assert!(why_not(&[("", 0, 0)], 0).contains("0 bytes"));
}

/// What a list of two nodes and two buffers is refused for, once `change` has changed it.
fn raw_why_not(change: impl FnOnce(&mut [abi::EncodedNode; 2], &mut abi::EncodedArray)) -> String {
    unsafe extern "C" fn release(array: *mut abi::EncodedArray) {
        // SAFETY: set below only; the lists are the caller's.
        unsafe { (*array).release = None };
    }
    let count = Arc::default();
    let mut buffers = [buffer(8, 8, &count), buffer(8, 8, &count)].map(Owned::into_raw);
    let dtype = [1u8];
    let node = |first_buffer, n_children| abi::EncodedNode {
        encoding: abi::Str::new("a"),
        dtype: dtype.as_ptr().cast(),
        dtype_bytes: 1,
        length: 1,
        first_buffer,
        n_buffers: 1,
        n_children,
        ..abi::EncodedNode::new()
    };
    let mut nodes = [node(0, 1), node(1, 0)];
    let mut raw = abi::EncodedArray::new();
    (raw.n_nodes, raw.n_buffers) = (2, 2);
    raw.release = Some(release);
    raw.buffers = buffers.as_mut_ptr();
    change(&mut nodes, &mut raw);
    raw.nodes = if raw.n_nodes == 0 { std::ptr::null() } else { nodes.as_ptr() };
    // SAFETY: both lists outlive what is made of them here.
    let made = unsafe { EncodedArray::from_raw(Owned::new(raw)) };
    let why = made.err().map_or_else(String::new, |error| error.message().to_string());
    // SAFETY: nobody took them.
    drop(buffers.map(|buffer| unsafe { Owned::new(buffer) }));
    why
}

#[test]
fn structs_that_share_buffers_or_lack_what_they_claim_are_refused() {
    assert_eq!(raw_why_not(|_, _| {}), "", "the tree that the others are made of is sound");
    let shared = "has buffers from number 0 on, expected 1: each buffer is one node's, in order";
    assert!(raw_why_not(|nodes, _| nodes[1].first_buffer = 0).contains(shared));
    assert!(raw_why_not(|nodes, _| nodes[0].first_buffer = 1).contains("from number 1 on, expected 0"));
    assert!(raw_why_not(|nodes, _| nodes[1].first_buffer = u32::MAX).contains("expected 1"));
    assert!(raw_why_not(|nodes, _| nodes[1].n_buffers = u32::MAX).contains("buffers together"));
    assert!(raw_why_not(|nodes, _| nodes[1].n_children = u32::MAX).contains("too early"));
    assert!(raw_why_not(|nodes, _| nodes[0].n_children = 0).contains("no node's child"));
    assert!(raw_why_not(|nodes, _| nodes[1].dtype = std::ptr::null()).contains("no type"));
    assert!(raw_why_not(|nodes, _| nodes[1].dtype_bytes = 0).contains("no type"));
    assert!(raw_why_not(|nodes, _| nodes[1].dtype_bytes = usize::MAX).contains("no type"));
    assert!(raw_why_not(|nodes, _| nodes[1].metadata_bytes = 1).contains("1 bytes of metadata"));
    assert!(raw_why_not(|nodes, _| nodes[1].metadata_bytes = usize::MAX).contains("bytes of metadata"));
    assert!(raw_why_not(|_, array| array.n_nodes = usize::MAX).contains("nodes and 2 buffers"));
    assert!(raw_why_not(|_, array| array.n_nodes = 0).contains("0 nodes"));
    assert!(raw_why_not(|_, array| array.n_buffers = 1).contains("the array has 1"));
    assert!(raw_why_not(|_, array| array.n_buffers = usize::MAX).contains("buffers, expected"));
    assert!(raw_why_not(|_, array| array.buffers = std::ptr::null_mut()).contains("encoded buffers"));
}

#[test]
fn types_and_ids_that_are_none_are_refused() {
    let released = abi::ArrowSchema::default();
    assert!(raw_why_not(|nodes, _| nodes[1].schema = &raw const released).contains("no type"));
    let not_text = [0xffu8, 0xfe];
    let bad = |nodes: &mut [abi::EncodedNode; 2], _: &mut abi::EncodedArray| {
        nodes[1].encoding = abi::Str { data: not_text.as_ptr().cast(), bytes: 2 };
    };
    assert!(raw_why_not(bad).contains("node 1's encoding"));
}

#[test]
fn a_tree_is_as_deep_as_it_may_be_and_no_deeper() {
    let chain = |depth: usize| -> Vec<_> { (0..depth).map(|i| ("a", 0, u32::from(i + 1 < depth))).collect() };
    assert_eq!(tree(&chain(MOST_DEPTH), 0, &Arc::default()).unwrap().n_nodes(), MOST_DEPTH);
    assert!(why_not(&chain(MOST_DEPTH + 1), 0).contains("deeper than 64"));
    assert!(why_not(&chain(100_000), 0).contains("deeper than 64"));
}

#[test]
fn a_buffer_that_is_not_where_it_says_is_refused() {
    for (bytes, alignment) in [(8, 3), (8, 0), (8, 128), (u64::MAX, 8)] {
        let count = Arc::default();
        let made = EncodedArray::new(vec![node("a", 1, 0)], vec![buffer(bytes, alignment, &count)]);
        assert!(made.err().unwrap().message().contains("buffer 0"), "{bytes} bytes, {alignment}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
