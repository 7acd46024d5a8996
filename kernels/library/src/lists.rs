//! Gathers lists that may begin anywhere in the array of elements, in any order.

use crossdock_kernels::IntType;

use crate::bits;
use crate::door::Args;
use crate::words::{integers, with_offset_type};

/// The smallest number of elements that signed 32-bit offsets cannot address. Equal to the constant
/// in `lists.cu`.
const TOO_MANY: u64 = 1 << 31;

/// The arguments that describe lists.
struct ListArgs<'a> {
    begins: IntegerBytes<'a>,
    ends_or_sizes: IntegerBytes<'a>,
    has_ends: bool,
    validity: &'a [u8],
    first: usize,
    limit: u64,
    shift: u32,
}

/// Integers with their type.
struct IntegerBytes<'a>(&'a [u8], IntType);

impl<'a> IntegerBytes<'a> {
    /// Reads the integers in chunks that fit into the processor's caches.
    fn chunks(&self) -> impl Iterator<Item = Option<Vec<i64>>> + 'a {
        const CHUNK: usize = 256;
        let IntType { width_bytes, signed } = self.1;
        let chunks = self.0.chunks(CHUNK.saturating_mul(width_bytes).max(1));
        chunks.map(move |chunk| integers(chunk, width_bytes, signed))
    }
}

impl<'a> ListArgs<'a> {
    fn from_args(args: &Args<'a>) -> Option<Self> {
        let integers = |at| {
            let of = IntType { width_bytes: args.index(at + 1)?, signed: args.value(at + 2)? != 0 };
            Some(IntegerBytes(args.read(at)?, of))
        };
        Some(Self {
            begins: integers(0)?,
            ends_or_sizes: integers(3)?,
            has_ends: args.value(6)? != 0,
            validity: args.read(7)?,
            first: args.index(8)?,
            limit: args.value(9)?.min(i64::MAX as u64),
            shift: u32::try_from(args.value(10)?).ok().filter(|shift| (5..=40).contains(shift))?,
        })
    }

    /// Calls `visit` for each list. The first argument is the index of the list. The second
    /// argument has the list's begin and number of elements; `None` if the list is out of range.
    fn for_each(&self, mut visit: impl FnMut(usize, Option<(u64, u64)>) -> Option<()>) -> Option<()> {
        let mut i = 0;
        for (begins, rest) in self.begins.chunks().zip(self.ends_or_sizes.chunks()) {
            for (begin, end_or_size) in begins?.into_iter().zip(rest?) {
                visit(i, self.list(i, begin, end_or_size))?;
                i += 1;
            }
        }
        Some(())
    }

    #[inline]
    fn list(&self, i: usize, begin: i64, end_or_size: i64) -> Option<(u64, u64)> {
        if !bits::is_set(self.validity, self.first + i) {
            return Some((0, 0));
        }
        let (begin, end_or_size) = (u64::try_from(begin).ok()?, u64::try_from(end_or_size).ok()?);
        let end = if self.has_ends { end_or_size } else { begin + end_or_size };
        let size = end.checked_sub(begin).filter(|_| end <= self.limit)?;
        Some((begin, size.min(TOO_MANY)))
    }
}

pub(crate) fn measure(args: Args<'_>) -> Option<()> {
    let lists = ListArgs::from_args(&args)?;
    let sizes = args.write(11)?.as_chunks_mut::<8>().0;
    sizes.fill([0; 8]);
    let mut wrong = None;
    lists.for_each(|i, list| {
        let Some((_, size)) = list else {
            wrong = wrong.or(Some(i));
            return Some(());
        };
        let sum = sizes.get_mut(i >> lists.shift)?;
        *sum = (u64::from_ne_bytes(*sum) + size).min(TOO_MANY).to_ne_bytes();
        Some(())
    })?;
    args.report_wrong(12, wrong)
}

