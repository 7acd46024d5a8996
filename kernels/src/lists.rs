//! Lists that lie anywhere in their elements, put one after the other.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::codes::ADD_SIZES;
use crate::door::Args;
use crate::jobs::{JobArg, warps_of};
use crate::table::kernel;
use crate::words::{check_offset_width, integers, with_offset_type};
use crate::{Checks, Integers, bits};

kernel!(
    MEASURE_LISTS,
    c"crossdock_measure_lists",
    (
        begins: Read, begin_width: Value, begin_signed: Value, rest: Read, rest_width: Value, rest_signed: Value,
        ends: Value, validity: Read, first: Value, limit: Value, shift: Value, sizes: Write, cell: Write
    ),
    measure
);
kernel!(
    PLACE_LISTS,
    c"crossdock_place_lists",
    (
        begins: Read, begin_width: Value, begin_signed: Value, rest: Read, rest_width: Value, rest_signed: Value,
        ends: Value, validity: Read, first: Value, limit: Value, shift: Value, bases: Write, offsets: Write, cell: Write
    ),
    place
);
kernel!(
    NAME_ELEMENTS,
    c"crossdock_name_elements",
    (
        begins: Read, begin_width: Value, begin_signed: Value, offsets: Read, offset_width: Value, validity: Read,
        first: Value, rows: Write, row_width: Value
    ),
    name
);

/// More elements than offsets of 31 bits reach to, as lists.cu has it.
const TOO_MANY: u64 = 1 << 31;

/// Elements that a warp names at a time, as lists.cu has it.
const ELEMENTS_EACH: usize = 1024;

/// Lists of the smallest chunk.
const LEAST_SHIFT: u32 = 8;

/// Most chunks, for one block to add up.
const MOST_CHUNKS: usize = 1 << 14;

/// Lists, each of which lies somewhere in elements that all of them share.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// Where each begins.
    pub begins: Integers<'a>,
    /// As many: where each ends, or how many elements it has.
    pub rest: Integers<'a>,
    /// Which of the two it is.
    pub ends: bool,
    /// A bitmap and its first bit. A list that is null has no elements, whatever is said of it.
    pub validity: Option<(&'a Buffer, usize)>,
    /// How many elements there are.
    pub elements: usize,
}

/// The cells of [`Checks::place_lists`].
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The first list that is not within the elements.
    pub wrong: usize,
    /// How many elements all lists have, as a [number](crate::Findings::number); of more than an `i32` counts, some number
    /// that it does not hold.
    pub elements: usize,
    /// The first list that has elements and did not lie where it is put.
    pub moved: usize,
}

impl<'a> Lists<'a> {
    /// How many.
    fn n(&self) -> usize {
        self.begins.len.min(self.rest.len)
    }

    fn shift(&self) -> u32 {
        let least = self.n().div_ceil(MOST_CHUNKS).max(1).next_power_of_two();
        least.ilog2().max(LEAST_SHIFT)
    }

    /// Bytes that placing them takes beside their offsets.
    pub fn bytes_to_place(&self) -> usize {
        self.n().div_ceil(1 << self.shift()).saturating_mul(8)
    }

    fn args(&self) -> Result<impl Iterator<Item = JobArg<'a>>> {
        let (begins, rest) = (self.begins.args_by_width()?, self.rest.args_by_width()?);
        let [bits, first] = bits::optional_args(self.validity, self.n(), self.begins.buffer);
        let others = [
            JobArg::Value(self.ends.into()),
            bits,
            first,
            JobArg::Value(self.elements as u64),
            JobArg::Value(self.shift().into()),
        ];
        Ok(begins.into_iter().chain(rest).chain(others))
    }
}

impl<'a> Checks<'a> {
    /// Writes to byte `at` of a buffer where lists begin that are put one after the other, and where the last one ends, as
    /// numbers of 4 bytes; with `room` for [as many bytes](Lists::bytes_to_place) to work in.
    pub fn place_lists(
        &mut self,
        lists: Lists<'a>,
        to: &mut BufferMut,
        at: usize,
        room: &mut BufferMut,
    ) -> Result<Placed> {
        let first = self.cells(3);
        let cells = Placed { wrong: first, elements: first + 1, moved: first + 2 };
        let bytes = lists.bytes_to_place();
        let blocks = warps_of(bytes / 8);
        let measured = [JobArg::write(room, 0, bytes)?, JobArg::Cells(cells.wrong, 1)];
        self.push(&MEASURE_LISTS, blocks, lists.args()?.chain(measured))?;
        // In a round of its own: what others asked to be added may have been asked for before any list was measured.
        let sum = [JobArg::write(room, 0, bytes)?, JobArg::Cells(cells.elements, 1)];
        self.push_after(&ADD_SIZES, 1, 1, sum)?;
        let placed = [
            JobArg::write(room, 0, bytes)?,
            JobArg::write(to, at, lists.n().saturating_add(1).saturating_mul(4))?,
            JobArg::Cells(cells.moved, 1),
        ];
        self.push(&PLACE_LISTS, blocks, lists.args()?.chain(placed))?;
        Ok(cells)
    }

    /// Writes for each element of lists that are put one after the other where it lies, as numbers of `width_bytes` (4 or
    /// 8): those of the list that begins at `begins` and is put between two of `offsets` (numbers of 4 or 8 bytes that do not
    /// fall; one more than there are lists). Where the list is null (`validity`: bitmap and its first bit), all ones.
    pub fn name_elements(
        &mut self,
        begins: Integers<'a>,
        offsets: (&'a Buffer, usize),
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        at: usize,
        rows: (usize, usize),
    ) -> Result<()> {
        let ((offsets, offset_width), (n, width_bytes)) = (offsets, rows);
        check_offset_width(offset_width)?;
        check_offset_width(width_bytes)?;
        let [bits, first] = bits::optional_args(validity, begins.len, begins.buffer);
        let bytes = begins.len.saturating_add(1).saturating_mul(offset_width);
        let others = [
            JobArg::Read(offsets, 0, bytes),
            JobArg::Value(offset_width as u64),
            bits,
            first,
            JobArg::write(to, at, n.saturating_mul(width_bytes))?,
            JobArg::Value(width_bytes as u64),
        ];
        let args = begins.args_by_width()?.into_iter().chain(others);
        self.push(&NAME_ELEMENTS, warps_of(n.div_ceil(ELEMENTS_EACH)), args)
    }
}

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

fn measure(args: Args<'_>) -> Option<()> {
    let told = Told::of(&args)?;
    let sizes = args.write(11)?.as_chunks_mut::<8>().0;
    let each: Vec<_> = told.each().collect();
    let chunks = each.chunks(1 << told.shift).map(|chunk| chunk.iter().flatten().map(|(_, size)| size).sum());
    for (to, sum) in sizes.iter_mut().zip(chunks.chain(std::iter::repeat(0u64))) {
        *to = sum.min(TOO_MANY).to_ne_bytes();
    }
    args.found(12, each.iter().position(Option::is_none))
}

fn place(args: Args<'_>) -> Option<()> {
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

fn name(args: Args<'_>) -> Option<()> {
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
