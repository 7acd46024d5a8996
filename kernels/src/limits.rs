//! Constants, and a count, that the launchers, the CPU implementations and the CUDA sources share.

/// Values of a block in the FastLanes layout.
pub const FASTLANES_BLOCK: usize = 1024;

/// Bytes of a row of words of such a block.
pub const FASTLANES_ROW_BYTES: usize = 128;

/// The number of such blocks that `len` values lie in which begin with value `first` of the first block.
pub fn blocks_of(first: usize, len: usize) -> usize {
    if len == 0 { 0 } else { first.saturating_add(len).div_ceil(FASTLANES_BLOCK) }
}

/// Bytes of a view.
pub const VIEW_BYTES: usize = 16;

/// The length that a union's kernel is given for a type id that has no child.
pub const NO_CHILD: u64 = u64::MAX;

/// The factors of a sum are below this, as parts.cu has it.
pub const MOST_FACTOR: u64 = 1 << 60;

/// The most left parts that codes number, as parts.cu has it.
pub const MOST_LEFTS: usize = 8;
