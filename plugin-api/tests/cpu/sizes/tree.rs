//! An encoded array of a later version, in which nodes and buffers are longer structs.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{EncodedArray, Owned, abi};

use crate::sizes::other_versions::Longer;

pub const IDS: [&str; 2] = ["later.sum", "later.leaf"];
pub const LENGTH: u64 = 7;

/// A root with two children. Each node has one byte of metadata and one buffer. This struct owns
/// the lists of the array.
pub struct Tree {
    pub nodes: Vec<Longer<abi::EncodedNode>>,
    pub buffers: Vec<Longer<abi::EncodedBuffer>>,
    pub array: Longer<abi::EncodedArray>,
    /// The number of buffers that were released.
    pub released: Box<AtomicUsize>,
}

static SCHEMA: Schema = Schema(abi::ArrowSchema {
    format: c"i".as_ptr(),
    name: std::ptr::null(),
    metadata: std::ptr::null(),
    flags: 0,
    n_children: 0,
    children: std::ptr::null_mut(),
    dictionary: std::ptr::null_mut(),
    release: Some(forget_schema),
    private_data: std::ptr::null_mut(),
});

struct Schema(abi::ArrowSchema);
// SAFETY: the schema is never written.
unsafe impl Sync for Schema {}

unsafe extern "C" fn forget_schema(schema: *mut abi::ArrowSchema) {
    // SAFETY: the caller passes the schema that is to be released, which is a copy of `SCHEMA`.
    unsafe { (*schema).release = None };
}

/// Releases an array. Frees nothing, because the nodes and buffers belong to a `Tree`.
unsafe extern "C" fn forget_array(array: *mut abi::EncodedArray) {
    // SAFETY: the caller passes the array that is to be released.
    unsafe { (*array).release = None };
}

unsafe extern "C" fn release_buffer(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: the caller passes the buffer that is to be released. Its `private_data` points to a
    // counter that outlives the buffer.
    unsafe {
        (*buffer).release = None;
        (*(*buffer).private_data.cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst);
    }
}

pub fn node(index: u32) -> abi::EncodedNode {
    static METADATA: [u8; 3] = [10, 11, 12];
    abi::EncodedNode {
        encoding: abi::Str::new(IDS[usize::from(index > 0)]),
        schema: &raw const SCHEMA.0,
        length: LENGTH,
        metadata: METADATA[index as usize..].as_ptr().cast(),
        metadata_bytes: 1,
        first_buffer: index,
        n_buffers: 1,
        n_children: if index == 0 { 2 } else { 0 },
        ..abi::EncodedNode::new()
    }
}

/// The schema of all nodes.
pub fn schema() -> Owned<abi::ArrowSchema> {
    // SAFETY: the copy of `SCHEMA` points only to static data, and its release frees nothing.
    unsafe { Owned::new(abi::ArrowSchema { ..SCHEMA.0 }) }
}

/// Creates a buffer whose address must not be dereferenced.
pub fn buffer(index: usize, released: &AtomicUsize) -> abi::EncodedBuffer {
    abi::EncodedBuffer {
        address: (64 * (index + 1)) as *const c_void,
        bytes: 8 * (index as u64 + 1),
        alignment: 8,
        release: Some(release_buffer),
        private_data: (&raw const *released).cast_mut().cast(),
        ..abi::EncodedBuffer::new()
    }
}

impl Tree {
    pub fn new() -> Self {
        let released = Box::new(AtomicUsize::new(0));
        let nodes: Vec<_> = (0..3).map(|index| Longer::new(node(index))).collect();
        let mut buffers: Vec<_> = (0..3).map(|index| Longer::new(buffer(index, &released))).collect();
        let mut array = Longer::new(abi::EncodedArray::new());
        (array.base.nodes, array.base.n_nodes) = (nodes.as_ptr().cast(), nodes.len());
        (array.base.buffers, array.base.n_buffers) = (buffers.as_mut_ptr().cast(), buffers.len());
        array.base.release = Some(forget_array);
        Self { nodes, buffers, array, released }
    }

    /// Moves the array out of the tree. Buffers that no test takes from the array still belong to
    /// the tree.
    pub fn take(&mut self) -> EncodedArray {
        // SAFETY: the lists of the array belong to `self`, which outlives the array in all tests.
        unsafe { EncodedArray::from_raw(Owned::take(self.array.at())) }.unwrap()
    }

    pub fn n_released(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn assert_tails_unchanged(&self) {
        self.array.assert_tail_unchanged();
        self.nodes.iter().for_each(Longer::assert_tail_unchanged);
        self.buffers.iter().for_each(Longer::assert_tail_unchanged);
    }
}
