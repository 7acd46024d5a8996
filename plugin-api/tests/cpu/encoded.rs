//! Tests the validation of the trees of encoded arrays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::encoded::MAX_DEPTH;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts, Owned, Result, abi};

/// Creates a buffer that increments `count` when it is released.
fn buffer(bytes: u64, alignment: u64, count: &Arc<AtomicUsize>) -> Owned<abi::EncodedBuffer> {
    unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
        // SAFETY: only `buffer` sets this function, with a leaked `Arc`. Clearing `release` ensures
        // that this runs only once.
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
    // SAFETY: this function created the buffer with its release function, and there is no other
    // copy of it.
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

/// Returns the error message for an invalid tree, and asserts that all its buffers were released.
fn error_message(shape: &[(&str, u32, u32)], buffers: usize) -> String {
    let count = Arc::default();
    let error = tree(shape, buffers, &count).err().expect("the tree was accepted");
    assert_eq!(count.load(Ordering::Relaxed), buffers, "not all buffers were released");
    error.message().to_string()
}

#[test]
fn nodes_return_their_children_and_buffers() {
    let count = Arc::default();
    let array = tree(&[("a", 1, 2), ("b", 0, 1), ("c", 2, 0), ("d", 1, 0)], 4, &count).unwrap();
    let root = array.root().unwrap();
    let ids: Vec<_> = root.children().map(|child| child.encoding().to_string()).collect();
    assert_eq!(ids, ["b", "d"]);
    assert_eq!(root.children().map(|child| child.end()).collect::<Vec<_>>(), [3, 4]);
    let c = array.node(2).unwrap();
    assert_eq!(c.path(), "a[0]/b[0]/c");
    // SAFETY: no other thread accesses the array.
    let buffer = unsafe { c.take_buffer(1) }.unwrap();
    // SAFETY: no other thread accesses the array.
    assert!(unsafe { c.take_buffer(1) }.is_err());
    assert!(c.buffer(2).is_err());
    drop(array);
    assert_eq!(count.load(Ordering::Relaxed), 3, "a buffer that was taken outlives the array");
    drop(buffer);
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[test]
fn rejects_invalid_trees_and_releases_their_buffers() {
    assert!(error_message(&[], 0).contains("0 nodes"));
    assert!(error_message(&[("a", 0, 1)], 0).contains("1 children are missing"));
    assert!(error_message(&[("a", 0, 0), ("b", 0, 0)], 0).contains("no parent"));
    assert!(error_message(&[("a", 2, 0)], 1).contains("1 buffers, but its nodes have 2"));
    assert!(error_message(&[("a", 0, 0)], 1).contains("1 buffers, but its nodes have 0"));
    assert!(error_message(&[("", 0, 0)], 0).contains("0 bytes"));
}

/// Creates a C array with two nodes and two buffers, applies `change`, and returns the message of
/// the error. Returns an empty string if the array is accepted.
fn raw_error_message(change: impl FnOnce(&mut [abi::EncodedNode; 2], &mut abi::EncodedArray)) -> String {
    unsafe extern "C" fn release(array: *mut abi::EncodedArray) {
        // SAFETY: the caller passes the array that is to be released. The array does not own its
        // lists.
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
    // SAFETY: both lists outlive the array.
    let array = unsafe { EncodedArray::from_raw(Owned::new(raw)) };
    let message = array.err().map_or_else(String::new, |error| error.message().to_string());
    // SAFETY: no test has taken the buffers, and the array does not own them.
    drop(buffers.map(|buffer| unsafe { Owned::new(buffer) }));
    message
}

#[test]
fn rejects_wrong_counts_and_null_pointers() {
    assert_eq!(raw_error_message(|_, _| {}), "", "the unchanged tree is valid");
    let shared = "the first buffer is 0, expected 1, because each buffer belongs to one node, in order";
    assert!(raw_error_message(|nodes, _| nodes[1].first_buffer = 0).contains(shared));
    assert!(
        raw_error_message(|nodes, _| nodes[0].first_buffer = 1).contains("the first buffer is 1, expected 0")
    );
    assert!(raw_error_message(|nodes, _| nodes[1].first_buffer = u32::MAX).contains("expected 1"));
    assert!(
        raw_error_message(|nodes, _| nodes[1].n_buffers = u32::MAX).contains("2 buffers, but its nodes have")
    );
    assert!(raw_error_message(|nodes, _| nodes[1].n_children = u32::MAX).contains("children are missing"));
    assert!(raw_error_message(|nodes, _| nodes[0].n_children = 0).contains("no parent"));
    assert!(raw_error_message(|nodes, _| nodes[1].dtype = std::ptr::null()).contains("no type"));
    assert!(raw_error_message(|nodes, _| nodes[1].dtype_bytes = 0).contains("no type"));
    assert!(raw_error_message(|nodes, _| nodes[1].dtype_bytes = usize::MAX).contains("no type"));
    assert!(raw_error_message(|nodes, _| nodes[1].metadata_bytes = 1).contains("1 bytes of metadata"));
    assert!(raw_error_message(|nodes, _| nodes[1].metadata_bytes = usize::MAX).contains("bytes of metadata"));
    assert!(raw_error_message(|_, array| array.n_nodes = usize::MAX).contains("nodes and 2 buffers"));
    assert!(raw_error_message(|_, array| array.n_nodes = 0).contains("0 nodes"));
    assert!(raw_error_message(|_, array| array.n_buffers = 1).contains("the array has 1 buffers"));
    assert!(raw_error_message(|_, array| array.n_buffers = usize::MAX).contains("buffers, expected"));
    assert!(raw_error_message(|_, array| array.buffers = std::ptr::null_mut()).contains("encoded buffers"));
}

#[test]
fn rejects_released_types_and_invalid_ids() {
    let released = abi::ArrowSchema::default();
    assert!(raw_error_message(|nodes, _| nodes[1].schema = &raw const released).contains("no type"));
    let not_text = [0xffu8, 0xfe];
    let bad = |nodes: &mut [abi::EncodedNode; 2], _: &mut abi::EncodedArray| {
        nodes[1].encoding = abi::Str { data: not_text.as_ptr().cast(), bytes: 2 };
    };
    assert!(raw_error_message(bad).contains("node 1's encoding"));
}

#[test]
fn rejects_trees_deeper_than_maximum() {
    let chain = |depth: usize| -> Vec<_> { (0..depth).map(|i| ("a", 0, u32::from(i + 1 < depth))).collect() };
    assert_eq!(tree(&chain(MAX_DEPTH), 0, &Arc::default()).unwrap().n_nodes(), MAX_DEPTH);
    assert!(error_message(&chain(MAX_DEPTH + 1), 0).contains("deeper than 64"));
    assert!(error_message(&chain(100_000), 0).contains("deeper than 64"));
}

#[test]
fn rejects_buffers_with_invalid_addresses_or_alignments() {
    for (bytes, alignment) in [(8, 3), (8, 0), (8, 128), (u64::MAX, 8)] {
        let count = Arc::default();
        let array = EncodedArray::new(vec![node("a", 1, 0)], vec![buffer(bytes, alignment, &count)]);
        assert!(array.err().unwrap().message().contains("buffer 0"), "{bytes} bytes, {alignment}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
