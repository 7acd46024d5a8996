//! One allocation for all nodes, lists and sizes of an exported batch, freed by the last node's release.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crossdock_plugin_api::abi;
use smallvec::{SmallVec, smallvec};

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

/// The words, and what the array must keep alive. On the heap from the start: nodes and lists point into the words, a few
/// of which lie within the struct itself.
struct Arena<Kept> {
    /// Nodes that are not released yet.
    alive: AtomicUsize,
    words: SmallVec<[u64; 32]>,
    kept: Option<Kept>,
}

/// Hands out the words in order: nodes, then lists, then sizes.
pub(super) struct Builder<Kept> {
    arena: Box<Arena<Kept>>,
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
        let words = smallvec![0u64; end_words + size.buffers + 1];
        let arena = Box::new(Arena { alive: AtomicUsize::new(0), words, kept: None });
        Self { arena, next_node: 0, end_nodes, next_word: end_nodes, end_words, next_size: end_words }
    }

    /// `n` nodes side by side, zeroed.
    pub(super) fn nodes(&mut self, n: usize) -> *mut abi::ArrowArray {
        let at = self.next_node;
        self.next_node += n * NODE_WORDS;
        debug_assert!(self.next_node <= self.end_nodes);
        self.arena.words.as_mut_ptr().wrapping_add(at).cast()
    }

    /// `n` words, zeroed.
    pub(super) fn list<T>(&mut self, n: usize) -> *mut T {
        let at = self.next_word;
        self.next_word += n;
        debug_assert!(self.next_word <= self.end_words);
        self.arena.words.as_mut_ptr().wrapping_add(at).cast()
    }

    /// Notes the size of the next buffer, in pre-order.
    pub(super) fn size(&mut self, bytes: i64) {
        if let Some(word) = self.arena.words.get_mut(self.next_size) {
            *word = bytes as u64;
        }
        self.next_size += 1;
    }

    /// The sizes and how many.
    pub(super) fn sizes(&self) -> (*const i64, usize) {
        (self.arena.words.as_ptr().wrapping_add(self.end_words).cast(), self.next_size - self.end_words)
    }

    /// 8 zero bytes.
    pub(super) fn zero(&self) -> *const c_void {
        let words = &self.arena.words;
        words.as_ptr().wrapping_add(words.len() - 1).cast()
    }

    /// The finished arena; `root` and the nodes that were handed out become its nodes.
    pub(super) fn finish(mut self, root: &mut abi::ArrowArray, kept: Kept) {
        let n = self.next_node / NODE_WORDS;
        self.arena.alive = AtomicUsize::new(n + 1);
        self.arena.kept = Some(kept);
        let nodes = self.arena.words.as_mut_ptr().cast::<abi::ArrowArray>();
        let arena = Box::into_raw(self.arena).cast::<c_void>();
        for i in 0..n {
            // SAFETY: the first words are `n` nodes, zeroed or filled in, where they were when they were handed out.
            let node = unsafe { &mut *nodes.add(i) };
            node.release = Some(release::<Kept>);
            node.private_data = arena;
        }
        root.release = Some(release::<Kept>);
        root.private_data = arena;
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
