//! Memory pools: what they hold back from the device, whom they give it to again, and when they give it up.
//!
//! What was freed in the order of a stream is there for that stream, and for all others once the host has waited for the free,
//! and neither asked about it nor waited for something later on another stream: the least that a real driver promises. One on
//! an H200 was seen to do no more while other threads used the device.

use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::order::{Access, Clock};
use crate::run::Op;
use crate::state::{Handle, Sim};
use crate::streams::Target;

/// One pool. `reserved` is what it took from the device, `used` what is allocated of that, both in bytes.
pub(crate) struct Pool {
    pub device: usize,
    pub threshold: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    pub used_high: u64,
    /// Freed in the order of a stream, which the host has not waited for: the frees, and bytes that are no longer used and
    /// not everybody's yet.
    behind: Vec<(Access, u64)>,
    /// Follow event dependencies, reuse opportunistically, insert dependencies: kept, and nothing else.
    pub reuse: [i32; 3],
    /// Devices that may reach its memory, beside its own.
    pub peers: Vec<usize>,
    /// Its last block ends it.
    pub destroyed: bool,
}

impl Pool {
    pub(crate) fn new(device: usize) -> Self {
        Self {
            device,
            threshold: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            behind: Vec::new(),
            reuse: [1; 3],
            peers: Vec::new(),
            destroyed: false,
        }
    }

    /// Gives back what is not used nor behind, but for `keep` bytes in all.
    fn trim(&mut self, keep: u64) {
        let held = self.used + self.behind_bytes(|_| true);
        self.reserved = self.reserved.min(held.max(keep));
    }

    fn behind_bytes(&self, which: impl Fn(&Access) -> bool) -> u64 {
        self.behind.iter().filter(|(free, _)| which(free)).map(|(_, bytes)| bytes).sum()
    }

    /// What is there for an allocation on `slot`.
    fn unused(&self, slot: usize) -> u64 {
        self.reserved - self.used - self.behind_bytes(|free| free.stream != slot)
    }

    /// Takes `bytes` for an allocation on `slot`, its own first: others may have less use for these.
    fn take(&mut self, mut bytes: u64, slot: usize) {
        self.used += bytes;
        for (free, left) in &mut self.behind {
            if free.stream == slot {
                let taken = bytes.min(*left);
                (*left, bytes) = (*left - taken, bytes - taken);
            }
        }
        self.behind.retain(|(_, left)| *left > 0);
    }

    /// Makes everybody's what comes before this.
    fn settle(&mut self, waited_for: &Clock) {
        self.behind.retain(|(free, _)| !free.is_before(waited_for));
    }
}

