//! Blocks: what was allocated, where its bytes really are, and who may touch it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;

use crate::codes::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome};
use crate::order::{Access, Conflict, History};
use crate::report::{Site, Violation};
use crate::run::Place;
use crate::space::{ALIGNMENT, Space};
use crate::state::{Handle, Sim};

pub(crate) type BlockId = u64;

/// What was allocated, or registered.
pub(crate) struct Block {
    pub begin: u64,
    /// As asked for.
    pub bytes: u64,
    pub kind: Kind,
    pub real: Real,
    pub history: History,
    pub allocated: Site,
    /// The allocation as work on a stream.
    pub allocation: Option<Access>,
    /// The free was asked for here, and has not run.
    pub freed: Option<Site>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Without a pool: cuMemAlloc's.
    Device { device: usize, pool: Option<Handle> },
    /// cuMemHostAlloc's.
    Pinned,
    /// The caller's own, under cuMemHostRegister.
    Registered,
}

/// Where a block's bytes are.
pub(crate) enum Real {
    Own { pointer: *mut u8, layout: Layout },
    Borrowed(*mut u8),
}

// SAFETY: memory is used under the simulator's lock, on whichever thread.
unsafe impl Send for Real {}

impl Real {
    fn allocate(bytes: u64, alignment: usize) -> Outcome<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| OUT_OF_MEMORY)?;
        let layout = Layout::from_size_align(bytes.max(1), alignment).map_err(|_| OUT_OF_MEMORY)?;
        // SAFETY: the layout is not empty.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // Fresh memory holds anything. The middle of a large block stays untouched, and costs no pages.
        let whole = bytes <= 2 * POISONED;
        for (from, n) in
            if whole { [(0, bytes), (0, 0)] } else { [(0, POISONED), (bytes - POISONED, POISONED)] }
        {
            // SAFETY: within what was allocated.
            unsafe { pointer.add(from).write_bytes(0xcd, n) };
        }
        Ok(Self::Own { pointer, layout })
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        match self {
            Self::Own { pointer, .. } | Self::Borrowed(pointer) => *pointer,
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if let Self::Own { pointer, layout } = self {
            // SAFETY: allocated so.
            unsafe { dealloc(*pointer, *layout) };
        }
    }
}

/// Bytes at either end of a fresh block that are filled with nonsense.
const POISONED: usize = 1 << 20;
/// As a real driver aligns host memory.
const PAGE: usize = 4096;
/// So many freed blocks are remembered, to name who used them.
const GRAVES: usize = 1 << 16;

/// A device block that was freed.
pub(crate) struct Grave {
    pub end: u64,
    pub allocated: Site,
    pub freed: Site,
}

impl Sim {
    /// A block on a device; its bytes have been accounted for.
    pub(crate) fn new_device_block(
        &mut self,
        device: usize,
        pool: Option<Handle>,
        bytes: u64,
        site: Site,
        allocation: Option<Access>,
    ) -> Outcome<u64> {
        if self.devices[device].space.is_none() {
            self.devices[device].space = Some(Space::reserve()?);
        }
        let real = Real::allocate(bytes, ALIGNMENT as usize)?;
        let space = self.devices[device].space.as_mut().ok_or(OUT_OF_MEMORY)?;
        let begin = space.take(bytes, &self.addresses)?;
        self.insert(Block {
            begin,
            bytes,
            kind: Kind::Device { device, pool },
            real,
            history: History::new(bytes, allocation),
            allocated: site,
            allocation,
            freed: None,
        });
        Ok(begin)
    }

    pub(crate) fn alloc_host(&mut self, bytes: u64) -> Outcome<*mut u8> {
        self.current()?;
        self.refuse_during_capture()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let real = Real::allocate(bytes, PAGE)?;
        let pointer = real.pointer();
        self.insert_host(Kind::Pinned, real, bytes);
        Ok(pointer)
    }

    pub(crate) fn register_host(&mut self, pointer: *mut u8, bytes: u64) -> Outcome {
        self.current()?;
        let begin = pointer as u64;
        let end = begin.checked_add(bytes).ok_or(INVALID_VALUE)?;
        if begin == 0 || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if self.addresses.range(..end).next_back().is_some_and(|(_, (theirs, _))| *theirs > begin) {
            return Err(crate::codes::ALREADY_REGISTERED);
        }
        self.insert_host(Kind::Registered, Real::Borrowed(pointer), bytes);
        Ok(())
    }

    fn insert_host(&mut self, kind: Kind, real: Real, bytes: u64) {
        let site = self.here();
        self.insert(Block {
            begin: real.pointer() as u64,
            bytes,
            kind,
            real,
            history: History::new(bytes, None),
            allocated: site,
            allocation: None,
            freed: None,
        });
    }

    fn insert(&mut self, block: Block) {
        let id = self.new_block();
        self.addresses.insert(block.begin, (block.begin + block.bytes, id));
        let dead: Vec<u64> =
            self.graves.range(block.begin..block.begin + block.bytes).map(|(begin, _)| *begin).collect();
        dead.iter().for_each(|begin| drop(self.graves.remove(begin)));
        self.blocks.insert(id, block);
    }

