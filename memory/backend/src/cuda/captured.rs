//! Blocks that come back while the stream that they were allocated on is under graph capture.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Gpu;
use super::driver::{DevicePtr, RawStream};
use super::event::CudaEvent;

/// What such a stream is given becomes a part of the graph, frees too, and what it had before cannot be waited for without
/// breaking the capture. So these blocks are kept until somebody sees that it has ended.
#[derive(Default)]
pub(crate) struct Captured {
    blocks: Mutex<Vec<Returned>>,
    /// As many as there are: read without the lock where that says that there is nothing to do.
    count: AtomicUsize,
}

/// A block of a pool that its owner has given back.
pub(crate) struct Returned {
    pub base: DevicePtr,
    pub bytes: usize,
    /// The stream in whose order it was allocated.
    pub home: RawStream,
    /// After its last uses.
    pub uses: Vec<Arc<CudaEvent>>,
    /// Strangers have seen it.
    pub lent: bool,
}

// SAFETY: the driver takes streams on every thread.
unsafe impl Send for Returned {}

impl Captured {
    pub(crate) fn add(&self, block: Returned) {
        let mut blocks = self.lock();
        blocks.push(block);
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// Takes those whose stream is not under capture any more. The context is current.
    pub(crate) fn take_ended(&self, gpu: &Gpu) -> Vec<Returned> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut blocks = self.lock();
        let (kept, ended) = blocks.drain(..).partition(|block| gpu.is_captured(block.home));
        *blocks = kept;
        self.count.store(blocks.len(), Ordering::Relaxed);
        ended
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().iter().map(|block| block.bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Returned>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