impl Sim {
    pub(crate) fn pool(&mut self, handle: Handle) -> Outcome<&mut Pool> {
        if self.pools.get(&handle).is_none_or(|pool| pool.destroyed) {
            return Err(self.stale("memory pool", handle));
        }
        self.pools.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    /// Bytes of a device that are taken.
    pub(crate) fn taken(&self, device: usize) -> u64 {
        let pools = self.pools.values().filter(|pool| pool.device == device);
        self.devices[device].direct + pools.map(|pool| pool.reserved).sum::<u64>() + self.made(device)
    }

    fn free_bytes(&self, device: usize) -> u64 {
        self.config.memory_bytes.saturating_sub(self.taken(device))
    }

    /// cuMemAlloc: at once, and in order after nothing.
    pub(crate) fn alloc_direct(&mut self, bytes: u64) -> Outcome<u64> {
        let device = self.current()?;
        self.refuse_during_capture()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if bytes > self.free_bytes(device) {
            return Err(OUT_OF_MEMORY);
        }
        let site = self.here();
        let address = self.new_device_block(device, None, bytes, site, None)?;
        self.devices[device].direct += bytes;
        Ok(address)
    }

    /// The current device's, and within reach of all.
    pub(crate) fn alloc_managed(&mut self, bytes: u64) -> Outcome<u64> {
        let address = self.alloc_direct(bytes)?;
        let id = self.find(address).map(|(id, _)| id);
        if let Some(block) = id.and_then(|id| self.blocks.get_mut(&id)) {
            block.managed = true;
        }
        Ok(address)
    }

    /// An allocation as work on a stream: whatever uses the block comes after it.
    pub(crate) fn alloc_async(&mut self, handle: Handle, bytes: u64, slot: usize) -> Outcome<u64> {
        let pool = self.pool(handle)?;
        let device = pool.device;
        if bytes == 0 {
            return Ok(0);
        }
        if self.is_captured(slot)? {
            return self.new_address(device, bytes);
        }
        self.refuse_during_capture()?;
        if self.lacks(handle, bytes, slot) > self.free_bytes(device) {
            // What is freed earlier on the same stream may be used again.
            let stream = &self.streams[slot];
            let frees = stream.queue.iter().rposition(|op| matches!(op, Op::Free(_)));
            if let Some(at) = frees {
                let number = stream.done + at as u64 + 1;
                self.run_to(&[Target { slot, number }]);
            }
            // What has been freed on others the driver waits for, rather than have no memory.
            self.pool(handle)?.behind.clear();
            if self.lacks(handle, bytes, slot) > self.free_bytes(device) {
                return Err(OUT_OF_MEMORY);
            }
        }
        let site = self.here();
        let access = self.next_access(slot, site);
        let address = self.new_device_block(device, Some(handle), bytes, site, Some(access))?;
        let grow = self.lacks(handle, bytes, slot);
        let pool = self.pool(handle)?;
        pool.reserved += grow;
        pool.take(bytes, slot);
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.used_high = pool.used_high.max(pool.used);
        Ok(address)
    }

    /// What a pool has to take from its device for so many bytes more on a stream.
    fn lacks(&self, pool: Handle, bytes: u64, slot: usize) -> u64 {
        self.pools.get(&pool).map_or(bytes, |pool| bytes.saturating_sub(pool.unused(slot)))
    }

    /// The bytes of a block that is gone, and the free if it was in the order of a stream.
    pub(crate) fn give_back(
        &mut self,
        device: usize,
        pool: Option<Handle>,
        bytes: u64,
        free: Option<Access>,
    ) {
        let Some(handle) = pool else {
            self.devices[device].direct = self.devices[device].direct.saturating_sub(bytes);
            return;
        };
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used = pool.used.saturating_sub(bytes);
            pool.behind
                .extend(free.filter(|free| !free.is_before(&self.waited_for)).map(|free| (free, bytes)));
            if pool.destroyed && pool.used == 0 {
                self.pools.remove(&handle);
            }
        }
    }

    /// After a synchronisation pools keep no more than their threshold.
    pub(crate) fn settle_pools(&mut self, device: usize) {
        for pool in self.pools.values_mut().filter(|pool| pool.device == device) {
            pool.settle(&self.waited_for);
            pool.trim(pool.threshold);
        }
    }

    pub(crate) fn create_pool(&mut self, device: usize) -> Outcome<Handle> {
        self.refuse_during_capture()?;
        let handle = self.new_handle();
        self.pools.insert(handle, Pool::new(device));
        Ok(handle)
    }

    pub(crate) fn trim_pool(&mut self, handle: Handle, keep: u64) -> Outcome {
        self.refuse_during_capture()?;
        self.pool(handle)?.trim(keep);
        Ok(())
    }

    pub(crate) fn destroy_pool(&mut self, handle: Handle) -> Outcome {
        if self.devices.iter().any(|device| device.default_pool == handle) {
            return Err(INVALID_VALUE);
        }
        let pool = self.pool(handle)?;
        pool.destroyed = true;
        if pool.used == 0 {
            self.pools.remove(&handle);
        }
        Ok(())
    }
}