    /// Ends pinned memory, or its registration.
    pub(crate) fn free_host(&mut self, pointer: *mut u8, kind: Kind) -> Outcome {
        self.current()?;
        self.refuse_during_capture()?;
        let begin = pointer as u64;
        let id = self.addresses.get(&begin).map(|(_, id)| *id);
        let Some((id, block)) =
            id.and_then(|id| Some((id, self.blocks.get(&id)?))).filter(|b| b.1.kind == kind)
        else {
            if kind == Kind::Registered {
                return Err(crate::codes::NOT_REGISTERED);
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
        self.blocks.remove(&id);
        Ok(())
    }

    /// The live block that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<(BlockId, &Block)> {
        let (_, (end, id)) = self.addresses.range(..=address).next_back()?;
        (address < *end).then(|| self.blocks.get(id).map(|block| (*id, block)))?
    }

    /// The block that holds a range, and the offset; nothing for pageable memory.
    pub(crate) fn locate(&mut self, address: u64, bytes: u64) -> Outcome<Option<(BlockId, u64)>> {
        let Some((id, block)) = self.find(address) else { return self.outside(address, bytes) };
        let (offset, size, allocated, freed) =
            (address - block.begin, block.bytes, block.allocated, block.freed);
        if bytes > size - offset {
            let site = self.here();
            let text = format!(
                "{} takes {bytes} bytes at {address:#x}, which is {offset} bytes into a block of {size}",
                self.call
            );
            let sites = [("the use", site), ("the allocation", allocated)];
            self.violation(Violation::OutOfBounds, &text, &sites);
            return Err(INVALID_VALUE);
        }
        if let Some(freed) = freed {
            self.used_after_free(address, allocated, freed);
            return Err(INVALID_VALUE);
        }
        Ok(Some((id, offset)))
    }

    fn outside(&mut self, address: u64, bytes: u64) -> Outcome<Option<(BlockId, u64)>> {
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        if !self.is_device_address(address) {
            return Ok(None);
        }
        match self.grave(address) {
            Some((allocated, freed)) => self.used_after_free(address, allocated, freed),
            None => {
                let site = self.here();
                let text = format!("{} takes {bytes} bytes at {address:#x}, where no block is", self.call);
                self.violation(Violation::OutOfBounds, &text, &[("the use", site)]);
            }
        }
        Err(INVALID_VALUE)
    }

    pub(crate) fn is_device_address(&self, address: u64) -> bool {
        self.devices.iter().filter_map(|device| device.space.as_ref()).any(|space| space.contains(address))
    }

    fn grave(&self, address: u64) -> Option<(Site, Site)> {
        let (_, grave) = self.graves.range(..=address).next_back()?;
        (address < grave.end).then_some((grave.allocated, grave.freed))
    }

    fn used_after_free(&mut self, address: u64, allocated: Site, freed: Site) {
        let site = self.here();
        let text = format!("{} uses {address:#x}, which was freed", self.call);
        let sites = [("the use", site), ("the free", freed), ("the allocation", allocated)];
        self.violation(Violation::UseAfterFree, &text, &sites);
    }

    /// Enters an access of a block, and reports what it is not ordered after.
    pub(crate) fn touch(&mut self, id: BlockId, range: Range<u64>, access: Access, writes: bool) {
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
            "{} on stream {:#x} {} bytes {}..{} of the block {begin:#x} ({bytes} bytes), and is not ordered after what \
             stream {:#x} does with them: record an event there, and wait for it here",
            self.call,
            self.streams[access.stream].handle,
            if writes { "writes" } else { "reads" },
            range.start,
            range.end,
            self.streams[earlier.stream].handle,
        );
        let sites = [("this", access.site), ("the earlier", earlier.site), ("the allocation", allocated)];
        self.violation(what, &text, &sites);
    }

    /// A free as work on a stream.
    pub(crate) fn free_async(&mut self, address: u64, slot: usize) -> Outcome {
        if self.streams[slot].capture.is_some() {
            return Err(NOT_SUPPORTED);
        }
        let id = self.to_free(address)?;
        let site = self.here();
        self.next_access(slot, site);
        let clock = self.streams[slot].clock.clone();
        self.check_free(id, &clock, site);
        if let Some(block) = self.blocks.get_mut(&id) {
            block.freed = Some(site);
        }
        self.push(slot, crate::run::Op::Free(id));
        Ok(())
    }

    /// A free at once. What cuMemAlloc gave waits for the device, as a real driver does; a pool's memory does not.
    pub(crate) fn free_now(&mut self, address: u64) -> Outcome {
        self.current()?;
        if address == 0 {
            return Ok(());
        }
        self.refuse_during_capture()?;
        let id = self.to_free(address)?;
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
    fn to_free(&mut self, address: u64) -> Outcome<BlockId> {
        let found = self.find(address).filter(|(_, b)| b.begin == address);
        let found = found.filter(|(_, block)| matches!(block.kind, Kind::Device { .. }));
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

    fn check_free(&mut self, id: BlockId, clock: &crate::order::Clock, site: Site) {
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

    /// A device block goes: its bytes back to where they came from, its address into memory.
    pub(crate) fn bury(&mut self, id: BlockId) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.addresses.remove(&block.begin);
        if let Kind::Device { device, pool } = block.kind {
            self.give_back(device, pool, block.bytes);
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

    /// Where an access finds its bytes.
    pub(crate) fn place((id, offset): (BlockId, u64)) -> Place {
        Place::Block { id, offset: offset as usize }
    }
}

impl Conflict {
    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Write(access) | Self::Read(access) => *access,
        }
    }
}
