//! An encoded array of a later release: nodes and buffers that lie further apart than we know.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{EncodedArray, Owned, abi};

use crate::sizes::made::Longer;

pub const IDS: [&str; 2] = ["later.sum", "later.leaf"];
pub const LENGTH: u64 = 7;

/// A root with two leaves; each of the three has a byte of metadata, and a buffer. The lists are as those who made them have them.
pub struct Tree {
    pub nodes: Vec<Longer<abi::EncodedNode>>,
    pub buffers: Vec<Longer<abi::EncodedBuffer>>,
    pub array: Longer<abi::EncodedArray>,
    /// Of its buffers.
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
// SAFETY: nobody writes to it.
unsafe impl Sync for Schema {}

unsafe extern "C" fn forget_schema(schema: *mut abi::ArrowSchema) {
    // SAFETY: a copy, which is released.
    unsafe { (*schema).release = None };
}

/// As whoever has the array releases it: nodes and buffers are the tree's.
unsafe extern "C" fn forget_array(array: *mut abi::EncodedArray) {
    // SAFETY: the array that is released.
    unsafe { (*array).release = None };
}

unsafe extern "C" fn release_buffer(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: the buffer that is released; what it counts with is its tree's.
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

/// As all nodes have it, for who owns one.
pub fn schema() -> Owned<abi::ArrowSchema> {
    // SAFETY: nothing of it is to be freed.
    unsafe { Owned::new(abi::ArrowSchema { ..SCHEMA.0 }) }
}

/// At an address that is nobody's to look at.
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
        (array.ours.nodes, array.ours.n_nodes) = (nodes.as_ptr().cast(), nodes.len());
        (array.ours.buffers, array.ours.n_buffers) = (buffers.as_mut_ptr().cast(), buffers.len());
        array.ours.release = Some(forget_array);
        Self { nodes, buffers, array, released }
    }

    /// The array, taken as a consumer takes it. Buffers that are still in it are the tree's.
    pub fn taken(&mut self) -> EncodedArray {
        // SAFETY: an array whose lists are the tree's, which outlives what its tests make of it.
        unsafe { EncodedArray::from_raw(Owned::take(self.array.at())) }.unwrap()
    }

    pub fn n_released(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn assert_its_ends_are_untouched(&self) {
        self.array.assert_its_end_is_untouched();
        self.nodes.iter().for_each(Longer::assert_its_end_is_untouched);
        self.buffers.iter().for_each(Longer::assert_its_end_is_untouched);
    }
}
