//! Takes values by code, expands runs, and applies patches.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks, long_blocks, warps};
use crate::rows::{EXPAND_RUNS, PATCH, TAKE};
use crate::steps::{self, Step};
use crate::{Checks, Words, bits};

/// Number of values that a warp processes at a time, as in `runs.cu`.
const EXPANDED: usize = 1024;

/// Unsigned integers of 1, 2, 4 or 8 bytes in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// The byte at which the integers begin.
    pub at: usize,
    /// The number of integers.
    pub len: usize,
    /// Bytes per integer.
    pub width_bytes: usize,
}

impl<'a> Numbers<'a> {
    pub(crate) fn args(self) -> Result<[JobArg<'a>; 2]> {
        let width = self.width_bytes;
        if ![1, 2, 4, 8].contains(&width) {
            return Err(Error::internal(format!("a kernel cannot read integers of {width} bytes")));
        }
        let bytes = self.len.saturating_mul(width);
        Ok([JobArg::Read(self.buffer, self.at, bytes), JobArg::Value(width as u64)])
    }
}

/// The input values of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The buffer; `None` if there are no values.
    pub buffer: Option<&'a Buffer>,
    /// The byte at which the values begin.
    pub at: usize,
    /// The number of values.
    pub len: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn arg(self, width: usize) -> JobArg<'a> {
        match self.buffer {
            Some(buffer) if self.len > 0 => JobArg::Read(buffer, self.at, self.len.saturating_mul(width)),
            _ => JobArg::NoBytes,
        }
    }
}

/// Values to write at given positions.
#[derive(Clone, Copy, Debug)]
pub struct Patches<'a> {
    /// The position of each value plus `first`, ascending.
    pub indices: Numbers<'a>,
    /// If the values belong to a slice, the number of values that precede the slice in its array;
    /// otherwise 0.
    pub first: u64,
    /// The values to write, one for each index.
    pub values: Source<'a>,
}

fn check_value_width(width: usize) -> Result<()> {
    if [1, 2, 4, 8, 16, 32].contains(&width) {
        return Ok(());
    }
    Err(Error::internal(format!("a kernel cannot copy values of {width} bytes")))
}

impl<'a> Checks<'a> {
    /// Applies `steps` to each value and writes it to its position. The returned cell has the
    /// position, in the list of indices, of the first invalid index. An index is invalid if it is
    /// out of range or not greater than the preceding index. The value of an invalid index is not
    /// written.
    pub fn patch(
        &mut self,
        patches: Patches<'a>,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<usize> {
        let width = words.width_bytes;
        if ![1, 2, 4, 8].contains(&width) || steps.iter().any(|step| !step.applies_to(width)) {
            return Err(Error::internal(format!(
                "the steps {steps:?} do not apply to words of {width} bytes"
            )));
        }
        let [read, index_width] = patches.indices.args()?;
        let target = JobArg::write(to, words.at, words.bytes())?;
        let cell = self.cells(1);
        let args = [
            read,
            index_width,
            JobArg::Value(patches.first),
            patches.values.arg(width),
            target,
            JobArg::Value(width as u64),
            JobArg::Cells(cell, 1),
        ];
        let blocks = blocks(patches.indices.len.saturating_mul(16));
        self.push(&PATCH, blocks, args.into_iter().chain(steps::args(steps)))?;
        Ok(cell)
    }

    /// Writes the value of each code. The returned cell has the first valid code (`validity`:
    /// bitmap and its first bit) that is out of range. For a code that is out of range, zeros are
    /// written.
    pub fn take(
        &mut self,
        codes: Numbers<'a>,
        validity: Option<(&'a Buffer, usize)>,
        values: Source<'a>,
        to: &mut BufferMut,
        at: usize,
        width_bytes: usize,
    ) -> Result<usize> {
        check_value_width(width_bytes)?;
        let [read, code_width] = codes.args()?;
        let [bits, shift] = bits::optional_args(validity, codes.len, codes.buffer);
        let bytes = codes.len.saturating_mul(width_bytes);
        let target = JobArg::write(to, at, bytes)?;
        let cell = self.cells(1);
        let args = [
            read,
            code_width,
            bits,
            shift,
            values.arg(width_bytes),
            target,
            JobArg::Value(width_bytes as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&TAKE, long_blocks(bytes), args)?;
        Ok(cell)
    }

    /// Writes, for each of `len` positions from `first` on, the value of the first run whose end is
    /// greater than the position. The returned cell has the first end that is not greater than the
    /// preceding end (or, without a preceding end, than 0). If the last end is too small, the cell
    /// has the number of ends.
    #[allow(clippy::too_many_arguments)]
    pub fn expand_runs(
        &mut self,
        ends: Numbers<'a>,
        first: u64,
        values: Source<'a>,
        to: &mut BufferMut,
        at: usize,
        len: usize,
        width_bytes: usize,
    ) -> Result<usize> {
        check_value_width(width_bytes)?;
        let [read, end_width] = ends.args()?;
        let bytes = len.saturating_mul(width_bytes);
        let cell = self.cells(1);
        let args = [
            read,
            end_width,
            JobArg::Value(first),
            values.arg(width_bytes),
            JobArg::write(to, at, bytes)?,
            JobArg::Value(width_bytes as u64),
            JobArg::Cells(cell, 1),
        ];
        // Each warp first searches for its first run. With few pieces per warp there are more
        // searches, but warps that run at the same time write to adjacent addresses, which saves
        // more time than the searches cost.
        self.push(&EXPAND_RUNS, warps(len.div_ceil(EXPANDED), 48), args)?;
        Ok(cell)
    }
}
