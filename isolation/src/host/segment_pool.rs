//! Shared segments of one process, which are used for one message after the other.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossdock_memory::{Buffer, Ready};
use crossdock_plugin_api::{Code, Device, Error, Result};

use crate::locks::lock;
use crate::wire::segments::{SegmentSender, SentSegment};

/// The maximum number of segments that are kept for later messages.
const MAX_FREE_SEGMENTS: usize = 4;

/// Lengths of segments are multiples of this number of bytes, as those of CUDA drivers are.
const GRANULARITY: usize = 2 << 20;

/// The memory of segments.
pub trait SegmentMemory: Send + Sync {
    /// An allocation. Dropping it frees it.
    type Block: Send;

    /// The device of the memory.
    fn device(&self) -> Device;

    /// Whether only this process can write the memory.
    fn is_read_only(&self) -> bool;

    /// Allocates `bytes` bytes. Returns the block, its file, and the length of the file in bytes.
    fn allocate(&self, bytes: usize) -> Result<(Self::Block, OwnedFd, u64)>;

    /// Whether this process does not read the block any more.
    fn is_unused(&self, block: &Self::Block) -> bool;

    /// Copies each buffer to its offset in the first `bytes` bytes of a block that no message uses.
    /// Returns when the copies are complete.
    fn fill(&self, block: &Self::Block, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Ready>;
}

/// The segments of one process.
pub struct SegmentPool<M: SegmentMemory> {
    pub(super) memory: M,
    /// `None` once the process has ended.
    state: Mutex<Option<State<M::Block>>>,
}

pub(super) struct State<B> {
    /// Segments that the process requested and has not used yet, by the id of the request.
    pub requested: HashMap<u64, Segment<B>>,
    /// Segments of messages to the process, which has not returned them yet, by number.
    pub sent: HashMap<u64, Segment<B>>,
    /// Segments for later messages. The one that was used last is the last.
    free: Vec<Segment<B>>,
    /// The number of [`SegmentReuse`]s. Without any, no segment is free.
    n_reuses: usize,
}

pub(super) struct Segment<B> {
    /// Unique within this process.
    pub number: u64,
    pub block: B,
    /// The length in bytes.
    pub bytes: usize,
    pub file: OwnedFd,
    pub file_bytes: u64,
    /// When the content of the last message has been copied out.
    pub copied: Ready,
}

/// Keeps segments for later messages until this value is dropped.
pub struct SegmentReuse<M: SegmentMemory>(Arc<SegmentPool<M>>);

impl<M: SegmentMemory> Drop for SegmentReuse<M> {
    fn drop(&mut self) {
        let mut free = Vec::new();
        if let Some(state) = lock(&self.0.state).as_mut() {
            state.n_reuses -= 1;
            if state.n_reuses == 0 {
                free = std::mem::take(&mut state.free);
            }
        }
        // The segments are dropped after the lock is released.
        drop(free);
    }
}

impl<B> State<B> {
    /// Takes the smallest free segment that has `bytes` bytes and whose content is not needed.
    fn take_free(&mut self, bytes: usize, is_unused: impl Fn(&B) -> bool) -> Option<Segment<B>> {
        let is_usable = |segment: &Segment<B>| {
            segment.bytes >= bytes && segment.copied.is_done().unwrap_or(false) && is_unused(&segment.block)
        };
        let usable = self.free.iter().enumerate().filter(|(_, segment)| is_usable(segment));
        let (i, _) = usable.min_by_key(|(_, segment)| segment.bytes)?;
        Some(self.free.remove(i))
    }

    /// The numbers of all segments that later messages may use.
    pub fn numbers(&self) -> Vec<u64> {
        let all = self.requested.values().chain(self.sent.values()).chain(&self.free);
        all.map(|segment| segment.number).collect()
    }
}

impl<M: SegmentMemory> SegmentPool<M> {
    /// Creates an empty pool.
    pub fn over(memory: M) -> Self {
        let (requested, sent, free) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { memory, state: Mutex::new(Some(State { requested, sent, free, n_reuses: 0 })) }
    }

    /// Keeps segments for later messages, as long as a stream or a writer is open. Otherwise they
    /// would use memory for an unknown time.
    pub fn reuse(self: &Arc<Self>) -> SegmentReuse<M> {
        if let Some(state) = lock(&self.state).as_mut() {
            state.n_reuses += 1;
        }
        SegmentReuse(self.clone())
    }

    /// Runs `f` with the state.
    pub(super) fn with_state<T>(&self, f: impl FnOnce(&mut State<M::Block>) -> Result<T>) -> Result<T> {
        let has_ended = || Error::invalid_argument("the process has ended and cannot receive a segment");
        f(lock(&self.state).as_mut().ok_or_else(has_ended)?)
    }

    /// Returns a segment of at least `bytes` bytes that no message uses.
    pub(super) fn take(&self, bytes: usize) -> Result<Segment<M::Block>> {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        let is_unused = |block: &_| self.memory.is_unused(block);
        if let Some(segment) = self.with_state(|state| Ok(state.take_free(bytes, is_unused)))? {
            return Ok(segment);
        }
        // A segment that is slightly too large also fits for the next message.
        let bytes = bytes.max(1).checked_next_multiple_of(GRANULARITY).unwrap_or(bytes);
        let (block, file, file_bytes) = self.with_memory(|| self.memory.allocate(bytes))?;
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Segment { number, block, bytes, file, file_bytes, copied: Ready::Now })
    }

    /// Runs `work`. If memory is exhausted, releases the free segments and runs it again.
    pub(super) fn with_memory<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.code() == Code::OUT_OF_MEMORY && self.release_free() => work(),
            result => result,
        }
    }

    /// Releases the segments that are kept for later messages. Returns whether there were any.
    pub(super) fn release_free(&self) -> bool {
        let free = lock(&self.state).as_mut().map(|state| std::mem::take(&mut state.free));
        // The segments are dropped after the lock is released.
        free.is_some_and(|free| !free.is_empty())
    }

    /// Keeps a segment for a later message, or releases it.
    pub(super) fn keep(&self, segment: Segment<M::Block>) {
        let mut released = Vec::new();
        match lock(&self.state).as_mut() {
            Some(state) if state.n_reuses > 0 => {
                state.free.push(segment);
                let surplus = state.free.len().saturating_sub(MAX_FREE_SEGMENTS);
                released.extend(state.free.drain(..surplus));
            }
            _ => released.push(segment),
        }
        // The segments are dropped after the lock is released.
        drop(released);
    }

    /// Keeps or releases the segment of a message to the process, which does not use it any more.
    pub fn return_sent(&self, number: u64) {
        let segment = lock(&self.state).as_mut().and_then(|state| state.sent.remove(&number));
        segment.into_iter().for_each(|segment| self.keep(segment));
    }

    /// Releases all segments after the process has ended.
    pub fn release_all(&self) {
        let state = lock(&self.state).take();
        drop(state);
    }
}

impl<M: SegmentMemory> SegmentSender for SegmentPool<M> {
    fn device(&self) -> Device {
        self.memory.device()
    }

    fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }

    fn fill_segment(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<SentSegment> {
        let segment = self.take(bytes)?;
        let filled = self.memory.fill(&segment.block, buffers, bytes)?;
        let (number, bytes, file) = (segment.number, segment.file_bytes, segment.file.try_clone()?);
        self.with_state(|state| {
            state.sent.insert(number, segment);
            Ok(SentSegment { number, bytes, file: Some(file), filled })
        })
    }
}
