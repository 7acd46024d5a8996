//! A block of pinned memory that goes to a device while the rest of it is being filled.

use crossdock_memory::{Buffer, Result, Stream};

use crate::filling::Filling;
use crate::pool::Group;

/// Copies shorter than this leave the link idle between them.
const WORTH_A_COPY: usize = 4 << 20;

/// The block, and who fills it.
pub struct Sending {
    // Before the block: a group that is dropped waits for its jobs, which write to it.
    /// In order: what fills the next part, and where that part ends.
    parts: Vec<(Group, usize)>,
    filling: Filling,
}

impl Sending {
    /// `parts` make up all of the block.
    pub fn new(filling: Filling, parts: Vec<(Group, usize)>) -> Self {
        Self { parts, filling }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.filling.len()
    }

    /// The block on the device of `stream`, each part enqueued when it is there. Returns when the last one is enqueued.
    /// `check` may end the waiting.
    pub fn finish(self, stream: &Stream, check: impl Fn() -> Result<()>) -> Result<Buffer> {
        let Self { parts, filling } = self;
        let (source, bytes) = (filling.as_source(), filling.len());
        let mut target = stream.memory().alloc(stream, bytes)?;
        let mut sent = 0;
        for (group, end) in parts {
            group.wait(&check)?;
            if end - sent >= WORTH_A_COPY || end == bytes {
                stream.copy(&mut target, sent, &source, sent, end - sent)?;
                sent = end;
            }
        }
        target.freeze(stream)
    }
}
