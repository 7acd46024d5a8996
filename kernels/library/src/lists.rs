//! Gathers lists that may begin anywhere in the array of elements, in any order.

use std::ops::Range;

use crossdock_kernels::IntType;

use crate::bits;
use crate::door::Args;
use crate::threads::{self, FirstWrong};
use crate::words::{integers, read_integers, with_offset_type};

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

/// The number of integers that are read at once.
const CHUNK: usize = 256;

/// Memory for integers that were read. Setting it to 0 for each chunk would be slow.
type Scratch = [[i64; CHUNK]; 2];

impl IntegerBytes<'_> {
    fn len(&self) -> usize {
        self.0.len().checked_div(self.1.width_bytes).unwrap_or(0)
    }

    /// Reads the integers from `first` on.
    fn read(&self, first: usize, to: &mut [i64]) -> Option<()> {
        let IntType { width_bytes, signed } = self.1;
        read_integers(self.0.get(first.checked_mul(width_bytes)?..)?, width_bytes, signed, to)
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

    /// Calls `visit` for the lists `rows`, at most [`CHUNK`] of them at a time. Its arguments are
    /// the index of the first list, the begins, and the numbers of elements. Calls `wrong` for each
    /// list that is out of range, which has no elements.
    fn for_each(
        &self,
        rows: Range<usize>,
        scratch: &mut Scratch,
        wrong: impl Fn(usize),
        mut visit: impl FnMut(usize, &[i64], &[i64]),
    ) -> Option<()> {
        let [begins, sizes] = scratch;
        let end = rows.end.min(self.begins.len()).min(self.ends_or_sizes.len());
        for first in (rows.start..end).step_by(CHUNK) {
            let n = CHUNK.min(end - first);
            let (begins, sizes) = (begins.get_mut(..n)?, sizes.get_mut(..n)?);
            self.begins.read(first, begins)?;
            self.ends_or_sizes.read(first, sizes)?;
            let is_simple = self.are_simple(begins, sizes);
            for (i, (begin, size)) in (first..).zip(begins.iter_mut().zip(sizes.iter_mut())) {
                if is_simple {
                    *size -= *begin;
                } else {
                    let list = self.list(i, *begin, *size);
                    list.is_none().then(|| wrong(i));
                    let (from, n) = list.unwrap_or((0, 0));
                    (*begin, *size) = (from as i64, n as i64);
                }
            }
            visit(first, begins, sizes);
        }
        Some(())
    }

    /// Whether no list is null, and all are within the elements. `false` if this is not known.
    fn are_simple(&self, begins: &[i64], ends: &[i64]) -> bool {
        if !self.has_ends || !self.validity.is_empty() || self.limit >= TOO_MANY {
            return false;
        }
        // The sign is negative if one of the numbers is negative. The loop has no early exit, so
        // that the compiler can vectorize it.
        let signs = begins.iter().zip(ends).fold(0, |signs, (begin, end)| {
            signs | begin | end | end.wrapping_sub(*begin) | (self.limit as i64).wrapping_sub(*end)
        });
        signs >= 0
    }

    /// The number of chunks that a thread processes at a time.
    fn chunks_per_part(&self) -> usize {
        (threads::part_rows() >> self.shift).max(1)
    }

    /// The lists of chunk `i`.
    fn chunk(&self, i: usize) -> Range<usize> {
        let size = 1 << self.shift;
        i.saturating_mul(size)..i.saturating_add(1).saturating_mul(size)
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
    let (lists, sizes, wrong) =
        (ListArgs::from_args(&args)?, args.write(11)?.as_chunks_mut::<8>().0, FirstWrong::none());
    let step = lists.chunks_per_part();
    threads::for_each(sizes.chunks_mut(step).enumerate(), |(part, sizes)| {
        let mut scratch = [[0; CHUNK]; 2];
        for (i, to) in sizes.iter_mut().enumerate() {
            let mut sum = 0;
            lists.for_each(
                lists.chunk(part * step + i),
                &mut scratch,
                |i| wrong.note(i),
                |_, _, sizes| sum = (sum + sizes.iter().sum::<i64>() as u64).min(TOO_MANY),
            );
            *to = sum.to_ne_bytes();
        }
    })?;
    args.report_wrong(12, wrong.get())
}

pub(crate) fn place(args: Args<'_>) -> Option<()> {
    let (lists, bases, moved) =
        (ListArgs::from_args(&args)?, args.write(11)?.as_chunks::<8>().0, FirstWrong::none());
    let Some((first, ends)) = args.write(12)?.as_chunks_mut::<4>().0.split_first_mut() else {
        return Some(());
    };
    *first = [0; 4];
    let step = lists.chunks_per_part();
    let parts = bases.chunks(step).zip(ends.chunks_mut(step << lists.shift)).enumerate();
    threads::for_each(parts, |(part, (bases, ends))| {
        let mut scratch = [[0; CHUNK]; 2];
        for (i, (base, ends)) in bases.iter().zip(ends.chunks_mut(1 << lists.shift)).enumerate() {
            let (mut sum, mut ends, mut first_moved) = (i64::from_ne_bytes(*base), ends, None);
            let chunk = lists.chunk(part * step + i);
            lists.for_each(
                chunk,
                &mut scratch,
                |_| (),
                |first, begins, sizes| {
                    let all = std::mem::take(&mut ends);
                    let (to, rest) = all.split_at_mut(sizes.len().min(all.len()));
                    let (end, moved) = place_some(sum, begins, sizes, to);
                    (sum, ends) = (end, rest);
                    first_moved = first_moved.or(moved.map(|i| first + i));
                },
            );
            first_moved.into_iter().for_each(|i| moved.note(i));
        }
    })?;
    args.report_wrong(13, moved.get())
}

/// Writes the ends of lists that are gathered from position `sum` on. Returns the last end, and the
/// first list that moves.
fn place_some(mut sum: i64, begins: &[i64], sizes: &[i64], to: &mut [[u8; 4]]) -> (i64, Option<usize>) {
    let mut moved = None;
    for (i, ((begin, size), to)) in begins.iter().zip(sizes).zip(to).enumerate() {
        if moved.is_none() && *size > 0 && *begin != sum {
            moved = Some(i);
        }
        sum += size;
        *to = (sum as u32).to_ne_bytes();
    }
    (sum, moved)
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

/// Lists of bytes, and the offsets at which they are gathered.
struct ByteLists<'a> {
    begins: IntegerBytes<'a>,
    offsets: IntegerBytes<'a>,
    validity: &'a [u8],
    first: usize,
    data: &'a [u8],
}

/// The gathered bytes of some lists.
struct Gathered<'a> {
    lists: Range<usize>,
    /// The position of the first byte among those of all lists.
    at: usize,
    to: &'a mut [u8],
}

