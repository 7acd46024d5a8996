//! Keeps blocks that were freed while their stream was under graph capture.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Gpu;
use super::driver::{DevicePtr, RawStream};
use super::event::CudaEvent;

/// Keeps freed blocks until the graph capture of their stream has ended. During the capture, a free
/// on the stream would be recorded into the graph, and waiting for the stream's earlier work would
/// break the capture.
#[derive(Default)]
pub(crate) struct Captured {
    blocks: Mutex<Vec<FreedBlock>>,
    /// Length of `blocks`, which can be read without locking them.
    count: AtomicUsize,
}

/// A block of a pool that has been freed.
pub(crate) struct FreedBlock {
    pub base: DevicePtr,
    pub bytes: usize,
    /// The stream on which the block was allocated.
    pub home: RawStream,
    /// Events that were recorded after the uses of the block.
    pub uses: Vec<Arc<CudaEvent>>,
    /// Whether the block was exported to another library.
    pub exported: bool,
}

// SAFETY: the driver accepts streams on any thread.
unsafe impl Send for FreedBlock {}

impl Captured {
    pub(crate) fn add(&self, block: FreedBlock) {
        let mut blocks = self.lock();
        blocks.push(block);
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// Removes and returns the blocks whose stream is no longer under capture. The context must be
    /// current.
    pub(crate) fn take_ended(&self, gpu: &Gpu) -> Vec<FreedBlock> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut blocks = self.lock();
        let (capturing, ended) = blocks.drain(..).partition(|block| gpu.is_known_to_capture(block.home));
        *blocks = capturing;
        self.count.store(blocks.len(), Ordering::Relaxed);
        ended
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().iter().map(|block| block.bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FreedBlock>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
