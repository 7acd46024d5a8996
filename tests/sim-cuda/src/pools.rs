//! Memory pools, which reserve bytes of a device, reuse them, and return them to the device.
//!
//! Memory that is freed in the order of a stream is available to this stream at once. It is
//! available to other streams only after the host has synchronized with the free itself. Neither a
//! query of the free nor a synchronization with later work on another stream is enough. A real
//! driver guarantees no earlier reuse. On an H200, no earlier reuse was observed while other
//! threads used the device.

use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::memory::{Block, Kind};
use crate::order::{Access, Clock};
use crate::report::Violation;
use crate::run::Op;
use crate::state::{Handle, Sim};
use crate::streams::Target;

/// One pool. `reserved` is the number of bytes that the pool has taken from the device, and `used`
/// is the number of bytes in its live blocks.
pub(crate) struct Pool {
    pub device: usize,
    pub threshold: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    pub used_high: u64,
    /// The frees in stream order with which the host has not synchronized, each with the number of
    /// freed bytes. These bytes are unused, but only the stream of the free can allocate them.
    stream_freed: Vec<(Access, u64)>,
    /// The pool's attributes 1 to 3: follow event dependencies, allow opportunistic reuse, and
    /// insert dependencies. The simulator stores them, but they have no effect.
    pub reuse: [i32; 3],
    /// Other devices that can access the pool's memory.
    pub peers: Vec<usize>,
    /// Whether cuMemPoolDestroy was called. If so, the free of the last block removes the pool.
    pub is_destroyed: bool,
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
            stream_freed: Vec::new(),
            reuse: [1; 3],
            peers: Vec::new(),
            is_destroyed: false,
        }
    }

    /// Returns unused bytes to the device, but keeps at least `keep` reserved bytes.
    fn trim(&mut self, keep: u64) {
        let in_use = self.used + self.stream_bytes(|_| true);
        self.reserved = self.reserved.min(in_use.max(keep));
    }

    fn stream_bytes(&self, which: impl Fn(&Access) -> bool) -> u64 {
        self.stream_freed.iter().filter(|(free, _)| which(free)).map(|(_, bytes)| bytes).sum()
    }

    /// The reserved bytes that are available to an allocation on the stream at `slot`.
    fn unused(&self, slot: usize) -> u64 {
        self.reserved - self.used - self.stream_bytes(|free| free.stream != slot)
    }

    /// Takes `bytes` for an allocation on the stream at `slot`. Bytes that only this stream can use
    /// are taken first.
    fn take(&mut self, mut bytes: u64, slot: usize) {
        self.used += bytes;
        for (free, available) in &mut self.stream_freed {
            if free.stream == slot {
                let taken = bytes.min(*available);
                (*available, bytes) = (*available - taken, bytes - taken);
            }
        }
        self.stream_freed.retain(|(_, available)| *available > 0);
    }

    /// Makes freed bytes available to all streams if `waited_for` includes the free.
    fn settle(&mut self, waited_for: &Clock) {
        self.stream_freed.retain(|(free, _)| !free.is_before(waited_for));
    }
}

