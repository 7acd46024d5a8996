//! Constants that the launchers, the CPU implementations and the CUDA sources share.

/// Values per block in the FastLanes layout.
pub const FASTLANES_BLOCK: usize = 1024;

/// Bytes per row of words in such a block.
pub const FASTLANES_ROW_BYTES: usize = 128;

/// The number of FastLanes blocks that contain `len` values, of which the first is value `first` of
/// the first block.
pub fn blocks_of(first: usize, len: usize) -> usize {
    if len == 0 { 0 } else { first.saturating_add(len).div_ceil(FASTLANES_BLOCK) }
}

/// Bytes per view.
pub const VIEW_BYTES: usize = 16;

/// The child length that stands for an unknown type id in the arguments of a union's kernel.
pub const NO_CHILD: u64 = u64::MAX;

/// Exclusive bound of the factors of a sum, as in `parts.cu`.
pub const FACTOR_LIMIT: u64 = 1 << 60;

/// Maximum number of left parts in a dictionary, as in `parts.cu`.
pub const MAX_LEFT_PARTS: usize = 8;
