//! Blocks in host memory with bytes around them, which tell of writes beside the block; and, because what the plugin gets is
//! not where an allocator's block begins, `free` on it ends the process.

use crossdock::api::abi;

/// A block that the plugin holds.
pub(super) struct Block {
    pub handle: usize,
    pub bytes: usize,
    /// What lies before it; 0 where the host cannot look there.
    front: usize,
    address: usize,
}

/// What lies behind a block.
const BEHIND: usize = 64;
const FILL: u8 = 0xc5;

/// How many bytes to put before a block of this alignment.
pub(super) fn front_of(alignment: usize) -> usize {
    alignment.max(64)
}

/// How many to ask for; `None` where there cannot be so many.
pub(super) fn with_surroundings(bytes: usize, front: usize) -> Option<usize> {
    bytes.checked_add(front)?.checked_add(BEHIND)
}

impl Block {
    /// One that is handed on as it is.
    pub fn plain(allocation: &abi::Allocation) -> Self {
        let (handle, address) = (allocation.block as usize, allocation.address as usize);
        Self { handle, bytes: allocation.bytes, front: 0, address }
    }

    /// Cuts the middle out of an allocation, and marks what is around it.
    ///
    /// # Safety
    /// It is in host memory, nobody else's yet, and as long as [`with_surroundings`] says for `bytes` and `front`.
    pub unsafe fn surrounded(allocation: &mut abi::Allocation, bytes: usize, front: usize) -> Self {
        let start = allocation.address.cast::<u8>();
        // SAFETY: the caller's word.
        unsafe {
            start.write_bytes(FILL, front);
            start.add(front + bytes).write_bytes(FILL, BEHIND);
            allocation.address = start.add(front).cast();
        }
        allocation.bytes = bytes;
        Self { handle: allocation.block as usize, bytes, front, address: allocation.address as usize }
    }

    /// What was written beside it, in words.
    pub fn damage(&self) -> Option<String> {
        if self.front == 0 {
            return None;
        }
        // SAFETY: the block is held, and so is what was allocated around it (`surrounded`).
        let (before, behind) = unsafe {
            (
                std::slice::from_raw_parts((self.address - self.front) as *const u8, self.front),
                std::slice::from_raw_parts((self.address + self.bytes) as *const u8, BEHIND),
            )
        };
        let is_damaged = |bytes: &[u8]| bytes.iter().any(|byte| *byte != FILL);
        let side = match (is_damaged(before), is_damaged(behind)) {
            (false, false) => return None,
            (true, _) => "before",
            (false, true) => "behind",
        };
        Some(format!("bytes were written {side} a block of {} bytes", self.bytes))
    }
}
