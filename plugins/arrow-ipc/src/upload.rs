//! Copies a block of pinned memory to a device, part by part while the rest is being filled.

use crossdock_memory::{Buffer, Result, Stream};

use crate::partitioned_block::PartitionedBlock;
use crate::pool::Group;

/// Minimum size of a copy: shorter copies leave the link idle in between.
const MIN_COPY_BYTES: usize = 4 << 20;

/// The block and the jobs that fill it.
pub struct Upload {
    // Declared before `block`: dropping a group waits for its jobs, which write to the block.
    /// For each part in order: the jobs that fill it, and its end.
    parts: Vec<(Group, usize)>,
    block: PartitionedBlock,
}

impl Upload {
    /// `parts` cover the block.
    pub fn new(block: PartitionedBlock, parts: Vec<(Group, usize)>) -> Self {
        Self { parts, block }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.block.len()
    }

    /// Enqueues the copy of each part to the device of `stream` once the part is filled. Returns
    /// the device's block when the last copy is enqueued. An error of `check` ends the wait.
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
