//! One allocation for all nodes, lists and sizes of an exported batch, freed by the last node's release.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crossdock_plugin_api::abi;

/// Words (8 bytes) that a node takes.
const NODE_WORDS: usize = size_of::<abi::ArrowArray>() / 8;
// Nodes and pointers are laid out in words.
const _: () = assert!(size_of::<*const c_void>() == 8 && size_of::<abi::ArrowArray>().is_multiple_of(8));

/// How much of each there will be.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    /// Below the root.
    pub nodes: usize,
    /// Entries of the nodes' buffer lists.
    pub buffers: usize,
    /// Entries of the nodes' lists of children, and of views' lists of sizes.
    pub other_words: usize,
}

/// The words, and what the array must keep alive.
struct Arena<Kept> {
    /// Nodes that are not released yet.
    alive: AtomicUsize,
    few: [u64; FEW],
    /// Instead of `few`, where they are more.
    many: Option<NonNull<[u64]>>,
    kept: Option<Kept>,
}

// SAFETY: whoever drops it last drops what is kept, on any thread; the words are plain memory of its own.
unsafe impl<Kept: Send> Send for Arena<Kept> {}

impl<Kept> Drop for Arena<Kept> {
    fn drop(&mut self) {
        if let Some(many) = self.many {
            // SAFETY: a Box of the arena's own, which nobody refers to any more.
            drop(unsafe { Box::from_raw(many.as_ptr()) });
        }
    }
}

/// Words of a batch of one column, and then some.
const FEW: usize = 32;

/// Hands out the words in order: nodes, then lists, then sizes.
pub(super) struct Builder<Kept> {
    /// On the heap from the start, for what is handed out stays where it is. Ours until the end.
    arena: *mut Arena<Kept>,
    /// All zero at first.
    words: *mut u64,
    n_words: usize,
    next_node: usize,
    end_nodes: usize,
    next_word: usize,
    end_words: usize,
    next_size: usize,
}

impl<Kept: Send> Builder<Kept> {
    pub(super) fn new(size: Size) -> Self {
        let end_nodes = size.nodes * NODE_WORDS;
        let end_words = end_nodes + size.buffers + size.other_words;
        // One more, always zero, for empty arrays' offsets.
        let n_words = end_words + size.buffers + 1;
        let arena = Box::into_raw(Box::<Arena<Kept>>::new_uninit()).cast::<Arena<Kept>>();
        // SAFETY: an allocation for an arena, each of whose fields is written once, in its place. Where there are many words,
        // they are on the heap, where moving their owner leaves them.
        let words = unsafe {
            (&raw mut (*arena).alive).write(AtomicUsize::new(0));
            (&raw mut (*arena).few).write([0; FEW]);
            (&raw mut (*arena).kept).write(None);
            if n_words <= FEW {
                (&raw mut (*arena).many).write(None);
                (&raw mut (*arena).few).cast::<u64>()
            } else {
                let many = Box::into_raw(vec![0u64; n_words].into_boxed_slice());
                (&raw mut (*arena).many).write(NonNull::new(many));
                many.cast::<u64>()
            }
        };
        let (next_word, next_size) = (end_nodes, end_words);
        Self { arena, words, n_words, next_node: 0, end_nodes, next_word, end_words, next_size }
    }

    /// `n` nodes side by side, zeroed.
    pub(super) fn nodes(&mut self, n: usize) -> *mut abi::ArrowArray {
        let at = self.next_node;
        self.next_node += n * NODE_WORDS;
        debug_assert!(self.next_node <= self.end_nodes);
        self.words.wrapping_add(at).cast()
    }

    /// `n` words, zeroed.
    pub(super) fn list<T>(&mut self, n: usize) -> *mut T {
        let at = self.next_word;
        self.next_word += n;
        debug_assert!(self.next_word <= self.end_words);
        self.words.wrapping_add(at).cast()
    }

    /// Notes the size of the next buffer, in pre-order.
    pub(super) fn size(&mut self, bytes: i64) {
        if self.next_size < self.n_words {
            // SAFETY: one of the words.
            unsafe { *self.words.add(self.next_size) = bytes as u64 };
        }
        self.next_size += 1;
    }

    /// The sizes and how many.
    pub(super) fn sizes(&self) -> (*const i64, usize) {
        (self.words.wrapping_add(self.end_words).cast(), self.next_size - self.end_words)
    }

    /// 8 zero bytes.
    pub(super) fn zero(&self) -> *const c_void {
        self.words.wrapping_add(self.n_words - 1).cast()
    }

    /// The finished arena; `root` and the nodes that were handed out become its nodes.
    pub(super) fn finish(self, root: &mut abi::ArrowArray, kept: Kept) {
        // From here on it is the nodes'.
        let this = ManuallyDrop::new(self);
        let (arena, n) = (this.arena, this.next_node / NODE_WORDS);
        // SAFETY: the arena is ours and complete.
        unsafe {
            (*arena).alive = AtomicUsize::new(n + 1);
            (*arena).kept = Some(kept);
        }
        let (nodes, arena) = (this.words.cast::<abi::ArrowArray>(), arena.cast::<c_void>());
        for i in 0..n {
            // SAFETY: the first words are `n` nodes, zeroed or filled in.
            let node = unsafe { &mut *nodes.add(i) };
            node.release = Some(release::<Kept>);
            node.private_data = arena;
        }
        root.release = Some(release::<Kept>);
        root.private_data = arena;
    }
}

impl<Kept> Drop for Builder<Kept> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, complete, and nobody else's: `finish` does not come here.
        drop(unsafe { Box::from_raw(self.arena) });
    }
}

unsafe extern "C" fn release<Kept>(array: *mut abi::ArrowArray) {
    if array.is_null() {
        return;
    }
    // SAFETY: the consumer gives back a node of ours, perhaps moved; it uses it no more.
    unsafe {
        if (*array).release.is_none() {
            return;
        }
        let arena = (*array).private_data.cast::<Arena<Kept>>();
        let n = release_tree(array);
        if (*arena).alive.fetch_sub(n, Ordering::Release) == n {
            fence(Ordering::Acquire);
            // What is kept may run other people's releases; nothing may unwind out of here.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(arena)))) {
                std::mem::forget(payload);
            }
        }
    }
}

/// Marks a node and what is left below it as released; how many nodes that were.
///
/// # Safety
/// `node` is an unreleased node of an arena that is alive.
unsafe fn release_tree(node: *mut abi::ArrowArray) -> usize {
    let mut n = 1;
    // SAFETY: the node's lists lie in the arena; the arrays that it was made from nest at most `MAX_DEPTH` levels.
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