impl Sim {
    pub(crate) fn pool(&mut self, handle: Handle) -> Outcome<&mut Pool> {
        if self.pools.get(&handle).is_none_or(|pool| pool.is_destroyed) {
            return Err(self.stale("memory pool", handle));
        }
        self.pools.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    /// The bytes on a device that are allocated outside of pools or reserved by pools.
    pub(crate) fn used_bytes(&self, device: usize) -> u64 {
        let pools = self.pools.values().filter(|pool| pool.device == device);
        self.devices[device].direct
            + pools.map(|pool| pool.reserved).sum::<u64>()
            + self.physical_bytes(device)
    }

    fn free_bytes(&self, device: usize) -> u64 {
        self.config.memory_bytes.saturating_sub(self.used_bytes(device))
    }

    /// Allocates memory synchronously, as cuMemAlloc does.
    pub(crate) fn alloc_direct(&mut self, bytes: u64) -> Outcome<u64> {
        let device = self.current()?;
        self.reject_during_capture()?;
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

    /// Allocates managed memory, which all devices can access, on the current device.
    pub(crate) fn alloc_managed(&mut self, bytes: u64) -> Outcome<u64> {
        let address = self.alloc_direct(bytes)?;
        let id = self.find(address).map(|(id, _)| id);
        if let Some(block) = id.and_then(|id| self.blocks.get_mut(&id)) {
            block.managed = true;
        }
        Ok(address)
    }

    /// Queues an allocation on a stream. Uses of the block must be ordered after the allocation.
    pub(crate) fn alloc_async(&mut self, handle: Handle, bytes: u64, slot: usize) -> Outcome<u64> {
        let pool = self.pool(handle)?;
        let device = pool.device;
        if bytes == 0 {
            return Ok(0);
        }
        if self.is_captured(slot)? {
            return self.new_address(device, bytes);
        }
        self.reject_during_capture()?;
        if self.missing_bytes(handle, bytes, slot) > self.free_bytes(device) {
            // The allocation can reuse blocks whose frees are queued on the same stream, so these
            // frees run first.
            let stream = &self.streams[slot];
            let frees = stream.queue.iter().rposition(|op| matches!(op, Op::Free(_)));
            if let Some(at) = frees {
                let number = stream.done + at as u64 + 1;
                self.run_to(&[Target { slot, number }]);
            }
            // Before the allocation fails, makes the bytes of frees on other streams available,
            // like a real driver.
            self.pool(handle)?.stream_freed.clear();
            if self.missing_bytes(handle, bytes, slot) > self.free_bytes(device) {
                return Err(OUT_OF_MEMORY);
            }
        }
        let site = self.here();
        let access = self.next_access(slot, site);
        let address = self.new_device_block(device, Some(handle), bytes, site, Some(access))?;
        let grow = self.missing_bytes(handle, bytes, slot);
        let pool = self.pool(handle)?;
        pool.reserved += grow;
        pool.take(bytes, slot);
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.used_high = pool.used_high.max(pool.used);
        Ok(address)
    }

    /// The number of bytes that a pool must additionally reserve to allocate `bytes` on a stream.
    fn missing_bytes(&self, pool: Handle, bytes: u64, slot: usize) -> u64 {
        self.pools.get(&pool).map_or(bytes, |pool| bytes.saturating_sub(pool.unused(slot)))
    }

    /// Returns the bytes of a freed block to its pool or device. `free` is the access by the free,
    /// if the free was queued on a stream.
    pub(crate) fn return_bytes(
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
            pool.stream_freed
                .extend(free.filter(|free| !free.is_before(&self.waited_for)).map(|free| (free, bytes)));
            if pool.is_destroyed && pool.used == 0 {
                self.pools.remove(&handle);
            }
        }
    }

    /// Trims the pools of a device to their thresholds after a synchronization.
    pub(crate) fn settle_pools(&mut self, device: usize) {
        for pool in self.pools.values_mut().filter(|pool| pool.device == device) {
            pool.settle(&self.waited_for);
            pool.trim(pool.threshold);
        }
    }

    pub(crate) fn create_pool(&mut self, device: usize) -> Outcome<Handle> {
        self.reject_during_capture()?;
        let handle = self.new_handle();
        self.pools.insert(handle, Pool::new(device));
        Ok(handle)
    }

    pub(crate) fn trim_pool(&mut self, handle: Handle, keep: u64) -> Outcome {
        self.reject_during_capture()?;
        self.pool(handle)?.trim(keep);
        Ok(())
    }

    pub(crate) fn destroy_pool(&mut self, handle: Handle) -> Outcome {
        if self.devices.iter().any(|device| device.default_pool == handle) {
            return Err(INVALID_VALUE);
        }
        let pool = self.pool(handle)?;
        pool.is_destroyed = true;
        let (is_unused, free) = (pool.used == 0, pool.stream_freed.first().map(|(free, _)| free.site));
        let is_from_pool =
            |block: &Block| matches!(block.kind, Kind::Device { pool: Some(from), .. } if from == handle);
        let mut queued = self.blocks.values().filter(|block| is_from_pool(block)).filter_map(|b| b.freed);
        let free = free.or_else(|| queued.next());
        if is_unused {
            self.pools.remove(&handle);
        }
        if let Some(free) = free {
            // The documentation permits this, but driver 580 can then deadlock or crash.
            let (text, site) = (
                format!("{} got a pool with a free that the host has not waited for", self.call),
                self.here(),
            );
            self.violation(Violation::PoolDestroyedInUse, &text, &[("the call", site), ("the free", free)]);
        }
        Ok(())
    }
}
