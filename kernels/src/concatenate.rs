//! Concatenates byte ranges and bitmaps.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks, wave_blocks};
use crate::rows::{CONCATENATE_BITS, COPY_RANGES};

/// Maximum number of bitmaps of a job, which also has a head and two other arguments.
const MAX_PARTS: usize = (abi::MAX_KERNEL_ARGS - 3) / 3;

/// A bitmap to concatenate.
#[derive(Clone, Copy)]
pub struct BitRange<'a> {
    /// The bitmap and its first bit; `None` if all bits are set.
    pub bits: Option<(&'a Buffer, usize)>,
    /// The number of bits.
    pub len: usize,
}

impl<'a> Jobs<'a> {
    /// Copies `bytes` bytes from byte `first` of `from` to byte `at` of `to`. One launch copies
    /// many ranges, which would be one command each as copies.
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

    /// Concatenates bitmaps, and writes them from byte `at` of `to` on. The unused bits of the last
    /// byte become 0.
    pub fn concatenate_bits(&mut self, parts: &[BitRange<'a>], to: &mut BufferMut, at: usize) -> Result<()> {
        // The number of bits written so far. A job begins in the last byte of the job before and
        // keeps its bits, so the two must not run at once: each job has its own round.
        let mut done = 0;
        for (round, parts) in parts.chunks(MAX_PARTS).enumerate() {
            let bits: usize = parts.iter().map(|part| part.len).sum();
            let (begin, end) = (done / 8, (done + bits).div_ceil(8));
            let mut args = Vec::with_capacity(2 + 3 * parts.len());
            args.push(JobArg::write(to, at + begin, end - begin)?);
            args.push(JobArg::Value((done % 8) as u64));
            let any = parts.iter().find_map(|part| part.bits);
            for part in parts {
                // For a bitmap of set bits, the argument has no bytes.
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
