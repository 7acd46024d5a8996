//! What both compressions need around their frames.

/// `scratch` with room for `bytes` bytes.
pub fn room(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    scratch
}

/// Whether `part`, of the `bytes` bytes that follow a frame inside its buffer, may be the padding that some writers count
/// in.
pub fn is_padding(bytes: usize, part: &[u8]) -> bool {
    bytes < 64 && part.iter().all(|b| *b == 0)
}
