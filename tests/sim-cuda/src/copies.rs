//! Copies and fills, and what a real driver does about pageable memory.

use crate::codes::Outcome;
use crate::memory::Spot;
use crate::run::{Op, Place};
use crate::state::Sim;
use crate::touch::Touch;

/// The least address that a pageable range may have: below it is nobody's memory.
const LOWEST: u64 = 4096;

impl Sim {
    /// Between any two places. From pageable memory it reads before it returns, into pageable memory it is done when it
    /// returns; pinned and device memory are read and written when the copy runs.
    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: u64, slot: usize) -> Outcome {
        if bytes == 0 || self.is_captured(slot)? {
            return Ok(());
        }
        let (target, source) = (self.locate(to, bytes)?, self.locate(from, bytes)?);
        if (target.is_none() && to < LOWEST) || (source.is_none() && from < LOWEST) {
            return Err(crate::codes::INVALID_VALUE);
        }
        let length = bytes as usize;
        let touch = |spot: Option<Spot>, writes| spot.map(|spot| Touch { spot, bytes, writes });
        self.enter(slot, touch(source, false).into_iter().chain(touch(target, true)));
        let from = match source {
            Some(spot) => Place::Block(spot),
            // SAFETY: the caller gives a source of that length, as to memcpy.
            None => Place::Staged(unsafe { std::slice::from_raw_parts(from as *const u8, length) }.to_vec()),
        };
        let waits = target.is_none();
        let to = target.map_or(Place::Pageable(to as *mut u8), Place::Block);
        self.push(slot, Op::Copy { to, from, bytes: length });
        if waits { self.finish_stream(slot) } else { Ok(()) }
    }

    /// The same, done when it returns.
    pub(crate) fn copy_now(&mut self, to: u64, from: u64, bytes: u64) -> Outcome {
        let slot = self.legacy_stream()?;
        self.copy(to, from, bytes, slot)?;
        self.finish_stream(slot)
    }

    pub(crate) fn fill(&mut self, to: u64, value: u8, bytes: u64, slot: usize) -> Outcome {
        if bytes == 0 || self.is_captured(slot)? {
            return Ok(());
        }
        // A real driver takes no pageable memory here.
        let target = self.locate(to, bytes)?.ok_or(crate::codes::INVALID_VALUE)?;
        self.enter(slot, [Touch { spot: target, bytes, writes: true }]);
        self.push(slot, Op::Fill { to: Place::Block(target), value, bytes: bytes as usize });
        Ok(())
    }
}
