//! Values by their numbers, values that are repeated, and values put in their places.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks, long_blocks, warps};
use crate::rows::{EXPAND_RUNS, PATCH, TAKE};
use crate::steps::{self, Step};
use crate::{Checks, Words, bits};

/// Values that a warp expands at a time, as runs.cu has it.
const EXPANDED: usize = 1024;

/// Whole numbers without a sign in a buffer, of 1, 2, 4 or 8 bytes, from byte `at` on.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// Where they are.
    pub buffer: &'a Buffer,
    /// The byte at which they begin.
    pub at: usize,
    /// How many.
    pub len: usize,
    /// Of how many bytes each.
    pub width_bytes: usize,
}

impl<'a> Numbers<'a> {
    pub(crate) fn args(self) -> Result<[JobArg<'a>; 2]> {
        let width = self.width_bytes;
        if ![1, 2, 4, 8].contains(&width) {
            return Err(Error::internal(format!("a kernel was asked for numbers of {width} bytes")));
        }
        let bytes = self.len.saturating_mul(width);
        Ok([JobArg::Read(self.buffer, self.at, bytes), JobArg::Value(width as u64)])
    }
}

/// Values that there are: a buffer, the byte at which they begin, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where they are; `None` where there are none.
    pub buffer: Option<&'a Buffer>,
    /// The byte at which they begin.
    pub at: usize,
    /// How many.
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

/// Values, and the places that their indices less `first` name.
#[derive(Clone, Copy, Debug)]
pub struct Patches<'a> {
    /// A place each; they rise.
    pub indices: Numbers<'a>,
    /// What was cut off the front of the array.
    pub first: u64,
    /// One for each index.
    pub values: Source<'a>,
}

fn check_value_width(width: usize) -> Result<()> {
    if [1, 2, 4, 8, 16, 32].contains(&width) {
        return Ok(());
    }
    Err(Error::internal(format!("a kernel was asked for values of {width} bytes")))
}

impl<'a> Checks<'a> {
    /// Puts each value, through `steps`, in its place. The cell says which index was the
    /// first that does not rise or names no place; its value is put nowhere.
    pub fn patch(
        &mut self,
        patches: Patches<'a>,
        to: &mut BufferMut,
        words: Words,
        steps: &[Step],
    ) -> Result<usize> {
        let width = words.width_bytes;
        if ![1, 2, 4, 8].contains(&width) || steps.iter().any(|step| !step.takes(width)) {
            return Err(Error::internal(format!("words of {width} bytes have no such steps: {steps:?}")));
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

    /// Writes for each code the value that it numbers. The cell says which was the first that is not null (`validity`:
    /// bitmap and its first bit) and numbers none; for those, zeros are written.
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

    /// Writes for each of `len` places, from place `first` on, the value of the run that it is in: the first whose end is
    /// above it. The cell says which end was the first that does not rise above the one before, or 0; it is as many as
    /// there are if the last does not reach the last place.
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
        // Each warp searches for its first run, which costs less than that warps far apart write at the same time: with few
        // pieces each, those that run together are next to each other.
        self.push(&EXPAND_RUNS, warps(len.div_ceil(EXPANDED), 48), args)?;
        Ok(cell)
    }
}
