//! Blocks in host memory with a redzone before and after each block. The redzones reveal writes out
//! of bounds. A plugin that passes the address of a block to `free` of the C library crashes,
//! because no allocation begins at this address.

use crossdock::api::abi;

/// A block that the plugin holds.
pub(super) struct Block {
    pub handle: usize,
    pub bytes: usize,
    /// The bytes of the redzone before the block, or 0 if the block has no redzones.
    front: usize,
    address: usize,
}

/// The bytes of the redzone after a block.
const BACK: usize = 64;
const FILL: u8 = 0xc5;

/// The bytes of the redzone before a block of this alignment.
pub(super) fn front_of(alignment: usize) -> usize {
    alignment.max(64)
}

/// The bytes of a block with its redzones. `None` if the sum overflows.
pub(super) fn bytes_with_redzones(bytes: usize, front: usize) -> Option<usize> {
    bytes.checked_add(front)?.checked_add(BACK)
}

impl Block {
    /// A block without redzones.
    pub fn plain(allocation: &abi::Allocation) -> Self {
        let (handle, address) = (allocation.block as usize, allocation.address as usize);
        Self { handle, bytes: allocation.bytes, front: 0, address }
    }

    /// Fills the redzones of an allocation, and narrows the allocation to the block between them.
    ///
    /// # Safety
    /// The allocation is new and in host memory. Its length is the result of
    /// [`bytes_with_redzones`] for `bytes` and `front`.
    pub unsafe fn with_redzones(allocation: &mut abi::Allocation, bytes: usize, front: usize) -> Self {
        let start = allocation.address.cast::<u8>();
        // SAFETY: the caller passes a new allocation of `front + bytes + BACK` bytes in host
        // memory.
        unsafe {
            start.write_bytes(FILL, front);
            start.add(front + bytes).write_bytes(FILL, BACK);
            allocation.address = start.add(front).cast();
        }
        allocation.bytes = bytes;
        Self { handle: allocation.block as usize, bytes, front, address: allocation.address as usize }
    }

    /// Describes a write to a redzone.
    pub fn damage(&self) -> Option<String> {
        if self.front == 0 {
            return None;
        }
        // SAFETY: `front` is not 0, so `with_redzones` made this block, with `front` bytes before
        // it and `BACK` bytes after it. The allocation lives as long as this value.
        let (before, after) = unsafe {
            (
                std::slice::from_raw_parts((self.address - self.front) as *const u8, self.front),
                std::slice::from_raw_parts((self.address + self.bytes) as *const u8, BACK),
            )
        };
        let is_damaged = |bytes: &[u8]| bytes.iter().any(|byte| *byte != FILL);
        let side = match (is_damaged(before), is_damaged(after)) {
            (false, false) => return None,
            (true, _) => "before",
            (false, true) => "after",
        };
        Some(format!("bytes were written {side} a block of {} bytes", self.bytes))
    }
}
