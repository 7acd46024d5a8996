//! Records the accesses of operations, and reports accesses that are not ordered after conflicting
//! earlier accesses.

use std::ops::Range;

use crate::memory::{BlockId, Spot};
use crate::order::{Access, Conflict};
use crate::report::Violation;
use crate::state::Sim;

/// A range of bytes that one operation reads or writes.
pub(crate) struct Touch {
    pub spot: Spot,
    pub bytes: u64,
    pub writes: bool,
}

impl Sim {
    /// Records all accesses of the next operation of a stream.
    pub(crate) fn record_accesses(&mut self, slot: usize, touches: impl IntoIterator<Item = Touch>) {
        let site = self.here();
        let access = self.next_access(slot, site);
        for Touch { spot, bytes, writes } in touches {
            self.record_access(spot.id, spot.offset..spot.offset + bytes, access, writes);
        }
    }

    fn record_access(&mut self, id: BlockId, range: Range<u64>, access: Access, writes: bool) {
        let clock = &self.streams[access.stream].clock;
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let conflict = if writes {
            block.history.write(range.clone(), access, clock)
        } else {
            block.history.read(range.clone(), access, clock)
        };
        let Some(conflict) = conflict else { return };
        let earlier = conflict.access();
        let unallocated = block.allocation == Some(earlier);
        let what = match (&conflict, writes) {
            (Conflict::Write(_), _) if unallocated => Violation::UseBeforeAllocation,
            (Conflict::Write(_), false) => Violation::ReadAfterWrite,
            (Conflict::Write(_), true) => Violation::WriteAfterWrite,
            (Conflict::Read(_), _) => Violation::WriteAfterRead,
        };
        let (begin, bytes, allocated) = (block.begin, block.bytes, block.allocated);
        let text = format!(
            "{} on stream {:#x} {} bytes {}..{} of the block {begin:#x} ({bytes} bytes), but is not ordered after an \
             earlier access to these bytes on stream {:#x}: record an event after the earlier access, and let this stream \
             wait for the event",
            self.call,
            self.streams[access.stream].handle,
            if writes { "writes" } else { "reads" },
            range.start,
            range.end,
            self.streams[earlier.stream].handle,
        );
        let sites = [
            ("this access", access.site),
            ("the earlier access", earlier.site),
            ("the allocation", allocated),
        ];
        self.violation(what, &text, &sites);
    }
}
