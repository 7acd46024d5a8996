//! Concatenates byte ranges and bitmaps.

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks, wave_blocks};
use crate::rows::{CONCATENATE_BITS, COPY_RANGES};

/// Maximum number of bitmaps of one job. A job also has a head and two more arguments, which count
/// against the limit of arguments.
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
    /// many ranges; separate copies would need one command for each range.
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
        // The number of bits written so far. A job may begin in the last byte of the previous job,
        // and keeps the bits that the previous job wrote to this byte. So consecutive jobs must not
        // run at the same time, and each job has its own round.
        let mut done = 0;
        for (round, parts) in parts.chunks(MAX_PARTS).enumerate() {
            let bits: usize = parts.iter().map(|part| part.len).sum();
            let (begin, end) = (done / 8, (done + bits).div_ceil(8));
            let mut args = Vec::with_capacity(2 + 3 * parts.len());
            args.push(JobArg::write(to, at + begin, end - begin)?);
            args.push(JobArg::Value((done % 8) as u64));
            let any = parts.iter().find_map(|part| part.bits);
            for part in parts {
                // An argument without bytes means that all bits are set.
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
