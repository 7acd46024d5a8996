//! Allocates all nodes, lists and sizes of an exported batch at once. The allocation is freed when
//! the last node is released.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crossdock_plugin_api::abi;

/// Size of a node, in words of 8 bytes.
const NODE_WORDS: usize = size_of::<abi::ArrowArray>() / 8;
// The arena stores nodes and pointers in words of 8 bytes.
const _: () = assert!(size_of::<*const c_void>() == 8 && size_of::<abi::ArrowArray>().is_multiple_of(8));

/// The number of objects to allocate.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    /// Number of nodes without the root.
    pub nodes: usize,
    /// Number of entries in the nodes' lists of buffers.
    pub buffers: usize,
    /// Number of entries in the nodes' lists of children, plus the number of entries in the view
    /// arrays' lists of data buffer sizes.
    pub other_words: usize,
}

/// The allocated words, and the owner of the exported buffers.
struct Arena<Owner> {
    /// Number of nodes that are not released yet.
    alive: AtomicUsize,
    inline: [u64; INLINE_WORDS],
    /// The words, if they do not fit into `inline`.
    heap: Option<NonNull<[u64]>>,
    owner: Option<Owner>,
}

// SAFETY: `Owner` is `Send`, and the words are plain memory that only this arena frees.
unsafe impl<Owner: Send> Send for Arena<Owner> {}

impl<Owner> Drop for Arena<Owner> {
    fn drop(&mut self) {
        if let Some(heap) = self.heap {
            // SAFETY: `Builder::new` created `heap` with `Box::into_raw`. All nodes in `heap` are
            // released, so no code uses `heap` after this line.
            drop(unsafe { Box::from_raw(heap.as_ptr()) });
        }
    }
}

/// Number of words that suffice for a batch of one column.
const INLINE_WORDS: usize = 32;

/// Allocates the words in a fixed order: nodes, then lists, then sizes.
pub(super) struct Builder<Owner> {
    /// The arena is on the heap, so that its words never move. `finish` passes the ownership of the
    /// arena to the nodes.
    arena: *mut Arena<Owner>,
    /// The words of the arena. They are zeroed.
    words: *mut u64,
    n_words: usize,
    next_node: usize,
    end_nodes: usize,
    next_word: usize,
    end_words: usize,
    next_size: usize,
}

impl<Owner: Send> Builder<Owner> {
    pub(super) fn new(size: Size) -> Self {
        let end_nodes = size.nodes * NODE_WORDS;
        let end_words = end_nodes + size.buffers + size.other_words;
        // The last word stays zero, because empty arrays use it as their only offset.
        let n_words = end_words + size.buffers + 1;
        let arena = Box::into_raw(Box::<Arena<Owner>>::new_uninit()).cast::<Arena<Owner>>();
        // SAFETY: the allocation has room for an `Arena`, and each field of the arena is written
        // once. `words` points into `inline` or to a heap allocation, and both stay at their
        // address.
        let words = unsafe {
            (&raw mut (*arena).alive).write(AtomicUsize::new(0));
            (&raw mut (*arena).inline).write([0; INLINE_WORDS]);
            (&raw mut (*arena).owner).write(None);
            if n_words <= INLINE_WORDS {
                (&raw mut (*arena).heap).write(None);
                (&raw mut (*arena).inline).cast::<u64>()
            } else {
                let heap = Box::into_raw(vec![0u64; n_words].into_boxed_slice());
                (&raw mut (*arena).heap).write(NonNull::new(heap));
                heap.cast::<u64>()
            }
        };
        let (next_word, next_size) = (end_nodes, end_words);
        Self { arena, words, n_words, next_node: 0, end_nodes, next_word, end_words, next_size }
    }

    /// Allocates `n` adjacent, zeroed nodes.
    pub(super) fn nodes(&mut self, n: usize) -> *mut abi::ArrowArray {
        let at = self.next_node;
        self.next_node += n * NODE_WORDS;
        debug_assert!(self.next_node <= self.end_nodes);
        self.words.wrapping_add(at).cast()
    }

