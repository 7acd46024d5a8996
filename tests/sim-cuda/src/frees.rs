//! Ends of blocks: in stream order, at once, and of host memory.

use crate::codes::{INVALID_VALUE, NOT_REGISTERED, Outcome};
use crate::memory::{Block, BlockId, Grave, Kind};
use crate::order::Clock;
use crate::report::{Site, Violation};
use crate::run::Op;
use crate::state::Sim;

/// So many freed blocks are remembered, to name who used them.
const GRAVES: usize = 1 << 16;

impl Sim {
    /// Ends pinned memory, or its registration.
    pub(crate) fn free_host(&mut self, pointer: *mut u8, kind: Kind) -> Outcome {
        self.current()?;
        self.refuse_during_capture()?;
        if pointer.is_null() {
            return Ok(());
        }
        let begin = pointer as u64;
        let id = self.addresses.get(&begin).map(|(_, id)| *id);
        let Some((id, block)) =
            id.and_then(|id| Some((id, self.blocks.get(&id)?))).filter(|b| b.1.kind == kind)
        else {
            if kind == Kind::Registered {
                return Err(NOT_REGISTERED);
            }
            let site = self.here();
            let text = format!("{} of {pointer:p}, which is no pinned memory", self.call);
            self.violation(Violation::DoubleFree, &text, &[("the free", site)]);
            return Err(INVALID_VALUE);
        };
        if let Some(conflict) = block.history.conflict(&self.host) {
            let text = format!(
                "{} of {pointer:p} ({} bytes), while work that uses it is queued: synchronise with it first",
                self.call, block.bytes
            );
            let site = self.here();
            self.violation(
                Violation::HostFreedInUse,
                &text,
                &[("the free", site), ("the use", conflict.access().site)],
            );
        }
        self.addresses.remove(&begin);
        if let Some(block) = self.blocks.remove(&id) {
            self.check_guard(&block);
        }
        Ok(())
    }

    /// A free as work on a stream.
    pub(crate) fn free_async(&mut self, address: u64, slot: usize) -> Outcome {
        if self.is_captured(slot)? {
            return Ok(());
        }
        self.refuse_during_capture()?;
        let id = self.block_to_free(address)?;
        let site = self.here();
        let free = self.next_access(slot, site);
        let clock = self.streams[slot].clock.clone();
        self.check_free(id, &clock, site);
        if let Some(block) = self.blocks.get_mut(&id) {
            (block.freed, block.free) = (Some(site), Some(free));
        }
        self.push(slot, Op::Free(id));
        Ok(())
    }

    /// A free at once. What cuMemAlloc gave waits for the device, as a real driver does; a pool's memory does not.
    pub(crate) fn free_now(&mut self, address: u64) -> Outcome {
        self.current()?;
        if address == 0 {
            return Ok(());
        }
        self.refuse_during_capture()?;
        let id = self.block_to_free(address)?;
        let kind = self.blocks.get(&id).map(|block| block.kind);
        if let Some(Kind::Device { device, pool: None }) = kind {
            self.finish_device(device)?;
        }
        let (site, host) = (self.here(), self.host.clone());
        self.check_free(id, &host, site);
        if let Some(block) = self.blocks.get_mut(&id) {
            block.freed = Some(site);
        }
        self.bury(id);
        Ok(())
    }

    /// The live device block that begins here.
    fn block_to_free(&mut self, address: u64) -> Outcome<BlockId> {
        let found = self.find(address).filter(|(_, b)| b.begin == address);
        let found =
            found.filter(|(_, block)| matches!(block.kind, Kind::Device { .. }) && block.mapped.is_none());
        let (allocated, freed) = match found {
            Some((id, block)) => match block.freed {
                None => return Ok(id),
                Some(freed) => (block.allocated, freed),
            },
            None => match self.grave(address) {
                Some(grave) => grave,
                None => return Err(INVALID_VALUE),
            },
        };
        let site = self.here();
        let text = format!("{} of {address:#x}, which was freed before", self.call);
        let sites = [("this free", site), ("the earlier free", freed), ("the allocation", allocated)];
        self.violation(Violation::DoubleFree, &text, &sites);
        Err(INVALID_VALUE)
    }

    pub(crate) fn check_free(&mut self, id: BlockId, clock: &Clock, site: Site) {
        let Some(block) = self.blocks.get(&id) else { return };
        let Some(conflict) = block.history.conflict(clock) else { return };
        let text = format!(
            "{} of the block {:#x} ({} bytes) is not ordered after all uses of it: wait for their events first",
            self.call, block.begin, block.bytes
        );
        let sites =
            [("the free", site), ("the use", conflict.access().site), ("the allocation", block.allocated)];
        self.violation(Violation::EarlyFree, &text, &sites);
    }

    /// Copies and fills were checked; a kernel's twin may still have written beyond what its arguments say.
    fn check_guard(&mut self, block: &Block) {
        if block.real.is_intact() {
            return;
        }
        let text = format!(
            "somebody wrote behind the end of the block {:#x} ({} bytes): a kernel's host twin, or a host that overran \
             pinned memory",
            block.begin, block.bytes
        );
        self.violation(Violation::OutOfBounds, &text, &[("the allocation", block.allocated)]);
    }

    /// A device block goes: its bytes back to where they came from, its address into memory.
    pub(crate) fn bury(&mut self, id: BlockId) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.addresses.remove(&block.begin);
        self.check_guard(&block);
        if let Some(mapped) = block.mapped {
            self.unmapped(mapped.physical);
        } else if let Kind::Device { device, pool } = block.kind {
            self.give_back(device, pool, block.bytes, block.free);
        }
        let grave = Grave {
            end: block.begin + block.bytes,
            allocated: block.allocated,
            freed: block.freed.unwrap_or_default(),
        };
        self.graves.insert(block.begin, grave);
        self.grave_order.push_back(block.begin);
        if self.grave_order.len() > GRAVES
            && let Some(oldest) = self.grave_order.pop_front()
        {
            self.graves.remove(&oldest);
        }
    }
}
