//! Defines limits on the size of inputs and on the use of memory.

use crossdock_memory::Device;

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
const DEFAULT_BYTES_AHEAD: u64 = 256 << 20;

/// Maximum size of batches that are read ahead for another device, in bytes. It includes bodies
/// that are still being copied.
const DEFAULT_BYTES_AHEAD_OF_DEVICE: u64 = 384 << 20;

/// Maximum size of batches that are read ahead for a device that decompresses them, in bytes. It
/// includes the compressed bodies, but not the scratch memory of linked LZ4 blocks, which is twice
/// the size of a batch until the device has decompressed it.
const DEFAULT_BYTES_AHEAD_OF_DECOMPRESSION: u64 = 1 << 30;

/// Like [`max_bytes_ahead`], while a device decompresses the batches.
pub fn max_bytes_ahead_of_decompression(byte_budget: u64, memory_limit_bytes: u64) -> u64 {
    limited(byte_budget, DEFAULT_BYTES_AHEAD_OF_DECOMPRESSION, memory_limit_bytes)
}

/// Maximum size of batches that are read ahead, or that wait to be written, in bytes.
/// `byte_budget` is the budget of the call, and `memory_limit_bytes` the limit of the session; 0
/// stands for none. Without a budget, these batches use at most a quarter of the session's memory,
/// because the caller needs memory for its work on other batches.
pub fn max_bytes_ahead(byte_budget: u64, device: Device, memory_limit_bytes: u64) -> u64 {
    let default = if device == Device::CPU { DEFAULT_BYTES_AHEAD } else { DEFAULT_BYTES_AHEAD_OF_DEVICE };
    limited(byte_budget, default, memory_limit_bytes)
}

fn limited(byte_budget: u64, default: u64, memory_limit_bytes: u64) -> u64 {
    match (byte_budget, memory_limit_bytes) {
        (0, 0) => default,
        (0, limit) => default.min(limit / 4),
        (budget, _) => budget,
    }
}

/// Size of the parts of a large body that different threads read, in bytes.
pub const PIECE_BYTES: usize = 8 << 20;
