//! What is refused before anything is allocated for it.

/// Bytes of one message's metadata, or of a footer. Real ones are kilobytes.
pub const MOST_METADATA_BYTES: usize = 256 << 20;

/// Levels of nested fields in a schema.
pub const MOST_DEPTH: usize = 64;

/// Where the length of what arrives is only claimed (a pipe): how much is allocated on the claim alone. Beyond that,
/// memory follows what has really arrived.
pub const TRUSTED_BYTES: usize = 32 << 20;

/// Bytes of decoded batches that wait to be asked for, where the caller states no budget.
pub const DEFAULT_BYTES_AHEAD: u64 = 256 << 20;

/// The same towards a device, where those that are on their way count too.
pub const DEFAULT_BYTES_AHEAD_OF_DEVICE: u64 = 384 << 20;

/// The size of the pieces in which large bodies are read by several threads.
pub const PIECE_BYTES: usize = 8 << 20;
