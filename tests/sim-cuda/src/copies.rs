//! Queues copies and fills. Handles pageable memory like a real driver.

use crate::codes::Outcome;
use crate::memory::Spot;
use crate::run::{Op, Place};
use crate::state::Sim;
use crate::touch::Touch;

/// The lowest address of pageable memory. Linux maps nothing at lower addresses.
const MIN_PAGEABLE: u64 = 4096;

impl Sim {
    /// Queues a copy between any two kinds of memory. Pageable memory is read or written before the
    /// call returns. Pinned memory and device memory are accessed when the copy runs.
    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: u64, slot: usize) -> Outcome {
        if bytes == 0 || self.is_captured(slot)? {
            return Ok(());
        }
        let (target, source) = (self.locate(to, bytes)?, self.locate(from, bytes)?);
        if (target.is_none() && to < MIN_PAGEABLE) || (source.is_none() && from < MIN_PAGEABLE) {
            return Err(crate::codes::INVALID_VALUE);
        }
        // The device of the stream copies mapped memory itself, and needs access to it.
        let device = self.streams[slot].device;
        let cannot_access = |spot: &Spot| {
            let mapped = self.blocks.get(&spot.id).and_then(|block| block.mapped);
            mapped.is_some_and(|mapped| mapped.devices & (1 << device) == 0)
        };
        if target.iter().chain(&source).any(cannot_access) {
            return Err(crate::codes::INVALID_VALUE);
        }
        let length = bytes as usize;
        let touch = |spot: Option<Spot>, writes| spot.map(|spot| Touch { spot, bytes, writes });
        self.record_accesses(slot, touch(source, false).into_iter().chain(touch(target, true)));
        let from = match source {
            Some(spot) => Place::Block(spot),
            // SAFETY: the caller of the driver's copy function passes `bytes` readable bytes at
            // `from`.
            None => Place::Staged(unsafe { std::slice::from_raw_parts(from as *const u8, length) }.to_vec()),
        };
        let waits = target.is_none();
        let to = target.map_or(Place::Pageable(to as *mut u8), Place::Block);
        self.push(slot, Op::Copy { to, from, bytes: length });
        if waits { self.finish_stream(slot) } else { Ok(()) }
    }

    /// Copies like [`Self::copy`] on the legacy default stream, and waits for the copy.
    pub(crate) fn copy_now(&mut self, to: u64, from: u64, bytes: u64) -> Outcome {
        let slot = self.legacy_stream()?;
        self.copy(to, from, bytes, slot)?;
        self.finish_stream(slot)
    }

    pub(crate) fn fill(&mut self, to: u64, value: u8, bytes: u64, slot: usize) -> Outcome {
        if bytes == 0 || self.is_captured(slot)? {
            return Ok(());
        }
        // A real driver rejects pageable memory here.
        let target = self.locate(to, bytes)?.ok_or(crate::codes::INVALID_VALUE)?;
        self.record_accesses(slot, [Touch { spot: target, bytes, writes: true }]);
        self.push(slot, Op::Fill { to: Place::Block(target), value, bytes: bytes as usize });
        Ok(())
    }
}
