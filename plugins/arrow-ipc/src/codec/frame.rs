//! Helpers for the frames of both codecs.

/// Grows `scratch` to at least `bytes` bytes.
pub fn with_capacity(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    scratch
}

/// Whether `part` of the `bytes` bytes after a frame in its buffer may be padding, which some
/// writers count into the buffer.
pub fn is_padding(bytes: usize, part: &[u8]) -> bool {
    bytes < 64 && part.iter().all(|b| *b == 0)
}
