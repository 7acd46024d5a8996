//! Copies a block of pinned memory to a device in parts. A part is copied while the next parts are
//! being filled.

use crossdock_memory::{Buffer, Result, Stream};
use crossdock_plugin_api::TaskGroup;

use crate::partitioned_block::PartitionedBlock;

/// Minimum size of a copy in bytes. With smaller copies, the link to the device is idle between
/// copies.
const MIN_COPY_BYTES: usize = 4 << 20;

/// A block of pinned memory, and the jobs that fill it.
pub struct Upload {
    // `parts` must be declared before `block`, so that it is dropped first. Dropping a group waits
    // for its jobs, which write to the block.
    /// For each part, in order, the jobs that fill it and its end in the block.
    parts: Vec<(TaskGroup, usize)>,
    block: PartitionedBlock,
}

impl Upload {
    /// Creates an upload. `parts` must cover the whole block.
    pub fn new(block: PartitionedBlock, parts: Vec<(TaskGroup, usize)>) -> Self {
        Self { parts, block }
    }

    /// Size of the block in bytes.
    pub fn len(&self) -> usize {
        self.block.len()
    }

    /// Whether all parts are filled.
    pub fn is_filled(&self) -> bool {
        self.parts.iter().all(|(group, _)| group.is_done())
    }

    /// Enqueues the copy of each part to the device of `stream` as soon as the part is filled.
    /// Returns the block on the device when the last copy is enqueued. If `check` returns an error,
    /// the wait ends.
    pub fn finish(self, stream: &Stream, check: impl Fn() -> Result<()>) -> Result<Buffer> {
        let Self { parts, block } = self;
        let (source, bytes) = (block.as_source(), block.len());
        let mut target = stream.memory().alloc(stream, bytes)?;
        let mut sent = 0;
        for (group, end) in parts {
            group.wait(&check)?;
            if end - sent >= MIN_COPY_BYTES || end == bytes {
                stream.copy(&mut target, sent, &source, sent, end - sent)?;
                sent = end;
            }
        }
        target.freeze(stream)
    }
}
