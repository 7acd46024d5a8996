//! Checks, converts and rebases offsets of lists and variable-length values.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::Checks;
use crate::jobs::{JobArg, Jobs, blocks, long_blocks};
use crate::rows::{CHECK_OFFSETS, CONVERT_OFFSETS, REBASE_OFFSETS};
use crate::words::check_offset_width;

/// Offsets `first..=first + len` of a buffer, `width` bytes each.
#[derive(Clone, Copy)]
pub struct Offsets<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// Bytes per offset: 4 or 8.
    pub width_bytes: usize,
    /// The index of the first value's offset.
    pub first: usize,
    /// The number of values. The number of offsets is `len + 1`.
    pub len: usize,
}

impl<'a> Offsets<'a> {
    fn bytes(&self) -> usize {
        self.len.saturating_add(1).saturating_mul(self.width_bytes)
    }

    pub(crate) fn arg(&self) -> JobArg<'a> {
        JobArg::Read(self.buffer, self.first.saturating_mul(self.width_bytes), self.bytes())
    }
}

impl<'a> Checks<'a> {
    /// Finds the first offset that is negative, less than the preceding offset, or greater than
    /// `limit`. The index of the result is counted from `first`.
    pub fn offsets(&mut self, offsets: Offsets<'a>, limit: u64) -> Result<usize> {
        check_offset_width(offsets.width_bytes)?;
        let cell = self.cells(1);
        let width = JobArg::Value(offsets.width_bytes as u64);
        let args = [offsets.arg(), width, JobArg::Value(limit), JobArg::Cells(cell, 1)];
        self.push(&CHECK_OFFSETS, long_blocks(offsets.bytes()), args)?;
        Ok(cell)
    }

    /// Subtracts `base` from each offset, and writes the differences with `to_width_bytes` (4 or 8)
    /// bytes each, from byte `at` of `to` on. The returned cell has the first difference that does
    /// not fit.
    pub fn convert_offsets(
        &mut self,
        offsets: Offsets<'a>,
        base: i64,
        to: &mut BufferMut,
        at: usize,
        to_width_bytes: usize,
    ) -> Result<usize> {
        check_offset_width(offsets.width_bytes)?;
        check_offset_width(to_width_bytes)?;
        let bytes = offsets.len.saturating_add(1).saturating_mul(to_width_bytes);
        let target = JobArg::write(to, at, bytes)?;
        let cell = self.cells(1);
        let args = [
            offsets.arg(),
            JobArg::Value(offsets.width_bytes as u64),
            JobArg::Value(base as u64),
            target,
            JobArg::Value(to_width_bytes as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CONVERT_OFFSETS, long_blocks(bytes), args)?;
        Ok(cell)
    }
}

impl Jobs<'_> {
    /// Subtracts `base` from the `n` offsets at byte `at` of `buffer`.
    pub fn rebase_offsets(
        &mut self,
        buffer: &mut BufferMut,
        at: usize,
        n: usize,
        width_bytes: usize,
        base: i64,
    ) -> Result<()> {
        check_offset_width(width_bytes)?;
        let bytes = n.saturating_mul(width_bytes);
        let offsets = JobArg::write(buffer, at, bytes)?;
        let args = [offsets, JobArg::Value(width_bytes as u64), JobArg::Value(base as u64)];
        self.push(&REBASE_OFFSETS, blocks(bytes), args)
    }
}
