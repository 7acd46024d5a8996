//! Helper functions for the frames of LZ4 and Zstandard.

/// Grows `scratch` to at least `bytes` bytes and returns its first `bytes` bytes.
pub fn with_capacity(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    scratch
}

/// Whether `part` may be padding. `bytes` is the number of bytes that follow the frame in its
/// buffer. Some writers include padding in the length of a buffer.
pub fn is_padding(bytes: usize, part: &[u8]) -> bool {
    bytes < 64 && part.iter().all(|b| *b == 0)
}
