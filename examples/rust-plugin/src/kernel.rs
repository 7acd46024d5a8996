//! The work itself: one kernel, which CUDA devices run from its image and host devices as its twin.

use crossdock_memory::{Arg, Buffer, Kernel, Result, Stream, bytes_of_host_arg, bytes_of_host_arg_mut};
use crossdock_plugin_api::{Error, abi, door::Poison};

/// For compute capability 7.0 and later, made of `cuda/xor.cu`.
static IMAGES: &[u8] = include_bytes!("../cuda/xor.images");

static XOR: Kernel = Kernel::host(c"example_xor", twin).with_image(IMAGES);

/// What one block is to do, before there is another one.
const BLOCK_BYTES: usize = 1 << 15;
const MOST_BLOCKS: usize = 1 << 13;

/// As many bytes as `words` has, each with the bits of its byte of `pattern` flipped: byte `i` with byte `i % 8`.
pub fn xor(stream: &Stream, words: &Buffer, pattern: u64) -> Result<Buffer> {
    let bytes = words.len().ok_or_else(|| Error::internal("words of unknown length were given"))?;
    let mut to = stream.memory().alloc(stream, bytes)?;
    let blocks = bytes.div_ceil(BLOCK_BYTES).clamp(1, MOST_BLOCKS) as u32;
    let grid = abi::Grid { blocks, threads: 256, shared_bytes: 0, reserved: 0 };
    let mut args = [
        Arg::Read { buffer: words, offset: 0, bytes },
        Arg::Write { buffer: &mut to, offset: 0, bytes },
        Arg::Value(pattern),
    ];
    // SAFETY: these are the kernel's arguments, in its order.
    unsafe { stream.launch(&XOR, grid, &mut args) }?;
    to.freeze(stream)
}

unsafe extern "C" fn twin(args: *const abi::Arg, n: usize) -> abi::Code {
    let body = || {
        if n != 3 || args.is_null() {
            return Err(Error::invalid_argument(format!("example_xor: {n} arguments, expected 3")));
        }
        // SAFETY: a launch gives as many arguments as it says.
        let args = unsafe { std::slice::from_raw_parts(args, n) };
        let [words, to, pattern] = args else { return Ok(()) };
        if [words.kind, to.kind, pattern.kind] != [abi::ARG_READ, abi::ARG_WRITE, abi::ARG_VALUE] {
            return Err(Error::invalid_argument("example_xor: expected words, a target and a pattern"));
        }
        // SAFETY: a launch gives a twin addresses of the host; the two ranges are of two buffers, by `xor`.
        let (words, to) = unsafe { (bytes_of_host_arg(words), bytes_of_host_arg_mut(to)) };
        flip(words, to, pattern.value);
        Ok(())
    };
    // SAFETY: nobody asks for the message.
    unsafe { Poison::new().enter(std::ptr::null_mut(), body) }
}

fn flip(words: &[u8], to: &mut [u8], pattern: u64) {
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
    fn twice_is_not_at_all_and_each_byte_meets_its_own() {
        let words: Vec<u8> = (0..29).collect();
        let (mut once, mut twice) = (vec![0; 29], vec![0; 29]);
        flip(&words, &mut once, 0x0807_0605_0403_0201);
        assert!(once.iter().enumerate().all(|(i, byte)| *byte == i as u8 ^ (i % 8 + 1) as u8));
        flip(&once, &mut twice, 0x0807_0605_0403_0201);
        assert_eq!(twice, words);
    }
}
