//! Constants that the launchers, the CPU implementations and the CUDA sources share.

/// Values per block in the FastLanes layout.
pub const FASTLANES_BLOCK: usize = 1024;

/// Bytes per row of words in a FastLanes block.
pub const FASTLANES_ROW_BYTES: usize = 128;

/// The number of FastLanes blocks that contain `len` values, if the first of these values has
/// position `first` in its block.
pub fn blocks_of(first: usize, len: usize) -> usize {
    if len == 0 { 0 } else { first.saturating_add(len).div_ceil(FASTLANES_BLOCK) }
}

/// Bytes per view.
pub const VIEW_BYTES: usize = 16;

/// The child length of an unknown type id, in the arguments of the kernel for unions.
pub const NO_CHILD: u64 = u64::MAX;

/// The factors of a sum must be less than this bound. Equal to the constant in `parts.cu`.
pub const FACTOR_LIMIT: u64 = 1 << 60;

/// Maximum number of left parts in a dictionary, as in `parts.cu`.
pub const MAX_LEFT_PARTS: usize = 8;
