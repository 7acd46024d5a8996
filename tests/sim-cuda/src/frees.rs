//! Frees blocks: device memory in stream order or synchronously, and host memory.

use crate::codes::{INVALID_VALUE, NOT_REGISTERED, Outcome};
use crate::memory::{Block, BlockId, FreedBlock, Kind};
use crate::order::Clock;
use crate::report::{Site, Violation};
use crate::run::Op;
use crate::state::Sim;

/// The maximum number of recorded freed blocks. The simulator needs the records to report a use
/// after a free.
const MAX_FREED: usize = 1 << 16;

impl Sim {
    /// Frees pinned memory, or unregisters host memory.
    pub(crate) fn free_host(&mut self, pointer: *mut u8, kind: Kind) -> Outcome {
        self.current()?;
        self.reject_during_capture()?;
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
            let text = format!("{} of {pointer:p}, which is not pinned memory", self.call);
            self.violation(Violation::DoubleFree, &text, &[("the free", site)]);
            return Err(INVALID_VALUE);
        };
        if let Some(conflict) = block.history.conflict(&self.host) {
            let text = format!(
                "{} of {pointer:p} ({} bytes), while queued work uses it: synchronise with that work first",
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

    /// Queues a free on a stream.
    pub(crate) fn free_async(&mut self, address: u64, slot: usize) -> Outcome {
        if self.is_captured(slot)? {
            return Ok(());
        }
        self.reject_during_capture()?;
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

    /// Frees a block synchronously. As in a real driver, the free of memory from cuMemAlloc first
    /// waits for the device, and the free of memory from a pool does not wait.
    pub(crate) fn free_now(&mut self, address: u64) -> Outcome {
        self.current()?;
        if address == 0 {
            return Ok(());
        }
        self.reject_during_capture()?;
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
        self.destroy_block(id);
        Ok(())
    }

    /// Returns the live device block that begins at `address`. Reports a double free if the block
    /// is already freed.
    fn block_to_free(&mut self, address: u64) -> Outcome<BlockId> {
        let block = self.find(address).filter(|(_, b)| b.begin == address);
        let block =
            block.filter(|(_, block)| matches!(block.kind, Kind::Device { .. }) && block.mapped.is_none());
        let (allocated, freed) = match block {
            Some((id, block)) => match block.freed {
                None => return Ok(id),
                Some(freed) => (block.allocated, freed),
            },
            None => match self.freed_block(address) {
                Some(sites) => sites,
                None => return Err(INVALID_VALUE),
            },
        };
        let site = self.here();
        let text = format!("{} of {address:#x}, which is already freed", self.call);
        let sites = [("this free", site), ("the earlier free", freed), ("the allocation", allocated)];
        self.violation(Violation::DoubleFree, &text, &sites);
        Err(INVALID_VALUE)
    }

    pub(crate) fn check_free(&mut self, id: BlockId, clock: &Clock, site: Site) {
        let Some(block) = self.blocks.get(&id) else { return };
        let Some(conflict) = block.history.conflict(clock) else { return };
        let text = format!(
            "{} of the block {:#x} ({} bytes) is not ordered after all uses of the block: wait for events \
            that are recorded after these uses",
            self.call, block.begin, block.bytes
        );
        let sites =
            [("the free", site), ("the use", conflict.access().site), ("the allocation", block.allocated)];
        self.violation(Violation::EarlyFree, &text, &sites);
    }

    /// Checks the guard bytes of a freed block, because the CPU implementation of a kernel may
    /// write outside the ranges of its arguments. Copies and fills are already checked when they
    /// are queued.
    fn check_guard(&mut self, block: &Block) {
        if block.real.is_intact() {
            return;
        }
        let text = format!(
            "bytes past the end of the block {:#x} ({} bytes) were overwritten, by the CPU implementation of a kernel or, in \
            pinned memory, by the host",
            block.begin, block.bytes
        );
        self.violation(Violation::OutOfBounds, &text, &[("the allocation", block.allocated)]);
    }

    /// Destroys a device block: returns its bytes to the pool or device, and records it as a freed
    /// block.
    pub(crate) fn destroy_block(&mut self, id: BlockId) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.addresses.remove(&block.begin);
        self.check_guard(&block);
        if let Some(mapped) = block.mapped {
            self.remove_mapping(mapped.physical);
        } else if let Kind::Device { device, pool } = block.kind {
            self.return_bytes(device, pool, block.bytes, block.free);
        }
        let freed = FreedBlock {
            end: block.begin + block.bytes,
            allocated: block.allocated,
            freed: block.freed.unwrap_or_default(),
        };
        self.freed_blocks.insert(block.begin, freed);
        self.freed_order.push_back(block.begin);
        if self.freed_order.len() > MAX_FREED
            && let Some(oldest) = self.freed_order.pop_front()
        {
            self.freed_blocks.remove(&oldest);
        }
    }
}
