//! Lists that lie anywhere in their elements, put one after the other.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::jobs::{JobArg, warps_of};
use crate::rows::{ADD_SIZES, MEASURE_LISTS, NAME_ELEMENTS, PLACE_LISTS};
use crate::words::check_offset_width;
use crate::{Checks, Integers, bits};

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
