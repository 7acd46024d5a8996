//! Device addresses: reserved, aligned, and out of everybody's reach.

use std::collections::BTreeMap;

use crate::codes::{OUT_OF_MEMORY, Outcome};
use crate::memory::BlockId;

/// What a device's addresses are aligned to, as a real driver's are.
pub(crate) const ALIGNMENT: u64 = 512;
/// A page that stays unused behind each block, so that one past the end is no other block's address.
const GAP: u64 = 512;

/// How much is reserved for one device. Less is tried where a limit is set on the process.
const SIZES: [u64; 3] = [1 << 40, 1 << 36, 1 << 33];

/// One device's part of the address space. Nothing is mapped there: whoever dereferences an address of it faults.
pub(crate) struct Space {
    begin: u64,
    end: u64,
    next: u64,
}

impl Space {
    pub(crate) fn reserve() -> Outcome<Self> {
        for bytes in SIZES {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a fresh mapping at an address of the kernel's choice, which disturbs no other.
            let begin =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
            if begin != libc::MAP_FAILED {
                let begin = (begin as u64).next_multiple_of(ALIGNMENT);
                return Ok(Self { begin, end: begin + bytes - ALIGNMENT, next: begin });
            }
        }
        Err(OUT_OF_MEMORY)
    }

    /// An address for `bytes`, which nobody alive has. A new one each time until all are used up: what is freed is
    /// recognised for long.
    pub(crate) fn take(&mut self, bytes: u64, live: &BTreeMap<u64, (u64, BlockId)>) -> Outcome<u64> {
        let need = bytes.checked_add(GAP).ok_or(OUT_OF_MEMORY)?.next_multiple_of(ALIGNMENT);
        let mut wrapped = false;
        loop {
            if self.end - self.next < need {
                if wrapped {
                    return Err(OUT_OF_MEMORY);
                }
                wrapped = true;
                self.next = self.begin;
                if self.end - self.begin < need {
                    return Err(OUT_OF_MEMORY);
                }
            }
            let (begin, end) = (self.next, self.next + need);
            let in_the_way = live.range(..end).next_back().filter(|(_, (theirs, _))| *theirs > begin);
            match in_the_way {
                Some((_, (theirs, _))) => {
                    self.next = theirs.saturating_add(GAP).next_multiple_of(ALIGNMENT).min(self.end);
                }
                None => {
                    self.next = end;
                    return Ok(begin);
                }
            }
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }
}
