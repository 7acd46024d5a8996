//! Device addresses, which are reserved and aligned, and which the host cannot access.

use std::collections::BTreeMap;

use crate::codes::{OUT_OF_MEMORY, Outcome};
use crate::memory::BlockId;

/// The alignment of device addresses, as in a real driver.
pub(crate) const ALIGNMENT: u64 = 512;
/// The number of unused bytes after each block, so that the end of a block is never the address of
/// another block.
const GAP: u64 = 512;

/// The sizes of a device's address space in bytes. They are tried in this order, because the
/// process may have a limit on its address space.
const SIZES: [u64; 3] = [1 << 40, 1 << 36, 1 << 33];

/// The address space of one device. The host has no access to it, so dereferencing an address
/// faults.
pub(crate) struct Space {
    begin: u64,
    end: u64,
    next: u64,
}

impl Space {
    pub(crate) fn reserve() -> Outcome<Self> {
        for bytes in SIZES {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: without MAP_FIXED, the kernel chooses a free address, so no other mapping
            // changes.
            let begin =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
            if begin != libc::MAP_FAILED {
                let begin = (begin as u64).next_multiple_of(ALIGNMENT);
                return Ok(Self { begin, end: begin + bytes - ALIGNMENT, next: begin });
            }
        }
        Err(OUT_OF_MEMORY)
    }

    /// Allocates an address range of `bytes` bytes that overlaps no live block. Addresses are not
    /// reused until the whole address space has been used once, so that a use after a free is
    /// detected.
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
            let overlapping = live.range(..end).next_back().filter(|(_, (end, _))| *end > begin);
            match overlapping {
                Some((_, (end, _))) => {
                    self.next = end.saturating_add(GAP).next_multiple_of(ALIGNMENT).min(self.end);
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
