//! Blocks: address ranges that are allocated or registered, and the host memory that stores their
//! bytes.

use crate::codes::{INVALID_VALUE, Outcome};
use crate::order::{Access, History};
use crate::real::Real;
use crate::report::{Site, Violation};
use crate::space::Space;
use crate::state::{Handle, Sim};

pub(crate) type BlockId = u64;

/// An allocated or registered range.
pub(crate) struct Block {
    pub begin: u64,
    /// The requested size.
    pub bytes: u64,
    pub kind: Kind,
    /// Whether cuMemAllocManaged allocated the block. Every device may access such a block. In the
    /// simulator, the host may not access it.
    pub managed: bool,
    pub real: Real,
    pub history: History,
    pub allocated: Site,
    /// The allocation, if it was queued on a stream.
    pub allocation: Option<Access>,
    /// The call site of the free, if one is queued.
    pub freed: Option<Site>,
    /// The free, if it was queued on a stream.
    pub free: Option<Access>,
    /// The memory that is mapped here, if the block is a mapping.
    pub mapped: Option<Mapped>,
}

/// The memory to which a mapping gives access.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    pub physical: Handle,
    /// The devices to which cuMemSetAccess gave access, a bit for each.
    pub devices: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Device memory. `pool` is `None` if the memory is not from a pool.
    Device { device: usize, pool: Option<Handle> },
    /// Allocated by cuMemHostAlloc.
    Pinned,
    /// The caller's memory, registered with cuMemHostRegister.
    Registered,
}

/// A place in a block, as an offset in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub id: BlockId,
    pub offset: u64,
}

/// A freed device block.
pub(crate) struct FreedBlock {
    pub end: u64,
    pub allocated: Site,
    pub freed: Site,
}

impl Sim {
    /// Creates a device block. The caller must count the block's bytes as used on the device or in
    /// the pool.
    pub(crate) fn new_device_block(
        &mut self,
        device: usize,
        pool: Option<Handle>,
        bytes: u64,
        site: Site,
        allocation: Option<Access>,
    ) -> Outcome<u64> {
        let real = Real::allocate(bytes, false)?;
        let begin = self.new_address(device, bytes)?;
        self.insert(Block {
            begin,
            bytes,
            kind: Kind::Device { device, pool },
            managed: false,
            real,
            history: History::new(bytes, allocation),
            allocated: site,
            allocation,
            freed: None,
            free: None,
            mapped: None,
        });
        Ok(begin)
    }

    /// Reserves an address range for a block. An allocation on a captured stream reserves only this
    /// range, and no memory.
    pub(crate) fn new_address(&mut self, device: usize, bytes: u64) -> Outcome<u64> {
        let space = match &mut self.devices[device].space {
            Some(space) => space,
            none => none.insert(Space::reserve()?),
        };
        space.take(bytes, &self.addresses)
    }

    pub(crate) fn alloc_host(&mut self, bytes: u64) -> Outcome<*mut u8> {
        self.current()?;
        self.reject_during_capture()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let real = Real::allocate(bytes, true)?;
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
        if self.addresses.range(..end).next_back().is_some_and(|(_, (end, _))| *end > begin) {
            return Err(crate::codes::ALREADY_REGISTERED);
        }
        self.insert_host(Kind::Registered, Real::borrowed(pointer), bytes);
        Ok(())
    }

    fn insert_host(&mut self, kind: Kind, real: Real, bytes: u64) {
        let site = self.here();
        self.insert(Block {
            begin: real.pointer() as u64,
            bytes,
            kind,
            managed: false,
            real,
            history: History::new(bytes, None),
            allocated: site,
            allocation: None,
            freed: None,
            free: None,
            mapped: None,
        });
    }

    pub(crate) fn insert(&mut self, block: Block) {
        let id = self.new_block();
        self.addresses.insert(block.begin, (block.begin + block.bytes, id));
        let range = block.begin..block.begin + block.bytes;
        let reused: Vec<u64> = self.freed_blocks.range(range).map(|(begin, _)| *begin).collect();
        for begin in reused {
            self.freed_blocks.remove(&begin);
        }
        self.blocks.insert(id, block);
    }

    /// The live block that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<(BlockId, &Block)> {
        let (_, (end, id)) = self.addresses.range(..=address).next_back()?;
        (address < *end).then(|| self.blocks.get(id).map(|block| (*id, block)))?
    }

    /// Returns the place of an address range, or `None` if the range is pageable memory.
    pub(crate) fn locate(&mut self, address: u64, bytes: u64) -> Outcome<Option<Spot>> {
        let Some((id, block)) = self.find(address) else { return self.outside(address, bytes) };
        let (offset, size, allocated, freed) =
            (address - block.begin, block.bytes, block.allocated, block.freed);
        let is_inaccessible = block.mapped.is_some_and(|mapped| mapped.devices == 0);
        if bytes > size - offset {
            let site = self.here();
            let text = format!(
                "{} accesses {bytes} bytes at {address:#x}, at offset {offset} of a block of {size} bytes",
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
        if is_inaccessible {
            return Err(INVALID_VALUE);
        }
        Ok(Some(Spot { id, offset }))
    }

    fn outside(&mut self, address: u64, bytes: u64) -> Outcome<Option<Spot>> {
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        if !self.is_device_address(address) {
            return Ok(None);
        }
        match self.freed_block(address) {
            Some((allocated, freed)) => self.used_after_free(address, allocated, freed),
            None => {
                let site = self.here();
                let text = format!(
                    "{} accesses {bytes} bytes at {address:#x}, which is outside of all blocks",
                    self.call
                );
                self.violation(Violation::OutOfBounds, &text, &[("the use", site)]);
            }
        }
        Err(INVALID_VALUE)
    }

    pub(crate) fn is_device_address(&self, address: u64) -> bool {
        self.devices.iter().filter_map(|device| device.space.as_ref()).any(|space| space.contains(address))
    }

    /// The call sites of the allocation and the free, if a freed block contained `address`.
    pub(crate) fn freed_block(&self, address: u64) -> Option<(Site, Site)> {
        let (_, block) = self.freed_blocks.range(..=address).next_back()?;
        (address < block.end).then_some((block.allocated, block.freed))
    }

    fn used_after_free(&mut self, address: u64, allocated: Site, freed: Site) {
        let site = self.here();
        let text = format!("{} uses {address:#x}, which is already freed", self.call);
        let sites = [("the use", site), ("the free", freed), ("the allocation", allocated)];
        self.violation(Violation::UseAfterFree, &text, &sites);
    }
}
