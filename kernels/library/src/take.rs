//! Takes values by code, expands runs, and applies patches.

use crossdock_kernels::Step;

use crate::bits;
use crate::door::Args;
use crate::steps::{self, Stepped, with_word};
use crate::threads::{self, FirstWrong};
use crate::words::Word;

pub(crate) fn patch(args: Args<'_>) -> Option<()> {
    let (indices, index_width, first) = (args.read(0)?, args.index(1)?, args.value(2)?);
    let (values, to, width) = (args.read(3)?, args.write(4)?, args.index(5)?);
    let steps = steps::from_args(&args, 7)?;
    let first_wrong =
        with_word!(width, T => put::<T>(numbers(indices, index_width)?, first, values, to, &steps));
    args.report_wrong(6, first_wrong?)
}

/// Writes patches. Returns the index of the first wrong patch, if there is one.
pub(crate) fn put<T: Stepped>(
    indices: impl Iterator<Item = u64>,
    first: u64,
    values: &[u8],
    to: &mut [u8],
    steps: &[Step],
) -> Option<Option<usize>> {
    let width = size_of::<T>();
    let (mut first_wrong, mut before) = (None, None);
    for (i, index) in indices.enumerate() {
        let is_not_ascending = before.replace(index).is_some_and(|before| before >= index);
        let at = index.checked_sub(first).and_then(|row| usize::try_from(row).ok()?.checked_mul(width));
        let target = at.and_then(|at| to.get_mut(at..at.checked_add(width)?)).filter(|_| !is_not_ascending);
        match target {
            Some(target) => {
                let value = T::load(values.get(i * width..(i + 1) * width)?)?;
                target.copy_from_slice(value.steps(steps)?.store().as_ref());
            }
            None => first_wrong = first_wrong.or(Some(i)),
        }
    }
    Some(first_wrong)
}

/// Reads unsigned integers. Integers above `i64::MAX` become `i64::MAX`, as in the CUDA kernels.
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

/// Evaluates `$body` with `$n` as the width of values in bytes; `None` for other widths.
macro_rules! with_value_width {
    ($width:expr, $n:ident => $body:expr) => {
        match $width {
            1 => {
                const $n: usize = 1;
                $body
            }
            2 => {
                const $n: usize = 2;
                $body
            }
            4 => {
                const $n: usize = 4;
                $body
            }
            8 => {
                const $n: usize = 8;
                $body
            }
            16 => {
                const $n: usize = 16;
                $body
            }
            32 => {
                const $n: usize = 32;
                $body
            }
            _ => None,
        }
    };
}

pub(crate) fn take(args: Args<'_>) -> Option<()> {
    let (codes, code_width) = (args.read(0)?, args.index(1)?);
    let (validity, first) = (args.read(2)?, args.index(3)?);
    let (values, to, width) = (args.read(4)?, args.write(5)?, args.index(6)?);
    if codes.len().checked_div(code_width)? < to.len().checked_div(width)? {
        return None;
    }
    args.report_wrong(7, take_each((codes, code_width), validity, first, values, to, width)?)
}

/// Takes values. Returns the index of the first wrong code, if there is one. `codes` contains the
/// bytes of all codes, and the width of one code in bytes.
pub(crate) fn take_each(
    codes: (&[u8], usize),
    validity: &[u8],
    first: usize,
    values: &[u8],
    to: &mut [u8],
    width: usize,
) -> Option<Option<usize>> {
    /// Takes the values of one part.
    fn part<T: Word, const N: usize>(
        codes: &[u8],
        values: &[[u8; N]],
        to: &mut [[u8; N]],
        wrong: impl Fn(usize),
    ) {
        /// Adjacent values are copied together if they have this number of adjacent codes.
        const BLOCK: usize = 16;
        let blocks = codes.chunks(BLOCK * size_of::<T>()).zip(to.chunks_mut(BLOCK));
        for (k, (codes, to)) in blocks.enumerate() {
            if let Ok(to) = <&mut [[u8; N]; BLOCK]>::try_from(&mut *to)
                && let Some(first) = adjacent::<T>(codes)
                && let Some(values) = values.get(first..).and_then(|values| values.first_chunk())
            {
                *to = *values;
                continue;
            }
            for (i, (to, code)) in to.iter_mut().zip(T::all(codes)).enumerate() {
                match usize::try_from(code.wide()).ok().and_then(|code| values.get(code)) {
                    Some(value) => *to = *value,
                    None => {
                        *to = [0; N];
                        wrong(k * BLOCK + i);
                    }
                }
            }
        }
    }
    /// The first of the codes if each is greater by 1 than the code before.
    #[inline]
    fn adjacent<T: Word>(codes: &[u8]) -> Option<usize> {
        let all = T::all(codes).map(Word::wide);
        let (first, last, n) = (all.clone().next()?, all.clone().next_back()?, all.len());
        if last.wrapping_sub(first) != n as i64 - 1 {
            return None;
        }
        // The loop has no early exit, so that the compiler can vectorize it.
        let differences = (0..).zip(all).fold(0, |bits, (i, code)| bits | (code.wrapping_sub(first) ^ i));
        if differences == 0 { usize::try_from(first).ok() } else { None }
    }
    let ((codes, code_width), rows, first_wrong) = (codes, threads::part_rows(), FirstWrong::none());
    let note = |row| {
        if bits::is_set(validity, first + row) {
            first_wrong.note(row);
        }
    };
    with_value_width!(width, N => {
        let (values, to) = (values.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        with_word!(code_width, T => {
            let parts = codes.chunks(rows * size_of::<T>()).zip(to.chunks_mut(rows)).enumerate();
            threads::for_each(parts, |(k, (codes, to))| part::<T, N>(codes, values, to, |i| note(k * rows + i)))
        })
    })?;
    Some(first_wrong.get())
}

pub(crate) fn expand(args: Args<'_>) -> Option<()> {
    /// Writes the value of each run up to the end of the run. Positions after the end of the last
    /// run also belong to the last run.
    fn each<const N: usize>(ends: &[u64], first: u64, values: &[u8], to: &mut [u8]) {
        let (values, to) = (values.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        let (runs, all) = (ends.len().min(values.len()), to.len());
        let mut begin = 0;
        for (run, (end, value)) in ends.iter().zip(values).enumerate() {
            let end = usize::try_from(end.saturating_sub(first)).unwrap_or(all).min(all);
            let end = if run + 1 == runs { all } else { end };
            if let Some(targets) = to.get_mut(begin..end) {
                targets.fill(*value);
                begin = end;
            }
        }
    }
    let (ends, end_width, first) = (args.read(0)?, args.index(1)?, args.value(2)?);
    let (values, to, width) = (args.read(3)?, args.write(4)?, args.index(5)?);
    let ends: Vec<u64> = numbers(ends, end_width)?.collect();
    with_value_width!(width, N => {
        each::<N>(&ends, first, values, to);
        Some(())
    })?;
    let before = std::iter::once(&0).chain(&ends);
    let first_wrong = ends.iter().zip(before).position(|(end, before)| end <= before);
    let covered = first + (to.len() / width) as u64;
    let is_short = ends.last().copied().unwrap_or(0) < covered;
    args.report_wrong(6, first_wrong.or(is_short.then_some(ends.len())))
}
