//! Defines limits on input and on memory.

/// Maximum size of one message's metadata, or of a footer. Usual ones have kilobytes.
pub const MAX_METADATA_BYTES: usize = 256 << 20;

/// Maximum number of levels of nested fields in a schema.
pub const MAX_DEPTH: usize = 64;

/// Maximum allocation for a declared length that is unverified (in a pipe). Beyond that, the
/// allocation grows with the received bytes.
pub const TRUSTED_BYTES: usize = 32 << 20;

/// Maximum size of batches that are read ahead, if the caller sets no budget.
pub const DEFAULT_BYTES_AHEAD: u64 = 256 << 20;

/// The same for other devices, where bodies that are still being copied count too.
pub const DEFAULT_BYTES_AHEAD_OF_DEVICE: u64 = 384 << 20;

/// Size of the pieces of a large body that several threads read.
pub const PIECE_BYTES: usize = 8 << 20;
