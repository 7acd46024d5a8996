//! Offsets of lists and of variable-length values: checked, and rebased after a move of a part.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, Jobs, blocks, long_blocks};
use crate::table::kernel;
use crate::words::{Word, check_offset_width, with_offset_type};

kernel!(
    CHECK_OFFSETS,
    c"crossdock_check_offsets",
    (offsets: Read, width: Value, limit: Value, cell: Write),
    check
);
kernel!(
    CONVERT_OFFSETS,
    c"crossdock_convert_offsets",
    (from: Read, width: Value, base: Value, to: Write, to_width: Value, cell: Write),
    convert
);
kernel!(REBASE_OFFSETS, c"crossdock_rebase_offsets", (offsets: Write, width: Value, base: Value), rebase);

/// The `len + 1` offsets from entry `first` on, `width` bytes each.
#[derive(Clone, Copy)]
pub struct Offsets<'a> {
    /// Where they lie.
    pub buffer: &'a Buffer,
    /// 4 or 8.
    pub width_bytes: usize,
    /// The entry of the first value.
    pub first: usize,
    /// How many values.
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
    /// Finds the first entry, counted from `first`, that is negative, below the one before it, or above `limit`.
    pub fn offsets(&mut self, offsets: Offsets<'a>, limit: u64) -> Result<usize> {
        check_offset_width(offsets.width_bytes)?;
        let cell = self.cells(1);
        let width = JobArg::Value(offsets.width_bytes as u64);
        let args = [offsets.arg(), width, JobArg::Value(limit), JobArg::Cells(cell, 1)];
        self.push(&CHECK_OFFSETS, long_blocks(offsets.bytes()), args)?;
        Ok(cell)
    }

    /// Writes offsets less `base`, as numbers of `to_width_bytes` (4 or 8), to byte `at` of a buffer that is being filled.
    /// The cell says which was the first that the width does not hold.
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

fn check(args: Args<'_>) -> Option<()> {
    let (bytes, width, limit) = (args.read(0)?, args.index(1)?, args.value(2)?);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    args.found(3, with_offset_type!(width, T => first_wrong::<T>(bytes, limit))?)
}

fn first_wrong<T: Word>(bytes: &[u8], limit: i64) -> Option<usize> {
    let all = T::all(bytes);
    let (Some(first), Some(last)) = (all.clone().next(), all.clone().next_back()) else { return None };
    // Without an early end, so that the compiler takes many at once.
    let descends = all.clone().zip(all.clone().skip(1)).fold(false, |bad, (a, b)| bad | (b < a));
    if !descends && first.wide() >= 0 && last.wide() <= limit {
        return None;
    }
    let mut before = 0;
    for (i, offset) in all.enumerate() {
        let offset = offset.wide();
        if offset < before || offset > limit {
            return Some(i);
        }
        before = offset;
    }
    None
}

impl Jobs<'_> {
    /// Takes `base` off the `n` offsets at byte `at` of a buffer that is being filled.
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

fn rebase(args: Args<'_>) -> Option<()> {
    let (bytes, width, base) = (args.write(0)?, args.index(1)?, args.value(2)?);
    match width {
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|word| {
            *word = i32::from_ne_bytes(*word).wrapping_sub(base as i32).to_ne_bytes();
        }),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| {
            *word = i64::from_ne_bytes(*word).wrapping_sub(base as i64).to_ne_bytes();
        }),
        _ => return None,
    }
    Some(())
}

fn convert(args: Args<'_>) -> Option<()> {
    let (from, width, base) = (args.read(0)?, args.index(1)?, args.value(2)? as i64);
    let (to, to_width) = (args.write(3)?, args.index(4)?);
    args.found(
        5,
        with_offset_type!(width, T => convert_to(T::all(from).map(Word::wide), base, to, to_width))??,
    )
}

/// `None` for a width that there is not; else where a number was too great for it.
fn convert_to(
    from: impl Iterator<Item = i64>,
    base: i64,
    to: &mut [u8],
    width: usize,
) -> Option<Option<usize>> {
    let from = from.map(|offset| offset.wrapping_sub(base));
    match width {
        4 => {
            let mut found = None;
            for (i, (to, offset)) in to.as_chunks_mut::<4>().0.iter_mut().zip(from).enumerate() {
                *to = (offset as i32).to_ne_bytes();
                found = found.or(i32::try_from(offset).is_err().then_some(i));
            }
            Some(found)
        }
        8 => {
            to.as_chunks_mut::<8>()
                .0
                .iter_mut()
                .zip(from)
                .for_each(|(to, offset)| *to = offset.to_ne_bytes());
            Some(None)
        }
        _ => None,
    }
}
