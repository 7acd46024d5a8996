//! Values by their numbers, values that are repeated, and values put in their places.

use crossdock_kernels::Step;

use crate::bits;
use crate::door::Args;
use crate::steps::{self, Stepped, with_word};

pub(crate) fn patch(args: Args<'_>) -> Option<()> {
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

pub(crate) fn take(args: Args<'_>) -> Option<()> {
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

pub(crate) fn expand(args: Args<'_>) -> Option<()> {
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
