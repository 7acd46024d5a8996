//! Defines limits on the size of inputs and on the use of memory.

/// Maximum size of a footer or of the metadata of one message, in bytes. Typical sizes are some
/// kilobytes.
pub const MAX_METADATA_BYTES: usize = 256 << 20;

/// Maximum number of levels of nested fields in a schema.
pub const MAX_DEPTH: usize = 64;

/// Maximum initial size of an allocation, in bytes, if the input only declares the length, as in a
/// pipe. The allocation grows as more bytes are received.
pub const TRUSTED_BYTES: usize = 32 << 20;

/// Maximum size of batches that are read ahead, in bytes. It applies if the caller sets no budget
/// and the device is the CPU.
pub const DEFAULT_BYTES_AHEAD: u64 = 256 << 20;

/// Maximum size of batches that are read ahead for another device, in bytes. It includes bodies
/// that are still being copied.
pub const DEFAULT_BYTES_AHEAD_OF_DEVICE: u64 = 384 << 20;

/// Size of the parts of a large body that different threads read, in bytes.
pub const PIECE_BYTES: usize = 8 << 20;
