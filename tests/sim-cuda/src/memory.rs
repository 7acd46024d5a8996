//! Blocks: what was allocated, where its bytes really are, and who may touch it.

use crate::codes::{INVALID_VALUE, Outcome};
use crate::order::{Access, History};
use crate::real::Real;
use crate::report::{Site, Violation};
use crate::space::Space;
use crate::state::{Handle, Sim};

pub(crate) type BlockId = u64;

/// What was allocated, or registered.
pub(crate) struct Block {
    pub begin: u64,
    /// As asked for.
    pub bytes: u64,
    pub kind: Kind,
    /// cuMemAllocManaged's: each device may touch it, and here the host may not.
    pub managed: bool,
    pub real: Real,
    pub history: History,
    pub allocated: Site,
    /// The allocation as work on a stream.
    pub allocation: Option<Access>,
    /// The free was asked for here, and has not run.
    pub freed: Option<Site>,
    /// The free as work on a stream.
    pub free: Option<Access>,
    /// Memory that was made by itself, and is seen here.
    pub mapped: Option<Mapped>,
}

/// What of it a block is.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    pub physical: Handle,
    /// Whether the device was given access, which it has not from the beginning.
    pub accessible: bool,
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

/// A place in a block, in bytes from its begin.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub id: BlockId,
    pub offset: u64,
}

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

    /// Room for a block. One that a captured graph would allocate is room and nothing else.
    pub(crate) fn new_address(&mut self, device: usize, bytes: u64) -> Outcome<u64> {
        let space = match &mut self.devices[device].space {
            Some(space) => space,
            none => none.insert(Space::reserve()?),
        };
        space.take(bytes, &self.addresses)
    }

    pub(crate) fn alloc_host(&mut self, bytes: u64) -> Outcome<*mut u8> {
        self.current()?;
        self.refuse_during_capture()?;
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
        if self.addresses.range(..end).next_back().is_some_and(|(_, (theirs, _))| *theirs > begin) {
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
        let dead: Vec<u64> =
            self.graves.range(block.begin..block.begin + block.bytes).map(|(begin, _)| *begin).collect();
        for begin in dead {
            self.graves.remove(&begin);
        }
        self.blocks.insert(id, block);
    }

    /// The live block that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<(BlockId, &Block)> {
        let (_, (end, id)) = self.addresses.range(..=address).next_back()?;
        (address < *end).then(|| self.blocks.get(id).map(|block| (*id, block)))?
    }

    /// The block that holds a range, and the offset; nothing for pageable memory.
    pub(crate) fn locate(&mut self, address: u64, bytes: u64) -> Outcome<Option<Spot>> {
        let Some((id, block)) = self.find(address) else { return self.outside(address, bytes) };
        let (offset, size, allocated, freed) =
            (address - block.begin, block.bytes, block.allocated, block.freed);
        let out_of_reach = block.mapped.is_some_and(|mapped| !mapped.accessible);
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
        if out_of_reach {
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

    pub(crate) fn grave(&self, address: u64) -> Option<(Site, Site)> {
        let (_, grave) = self.graves.range(..=address).next_back()?;
        (address < grave.end).then_some((grave.allocated, grave.freed))
    }

    fn used_after_free(&mut self, address: u64, allocated: Site, freed: Site) {
        let site = self.here();
        let text = format!("{} uses {address:#x}, which was freed", self.call);
        let sites = [("the use", site), ("the free", freed), ("the allocation", allocated)];
        self.violation(Violation::UseAfterFree, &text, &sites);
    }
}
