//! Defines the kernel: an image for CUDA devices, and a CPU implementation.

use crossdock_memory::{Arg, Buffer, Kernel, LaunchSize, Result, Stream, bytes_of_host_arg, bytes_of_host_arg_mut};
use crossdock_plugin_api::{Error, abi, door::Poison};

/// The images that `cuda/xor.cu` was compiled to, for compute capability 7.0 and later.
static IMAGES: &[u8] = include_bytes!("../cuda/xor.images");

static XOR: Kernel = Kernel::host(c"example_xor", xor_on_cpu).with_image(IMAGES);

/// The number of bytes per thread block. A block processes more bytes if the grid would otherwise
/// need more than `MAX_BLOCKS` blocks.
const BLOCK_BYTES: usize = 1 << 15;
const MAX_BLOCKS: usize = 1 << 13;

/// Returns the exclusive or of the bytes of `words` with the repeated bytes of `pattern`.
pub fn xor(stream: &Stream, words: &Buffer, pattern: u64) -> Result<Buffer> {
    let bytes = words.len().ok_or_else(|| Error::internal("the buffer of words has an unknown length"))?;
    let mut to = stream.memory().alloc(stream, bytes)?;
    let blocks = bytes.div_ceil(BLOCK_BYTES).clamp(1, MAX_BLOCKS) as u32;
    let size = LaunchSize::new(blocks, 256);
    let mut args = [
        Arg::Read { buffer: words, offset: 0, bytes },
        Arg::Write { buffer: &mut to, offset: 0, bytes },
        Arg::Value(pattern),
    ];
    // SAFETY: the arguments have the kinds and the order of the kernel's parameters.
    unsafe { stream.launch(&XOR, &size, &mut args) }?;
    to.freeze(stream)
}

unsafe extern "C" fn xor_on_cpu(args: *const abi::Arg, n: usize) -> abi::Code {
    let body = || {
        if n != 3 || args.is_null() {
            return Err(Error::invalid_argument(format!("example_xor: {n} arguments, expected 3")));
        }
        // SAFETY: a launch passes `n` arguments.
        let args = unsafe { std::slice::from_raw_parts(args, n) };
        let [words, to, pattern] = args else { return Ok(()) };
        if [words.kind, to.kind, pattern.kind] != [abi::ARG_READ, abi::ARG_WRITE, abi::ARG_VALUE] {
            return Err(Error::invalid_argument("example_xor: expected words, a target and a pattern"));
        }
        // SAFETY: a launch passes host addresses to a CPU implementation. `xor` passes two
        // different buffers, so the ranges do not overlap.
        let (words, to) = unsafe { (bytes_of_host_arg(words), bytes_of_host_arg_mut(to)) };
        xor_bytes(words, to, pattern.value);
        Ok(())
    };
    // SAFETY: `Poison::enter` accepts NULL as the error, and then discards the message.
    unsafe { Poison::new().enter(std::ptr::null_mut(), body) }
}

fn xor_bytes(words: &[u8], to: &mut [u8], pattern: u64) {
    let pattern = pattern.to_le_bytes();
    let (wide, rest) = words.as_chunks::<8>();
    let (to_wide, to_rest) = to.as_chunks_mut::<8>();
    for (word, to) in wide.iter().zip(to_wide) {
        *to = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(pattern)).to_ne_bytes();
    }
    for ((byte, to), mask) in rest.iter().zip(to_rest).zip(pattern) {
        *to = byte ^ mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xor_repeats_the_pattern_and_is_its_own_inverse() {
        let words: Vec<u8> = (0..29).collect();
        let (mut once, mut twice) = (vec![0; 29], vec![0; 29]);
        xor_bytes(&words, &mut once, 0x0807_0605_0403_0201);
        assert!(once.iter().enumerate().all(|(i, byte)| *byte == i as u8 ^ (i % 8 + 1) as u8));
        xor_bytes(&once, &mut twice, 0x0807_0605_0403_0201);
        assert_eq!(twice, words);
    }
}
