//! Finds the positions of the set bits of a bitmap.

use crossdock_memory::{Buffer, BufferMut, Error, Result, Stream};

use crate::jobs::{JobArg, warps_of};
use crate::rows::{ADD_SIZES, COUNT_BITS, PLACE_BITS};
use crate::words::check_offset_width;
use crate::{Checks, Jobs};

/// The binary logarithm of the least number of bits per chunk.
const MIN_SHIFT: u32 = 11;

/// Maximum number of chunks. It is limited because one block adds up the counts of all chunks.
const MAX_CHUNKS: usize = 1 << 14;

/// The set bits among the first `len` bits of a bitmap.
#[derive(Clone, Copy)]
pub struct SelectedRows<'a> {
    /// The bitmap, from its first bit on.
    pub bits: &'a Buffer,
    /// The number of bits.
    pub len: usize,
}

/// The number of set bits, and the number of set bits before each chunk of the bitmap.
pub struct Selected {
    /// The number of set bits.
    pub n: usize,
    bases: Buffer,
}

impl<'a> SelectedRows<'a> {
    fn shift(self) -> u32 {
        let chunk = self.len.div_ceil(MAX_CHUNKS).max(1).next_power_of_two();
        chunk.ilog2().max(MIN_SHIFT)
    }

    fn chunks(self) -> usize {
        self.len.div_ceil(1 << self.shift())
    }

    fn args(self) -> [JobArg<'a>; 3] {
        [
            JobArg::Read(self.bits, 0, self.len.div_ceil(8)),
            JobArg::Value(self.len as u64),
            JobArg::Value(self.shift().into()),
        ]
    }

    /// Counts the set bits. Blocks until the host has read the count.
    pub fn count(self, stream: &Stream) -> Result<Selected> {
        let bytes = self.chunks().saturating_mul(8);
        let mut sizes = stream.memory().alloc(stream, bytes)?;
        let mut checks = Checks::new();
        let cell = checks.cells(1);
        let counts = [JobArg::write(&mut sizes, 0, bytes)?];
        checks.push(&COUNT_BITS, warps_of(self.chunks()), self.args().into_iter().chain(counts))?;
        checks.push(&ADD_SIZES, 1, [JobArg::write(&mut sizes, 0, bytes)?, JobArg::Cells(cell, 1)])?;
        let count = checks.run(stream)?.number(cell);
        let n = usize::try_from(count).ok().filter(|n| *n <= self.len).ok_or_else(|| {
            Error::internal(format!("a kernel counted {count} set bits among {}", self.len))
        })?;
        Ok(Selected { n, bases: sizes.freeze(stream)? })
    }
}

impl<'a> Jobs<'a> {
    /// Writes the positions of the set bits in ascending order, `width_bytes` (4 or 8) bytes each,
    /// from byte `at` of `to` on.
    pub fn place_bits(
        &mut self,
        rows: SelectedRows<'a>,
        selected: &'a Selected,
        to: &mut BufferMut,
        at: usize,
        width_bytes: usize,
    ) -> Result<()> {
        check_offset_width(width_bytes)?;
        let target = JobArg::write(to, at, selected.n.saturating_mul(width_bytes))?;
        let bases = JobArg::Read(&selected.bases, 0, rows.chunks().saturating_mul(8));
        let others = [bases, target, JobArg::Value(width_bytes as u64)];
        self.push(&PLACE_BITS, warps_of(rows.chunks()), rows.args().into_iter().chain(others))
    }
}
