//! Creates views of contiguous values.

use crossdock_kernels::limits::VIEW_BYTES as BYTES;

use crate::codes::Begins;
use crate::door::Args;
use crate::words::integers;

const MAX_INLINE: usize = 12;

pub(crate) fn by_offsets(args: Args<'_>) -> Option<()> {
    let offsets = integers(args.read(0)?, args.index(1)?, args.value(2)? != 0)?;
    write_views(&args, 3, &offsets, None, |at| u64::try_from(at).ok())
}

pub(crate) fn by_codes(args: Args<'_>) -> Option<()> {
    let begins = Begins::from_args(&args)?;
    let lengths = integers(args.read(9)?, args.index(10)?, args.value(11)? != 0)?;
    write_views(&args, 12, &begins.offsets, Some(&lengths), |at| begins.begin(at))
}

/// Writes the views of a job. The arguments for the views begin at argument `at`. `begin` returns
/// the position of the value at an offset.
fn write_views(
    args: &Args<'_>,
    at: usize,
    offsets: &[i64],
    lengths: Option<&[i64]>,
    begin: impl Fn(i64) -> Option<u64>,
) -> Option<()> {
    let (data, part_shift) = (args.read(at)?, u32::try_from(args.value(at + 1)?).ok()?);
    let (views, ends) = (args.write(at + 2)?.as_chunks_mut::<BYTES>().0, args.write(at + 3)?);
    let (ends, over) = (ends.as_chunks_mut::<8>().0, args.write(at + 4)?.as_chunks_mut::<8>().0);
    if offsets.len() <= views.len() || part_shift > 31 {
        return None;
    }
    if let Some(first) = ends.first_mut() {
        *first = begin(*offsets.first()?).unwrap_or(0).to_ne_bytes();
    }
    let mut first_wrong = None;
    for (i, view) in views.iter_mut().enumerate() {
        let pair = begin(*offsets.get(i)?).zip(begin(*offsets.get(i + 1)?));
        let range = pair.filter(|(begin, end)| {
            let has_expected_length = lengths.is_none_or(|lengths| {
                lengths.get(i).is_some_and(|length| Some(*length as u64) == end.checked_sub(*begin))
            });
            let limit = (1u64 << part_shift).min(i32::MAX as u64);
            begin <= end && *end <= data.len() as u64 && end - begin <= limit && has_expected_length
        });
        *view = [0; BYTES];
        if let Some(to) = ends.get_mut(i + 1) {
            *to = range.map_or(0, |(_, end)| end).to_ne_bytes();
        }
        let Some((begin, end)) = range else {
            first_wrong = first_wrong.or(Some(i));
            continue;
        };
        let value = data.get(begin as usize..end as usize)?;
        let part = begin >> part_shift;
        let (head, tail) = view.split_at_mut(4);
        head.copy_from_slice(&(value.len() as u32).to_le_bytes());
        let n = if value.len() <= MAX_INLINE { value.len() } else { 4 };
        tail.iter_mut().zip(value.get(..n)?).for_each(|(to, byte)| *to = *byte);
        if value.len() > MAX_INLINE {
            let location = part | (begin - (part << part_shift)) << 32;
            tail.last_chunk_mut::<8>()?.copy_from_slice(&location.to_le_bytes());
            if (end - 1) >> part_shift != part
                && let Some(over) = over.get_mut(part as usize)
            {
                *over = u64::from_ne_bytes(*over).min(end).to_ne_bytes();
            }
        }
    }
    args.report_wrong(at + 5, first_wrong)
}
