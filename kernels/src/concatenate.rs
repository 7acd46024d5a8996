//! Ranges and bitmaps, one after the other in one buffer.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks, wave_blocks};
use crate::rows::{CONCATENATE_BITS, COPY_RANGES};

/// How many bitmaps a job has room for, beside its head and its two other arguments.
const PARTS: usize = (abi::MAX_KERNEL_ARGS - 3) / 3;

/// A bitmap among those to be concatenated.
#[derive(Clone, Copy)]
pub struct BitRange<'a> {
    /// The bitmap, and its first bit; `None` where all bits are set.
    pub bits: Option<(&'a Buffer, usize)>,
    /// How many bits.
    pub len: usize,
}

impl<'a> Jobs<'a> {
    /// Copies `bytes` bytes from byte `first` of `from` to byte `at` of a buffer that is being filled: many ranges in one
    /// launch, where copies would be one command each.
    pub fn copy_range(
        &mut self,
        from: &'a Buffer,
        first: usize,
        bytes: usize,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let args = [JobArg::Read(from, first, bytes), JobArg::write(to, at, bytes)?];
        self.push(&COPY_RANGES, blocks(bytes), args)
    }

    /// Writes bitmaps one after the other from byte `at` of a buffer that is being filled, which becomes one bitmap. What
    /// is left of the last byte becomes zero.
    pub fn concatenate_bits(&mut self, parts: &[BitRange<'a>], to: &mut BufferMut, at: usize) -> Result<()> {
        // The bits that are written so far. A job begins in the byte that the one before it ended in, and keeps its bits:
        // so the two may not run at once, and wait for each other in queues of their own.
        let mut done = 0;
        for (round, parts) in parts.chunks(PARTS).enumerate() {
            let bits: usize = parts.iter().map(|part| part.len).sum();
            let (begin, end) = (done / 8, (done + bits).div_ceil(8));
            let mut args = Vec::with_capacity(2 + 3 * parts.len());
            args.push(JobArg::write(to, at + begin, end - begin)?);
            args.push(JobArg::Value((done % 8) as u64));
            let any = parts.iter().find_map(|part| part.bits);
            for part in parts {
                // Of a bitmap of set bits there are no bytes, wherever they are said to lie.
                let source = match (part.bits, any) {
                    (Some((buffer, first)), _) => bits::args(buffer, first, part.len),
                    (None, Some((buffer, _))) => [JobArg::Read(buffer, 0, 0), JobArg::Value(0)],
                    (None, None) => [JobArg::NoBytes, JobArg::Value(0)],
                };
                args.extend(source);
                args.push(JobArg::Value(part.len as u64));
            }
            self.push_after(&CONCATENATE_BITS, round, wave_blocks(end - begin), args)?;
            done += bits;
        }
        Ok(())
    }
}
