//! Values by their numbers, values that are repeated, and values put in their places.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::door::Args;
use crate::jobs::{JobArg, blocks, long_blocks, warps};
use crate::steps::{self, Step, Stepped, with_word};
use crate::table::kernel;
use crate::{Checks, Words, bits};

kernel!(
    PATCH,
    c"crossdock_patch",
    (indices: Read, index_width: Value, first: Value, values: Read, to: Write, width: Value, cell: Write),
    [step: Value, operand: Value],
    patch
);
kernel!(
    TAKE,
    c"crossdock_take",
    (
        codes: Read, code_width: Value, validity: Read, first_bit: Value, values: Read, to: Write, width: Value,
        cell: Write
    ),
    take
);
kernel!(
    EXPAND_RUNS,
    c"crossdock_expand_runs",
    (ends: Read, end_width: Value, first: Value, values: Read, to: Write, width: Value, cell: Write),
    expand
);

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

fn patch(args: Args<'_>) -> Option<()> {
    let (indices, index_width, first) = (args.read(0)?, args.index(1)?, args.value(2)?);
    let (values, to, width) = (args.read(3)?, args.write(4)?, args.index(5)?);
    let steps = steps::of(&args, 7)?;
    let found = with_word!(width, T => put::<T>(numbers(indices, index_width)?, first, values, to, &steps));
    args.found(6, found?)
}

/// The number of the first that is wrong, if any is.
pub(crate) fn put<T: Stepped>(
    indices: impl Iterator<Item = u64>,
    first: u64,
    values: &[u8],
    to: &mut [u8],
    steps: &[Step],
) -> Option<Option<usize>> {
    let width = size_of::<T>();
    let (mut found, mut before) = (None, None);
    for (i, index) in indices.enumerate() {
        let falls = before.replace(index).is_some_and(|before| before >= index);
        let at = index.checked_sub(first).and_then(|place| usize::try_from(place).ok()?.checked_mul(width));
        let place = at.and_then(|at| to.get_mut(at..at.checked_add(width)?)).filter(|_| !falls);
        match place {
            Some(place) => {
                let value = T::load(values.get(i * width..(i + 1) * width)?)?;
                place.copy_from_slice(value.steps(steps)?.store().as_ref());
            }
            None => found = found.or(Some(i)),
        }
    }
    Some(found)
}

/// Numbers without a sign, none of which is above the greatest `i64`, as on a device.
pub(crate) fn numbers(bytes: &[u8], width: usize) -> Option<impl Iterator<Item = u64> + '_> {
    if ![1, 2, 4, 8].contains(&width) {
        return None;
    }
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word).min(i64::MAX as u64)
    };
    Some(bytes.chunks_exact(width).map(number))
}

fn take(args: Args<'_>) -> Option<()> {
    let (codes, code_width) = (args.read(0)?, args.index(1)?);
    let (validity, first) = (args.read(2)?, args.index(3)?);
    let (values, to, width) = (args.read(4)?, args.write(5)?, args.index(6)?);
    if codes.len().checked_div(code_width)? < to.len().checked_div(width)? {
        return None;
    }
    args.found(7, take_each(numbers(codes, code_width)?, validity, first, values, to, width)?)
}

/// The number of the first code that is wrong, if any is.
pub(crate) fn take_each(
    codes: impl Iterator<Item = u64>,
    validity: &[u8],
    first: usize,
    values: &[u8],
    to: &mut [u8],
    width: usize,
) -> Option<Option<usize>> {
    if ![1, 2, 4, 8, 16, 32].contains(&width) {
        return None;
    }
    let mut found = None;
    for (i, (to, code)) in to.chunks_exact_mut(width).zip(codes).enumerate() {
        let at = usize::try_from(code).ok().and_then(|code| code.checked_mul(width));
        match at.and_then(|at| values.get(at..at.checked_add(width)?)) {
            Some(value) => to.copy_from_slice(value),
            None => {
                to.fill(0);
                found = found.or(bits::is_set(validity, first + i).then_some(i));
            }
        }
    }
    Some(found)
}

fn expand(args: Args<'_>) -> Option<()> {
    let (ends, end_width, first) = (args.read(0)?, args.index(1)?, args.value(2)?);
    let (values, to, width) = (args.read(3)?, args.write(4)?, args.index(5)?);
    if ![1, 2, 4, 8, 16, 32].contains(&width) {
        return None;
    }
    let ends: Vec<u64> = numbers(ends, end_width)?.collect();
    if let Some(last) = ends.len().min(values.len() / width).checked_sub(1) {
        for (place, to) in (first..).zip(to.chunks_exact_mut(width)) {
            let run = ends.partition_point(|end| *end <= place).min(last);
            to.copy_from_slice(values.get(run * width..(run + 1) * width)?);
        }
    }
    let before = std::iter::once(&0).chain(&ends);
    let falls = ends.iter().zip(before).position(|(end, before)| end <= before);
    let covered = first + (to.len() / width) as u64;
    let short = ends.last().copied().unwrap_or(0) < covered;
    args.found(6, falls.or(short.then_some(ends.len())))
}
