//! Checks, converts and rebases offsets of lists and variable-length values.

use crate::door::Args;
use crate::words::{Word, with_offset_type};

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    let (bytes, width, limit) = (args.read(0)?, args.index(1)?, args.value(2)?);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    args.report_wrong(3, with_offset_type!(width, T => find_wrong::<T>(bytes, limit))?)
}

fn find_wrong<T: Word>(bytes: &[u8], limit: i64) -> Option<usize> {
    let all = T::all(bytes);
    let (Some(first), Some(last)) = (all.clone().next(), all.clone().next_back()) else { return None };
    // The loop has no early exit, so that the compiler can vectorize it.
    let after = T::all(bytes.get(size_of::<T>()..).unwrap_or(&[]));
    let descends = all.clone().zip(after).fold(false, |bad, (a, b)| bad | (b < a));
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

pub(crate) fn rebase(args: Args<'_>) -> Option<()> {
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

pub(crate) fn convert(args: Args<'_>) -> Option<()> {
    let (from, width, base) = (args.read(0)?, args.index(1)?, args.value(2)? as i64);
    let (to, to_width) = (args.write(3)?, args.index(4)?);
    args.report_wrong(
        5,
        with_offset_type!(width, T => convert_to(T::all(from).map(Word::wide), base, to, to_width))??,
    )
}

/// Writes the offsets. Returns `None` for an unsupported width. Otherwise the result contains the
/// index of the first offset that does not fit into this width.
fn convert_to(
    from: impl Iterator<Item = i64>,
    base: i64,
    to: &mut [u8],
    width: usize,
) -> Option<Option<usize>> {
    let from = from.map(|offset| offset.wrapping_sub(base));
    match width {
        4 => {
            let mut first_wrong = None;
            for (i, (to, offset)) in to.as_chunks_mut::<4>().0.iter_mut().zip(from).enumerate() {
                *to = (offset as i32).to_ne_bytes();
                first_wrong = first_wrong.or(i32::try_from(offset).is_err().then_some(i));
            }
            Some(first_wrong)
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
