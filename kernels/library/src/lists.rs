//! Lists that lie anywhere in their elements, put one after the other.

use crate::bits;
use crate::door::Args;
use crate::words::{integers, with_offset_type};

/// More elements than offsets of 31 bits reach to, as lists.cu has it.
const TOO_MANY: u64 = 1 << 31;

/// What the first arguments of a twin say of lists.
struct Told<'a> {
    begins: Vec<i64>,
    rest: Vec<i64>,
    ends: bool,
    validity: &'a [u8],
    first: usize,
    limit: u64,
    shift: u32,
}

impl<'a> Told<'a> {
    fn of(args: &Args<'a>) -> Option<Self> {
        let numbers = |at| integers(args.read(at)?, args.index(at + 1)?, args.value(at + 2)? != 0);
        Some(Self {
            begins: numbers(0)?,
            rest: numbers(3)?,
            ends: args.value(6)? != 0,
            validity: args.read(7)?,
            first: args.index(8)?,
            limit: args.value(9)?.min(i64::MAX as u64),
            shift: u32::try_from(args.value(10)?).ok().filter(|shift| (5..=40).contains(shift))?,
        })
    }

    /// Where each begins and how many elements it has; `None` where they are not within those that there are.
    fn each(&self) -> impl Iterator<Item = Option<(u64, u64)>> {
        self.begins.iter().zip(&self.rest).enumerate().map(|(i, (begin, told))| {
            if !bits::is_set(self.validity, self.first + i) {
                return Some((0, 0));
            }
            let (begin, told) = (u64::try_from(*begin).ok()?, u64::try_from(*told).ok()?);
            let end = if self.ends { told } else { begin + told };
            let size = end.checked_sub(begin).filter(|_| end <= self.limit)?;
            Some((begin, size.min(TOO_MANY)))
        })
    }
}

pub(crate) fn measure(args: Args<'_>) -> Option<()> {
    let told = Told::of(&args)?;
    let sizes = args.write(11)?.as_chunks_mut::<8>().0;
    let each: Vec<_> = told.each().collect();
    let chunks = each.chunks(1 << told.shift).map(|chunk| chunk.iter().flatten().map(|(_, size)| size).sum());
    for (to, sum) in sizes.iter_mut().zip(chunks.chain(std::iter::repeat(0u64))) {
        *to = sum.min(TOO_MANY).to_ne_bytes();
    }
    args.found(12, each.iter().position(Option::is_none))
}

pub(crate) fn place(args: Args<'_>) -> Option<()> {
    let told = Told::of(&args)?;
    let (bases, offsets) = (args.write(11)?.as_chunks::<8>().0, args.write(12)?.as_chunks_mut::<4>().0);
    let Some((first, ends)) = offsets.split_first_mut() else { return Some(()) };
    *first = [0; 4];
    let (mut sum, mut moved) = (0, None);
    for (i, (to, list)) in ends.iter_mut().zip(told.each()).enumerate() {
        if i.is_multiple_of(1 << told.shift) {
            sum = u64::from_ne_bytes(*bases.get(i >> told.shift)?);
        }
        let (begin, size) = list.unwrap_or((0, 0));
        moved = moved.or((size > 0 && begin != sum).then_some(i));
        sum += size;
        *to = (sum as u32).to_ne_bytes();
    }
    args.found(13, moved)
}

pub(crate) fn name(args: Args<'_>) -> Option<()> {
    let begins = integers(args.read(0)?, args.index(1)?, args.value(2)? != 0)?;
    let (offsets, offset_width) = (args.read(3)?, args.index(4)?);
    let (validity, first) = (args.read(5)?, args.index(6)?);
    let (rows, width) = (args.write(7)?, args.index(8)?);
    with_offset_type!(offset_width, T => size_of::<T>())?;
    with_offset_type!(width, T => size_of::<T>())?;
    let offsets = integers(offsets, offset_width, false)?;
    let (Some((_, ends)), Some(last)) = (offsets.split_first(), begins.len().checked_sub(1)) else {
        return Some(());
    };
    let last = last.min(ends.len().checked_sub(1)?);
    for (place, to) in (0i64..).zip(rows.chunks_exact_mut(width)) {
        let list = ends.partition_point(|end| *end <= place).min(last);
        let row = match bits::is_set(validity, first + list) {
            true => begins.get(list)?.wrapping_add(place - offsets.get(list)?),
            false => -1,
        };
        to.copy_from_slice(row.to_le_bytes().get(..width)?);
    }
    Some(())
}