pub(crate) fn place(args: Args<'_>) -> Option<()> {
    let lists = ListArgs::from_args(&args)?;
    let (bases, offsets) = (args.write(11)?.as_chunks::<8>().0, args.write(12)?.as_chunks_mut::<4>().0);
    let Some((first, ends)) = offsets.split_first_mut() else { return Some(()) };
    *first = [0; 4];
    let (mut sum, mut moved) = (0, None);
    lists.for_each(|i, list| {
        let Some(to) = ends.get_mut(i) else { return Some(()) };
        if i.is_multiple_of(1 << lists.shift) {
            sum = u64::from_ne_bytes(*bases.get(i >> lists.shift)?);
        }
        let (begin, size) = list.unwrap_or((0, 0));
        moved = moved.or((size > 0 && begin != sum).then_some(i));
        sum += size;
        *to = (sum as u32).to_ne_bytes();
        Some(())
    })?;
    args.report_wrong(13, moved)
}

pub(crate) fn name(args: Args<'_>) -> Option<()> {
    let begins = integers(args.read(0)?, args.index(1)?, args.value(2)? != 0)?;
    let (offsets, offset_width) = (args.read(3)?, args.index(4)?);
    let (validity, first) = (args.read(5)?, args.index(6)?);
    let (rows, width) = (args.write(7)?, args.index(8)?);
    with_offset_type!(offset_width, T => size_of::<T>())?;
    let offsets = integers(offsets, offset_width, false)?;
    let is_valid = |list| bits::is_set(validity, first + list);
    with_offset_type!(width, T => write_rows::<{ size_of::<T>() }>(&begins, &offsets, is_valid, rows))
}

pub(crate) fn gather_bytes(args: Args<'_>) -> Option<()> {
    let begins = integers(args.read(0)?, args.index(1)?, args.value(2)? != 0)?;
    let (offsets, offset_width) = (args.read(3)?, args.index(4)?);
    let (validity, first) = (args.read(5)?, args.index(6)?);
    let (data, to) = (args.read(7)?, args.write(8)?);
    with_offset_type!(offset_width, T => size_of::<T>())?;
    let offsets = integers(offsets, offset_width, false)?;
    let (lists, all) = (begins.len().min(offsets.len().saturating_sub(1)), to.len());
    let mut next = 0;
    for (i, ((begin, offset), end)) in begins.iter().zip(&offsets).zip(offsets.iter().skip(1)).enumerate() {
        // The bytes after the end of the last list also belong to the last list.
        let end = if i + 1 == lists { all } else { usize::try_from(*end).unwrap_or(0).min(all) };
        let Some(targets) = to.get_mut(next..end) else { continue };
        let skipped = begin.wrapping_sub(*offset).wrapping_add(next as i64);
        let at = usize::try_from(skipped).ok().filter(|_| bits::is_set(validity, first + i));
        let from = at.and_then(|at| data.get(at..)).unwrap_or(&[]);
        let (copied, rest) = targets.split_at_mut(from.len().min(targets.len()));
        copied.copy_from_slice(from.get(..copied.len()).unwrap_or(&[]));
        rest.fill(0);
        next = end;
    }
    Some(())
}

/// Writes, for each position, the row of the element at this position. Positions after the end of
/// the last list also belong to the last list.
fn write_rows<const N: usize>(
    begins: &[i64],
    offsets: &[i64],
    is_valid: impl Fn(usize) -> bool,
    rows: &mut [u8],
) {
    let rows = rows.as_chunks_mut::<N>().0;
    let (lists, all) = (begins.len().min(offsets.len().saturating_sub(1)), rows.len());
    let mut next = 0;
    for (list, ((begin, offset), end)) in begins.iter().zip(offsets).zip(offsets.iter().skip(1)).enumerate() {
        let end = usize::try_from(*end).unwrap_or(0).min(all);
        let end = if list + 1 == lists { all } else { end };
        let Some(targets) = rows.get_mut(next..end) else { continue };
        let difference = is_valid(list).then(|| begin.wrapping_sub(*offset));
        for (position, to) in (next as i64..).zip(targets) {
            let row = difference.map_or(-1, |difference| difference.wrapping_add(position));
            if let Some(low) = row.to_le_bytes().first_chunk() {
                *to = *low;
            }
        }
        next = end;
    }
}