pub(crate) fn gather_bytes(args: Args<'_>) -> Option<()> {
    let of = |width: usize, signed| Some(IntType { width_bytes: args.index(width)?, signed });
    let lists = ByteLists {
        begins: IntegerBytes(args.read(0)?, of(1, args.value(2)? != 0)?),
        offsets: IntegerBytes(args.read(3)?, of(4, false)?),
        validity: args.read(5)?,
        first: args.index(6)?,
        data: args.read(7)?,
    };
    with_offset_type!(lists.offsets.1.width_bytes, T => size_of::<T>())?;
    threads::for_each(lists.parts(args.write(8)?)?.into_iter(), |part| lists.gather(part).unwrap_or_default())
}

impl ByteLists<'_> {
    /// Splits the lists and their bytes into parts. The bytes after the end of the last list also
    /// belong to the last list.
    fn parts<'b>(&self, mut to: &'b mut [u8]) -> Option<Vec<Gathered<'b>>> {
        /// The size of a part whose lists are long, in bytes per row.
        const ROW_BYTES: usize = 32;
        let (n, all) = (self.begins.len().min(self.offsets.len().saturating_sub(1)), to.len());
        let mut rows = threads::part_rows();
        rows = rows.min(n.saturating_mul(rows * ROW_BYTES) / all.max(1)).max(1);
        let (mut parts, mut at) = (Vec::new(), 0);
        for first in (0..n).step_by(rows) {
            let lists = first..n.min(first + rows);
            let mut end = [all as i64];
            if lists.end < n {
                self.offsets.read(lists.end, &mut end)?;
            }
            let bytes = usize::try_from(end[0]).unwrap_or(0).clamp(at, all) - at;
            let (part, rest) = to.split_at_mut(bytes);
            parts.push(Gathered { lists, at, to: part });
            (to, at) = (rest, at + bytes);
        }
        Some(parts)
    }

    fn gather(&self, part: Gathered<'_>) -> Option<()> {
        /// Adjacent lists are copied together if there are this many.
        const BLOCK: usize = 16;
        let Gathered { lists, at, to } = part;
        let (mut begins, mut offsets, mut next) = ([0; CHUNK], [0; CHUNK + 1], 0);
        for first in lists.clone().step_by(CHUNK) {
            let n = CHUNK.min(lists.end - first);
            self.begins.read(first, &mut begins)?;
            self.offsets.read(first, &mut offsets)?;
            if first + n == lists.end {
                *offsets.get_mut(n)? = (at + to.len()) as i64;
            }
            let blocks = begins.get(..n)?.chunks(BLOCK).zip(offsets.get(1..=n)?.chunks(BLOCK));
            for (k, (begins, ends)) in blocks.enumerate() {
                let block = first + k * BLOCK;
                // The distance between the source and the target of each list.
                let starts = offsets.get(k * BLOCK..)?;
                let distance = |(begin, start): (&i64, &i64)| begin.wrapping_sub(*start);
                let mut distances = begins.iter().zip(starts).map(distance);
                let common = distances.next()?;
                let is_same =
                    self.validity.is_empty() && distances.fold(true, |same, each| same & (each == common));
                let mut copy = |i: usize, distance: i64, end: i64| {
                    let end = usize::try_from(end).unwrap_or(0).saturating_sub(at).min(to.len());
                    let from = usize::try_from(distance.wrapping_add((at + next) as i64)).ok();
                    if next < end {
                        let is_valid = bits::is_set(self.validity, self.first + i);
                        copy(self.data, from.filter(|_| is_valid), to, next..end);
                        next = end;
                    }
                };
                if is_same {
                    copy(block, common, *ends.last()?);
                } else {
                    for (i, ((begin, start), end)) in (block..).zip(begins.iter().zip(starts).zip(ends)) {
                        copy(i, begin.wrapping_sub(*start), *end);
                    }
                }
            }
        }
        Some(())
    }
}

/// Copies bytes from `from` on to a range of `to`. Bytes that do not exist are 0. May also write to
/// the bytes after the range.
#[inline]
fn copy(data: &[u8], from: Option<usize>, to: &mut [u8], range: Range<usize>) {
    /// Copies of a constant size are much faster than others.
    const SHORT: usize = 32;
    let data = from.and_then(|from| data.get(from..)).unwrap_or(&[]);
    if range.len() <= SHORT
        && let Some(from) = data.first_chunk::<SHORT>()
        && let Some(to) = to.get_mut(range.start..).and_then(<[u8]>::first_chunk_mut)
    {
        *to = *from;
        return;
    }
    let Some(targets) = to.get_mut(range) else { return };
    let (copied, rest) = targets.split_at_mut(data.len().min(targets.len()));
    copied.copy_from_slice(data.get(..copied.len()).unwrap_or(&[]));
    rest.fill(0);
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