    /// Allocates `n` zeroed words.
    pub(super) fn list<T>(&mut self, n: usize) -> *mut T {
        let at = self.next_word;
        self.next_word += n;
        debug_assert!(self.next_word <= self.end_words);
        self.words.wrapping_add(at).cast()
    }

    /// Stores the size of the next buffer, in pre-order.
    pub(super) fn size(&mut self, bytes: i64) {
        if self.next_size < self.n_words {
            // SAFETY: the index is less than `n_words`.
            unsafe { *self.words.add(self.next_size) = bytes as u64 };
        }
        self.next_size += 1;
    }

    /// The address of the list of sizes, and the number of sizes.
    pub(super) fn sizes(&self) -> (*const i64, usize) {
        (self.words.wrapping_add(self.end_words).cast(), self.next_size - self.end_words)
    }

    /// The address of 8 zero bytes.
    pub(super) fn zero(&self) -> *const c_void {
        self.words.wrapping_add(self.n_words - 1).cast()
    }

    /// Passes ownership of the arena and of `owner` to `root` and all allocated nodes.
    pub(super) fn finish(self, root: &mut abi::ArrowArray, owner: Owner) {
        // The nodes own the arena, so `drop` must not free it.
        let this = ManuallyDrop::new(self);
        let (arena, n) = (this.arena, this.next_node / NODE_WORDS);
        // SAFETY: `new` initialized the arena, and no node has a `release` yet, so nothing else
        // accesses it.
        unsafe {
            (*arena).alive = AtomicUsize::new(n + 1);
            (*arena).owner = Some(owner);
        }
        let (nodes, arena) = (this.words.cast::<abi::ArrowArray>(), arena.cast::<c_void>());
        for i in 0..n {
            // SAFETY: `nodes` allocated the first `n` nodes of the words, and zero bytes are a
            // valid node.
            let node = unsafe { &mut *nodes.add(i) };
            node.release = Some(release::<Owner>);
            node.private_data = arena;
        }
        root.release = Some(release::<Owner>);
        root.private_data = arena;
    }
}

impl<Owner> Drop for Builder<Owner> {
    fn drop(&mut self) {
        // SAFETY: `new` created the arena with `Box::into_raw`. `finish` forgets the builder, so
        // `drop` runs only if `finish` did not run. Therefore no node refers to the arena.
        drop(unsafe { Box::from_raw(self.arena) });
    }
}

unsafe extern "C" fn release<Owner>(array: *mut abi::ArrowArray) {
    if array.is_null() {
        return;
    }
    // SAFETY: the consumer passes an exported node, possibly moved, and does not use it again.
    // `finish` set its `private_data` to the arena, which is freed only after its last node is
    // released.
    unsafe {
        if (*array).release.is_none() {
            return;
        }
        let arena = (*array).private_data.cast::<Arena<Owner>>();
        let n = release_tree(array);
        if (*arena).alive.fetch_sub(n, Ordering::Release) == n {
            fence(Ordering::Acquire);
            // Dropping the owner may call the release callbacks of other libraries. A panic must
            // not unwind through this `extern "C"` function.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(arena)))) {
                std::mem::forget(payload);
            }
        }
    }
}

/// Marks a node and all its unreleased descendants as released. Returns the number of nodes that it
/// marked.
///
/// # Safety
/// `node` is an unreleased node of an arena that is not freed.
unsafe fn release_tree(node: *mut abi::ArrowArray) -> usize {
    let mut n = 1;
    // SAFETY: the node's lists are in the arena, which the caller keeps alive. The depth of the
    // recursion is at most `MAX_DEPTH`, because `DeviceArray` limits its depth to `MAX_DEPTH`.
    unsafe {
        (*node).release = None;
        let children = (0..(*node).n_children as usize).map(|i| *(*node).children.add(i));
        for child in children.chain([(*node).dictionary]) {
            if !child.is_null() && (*child).release.is_some() {
                n += release_tree(child);
            }
        }
    }
    n
}
