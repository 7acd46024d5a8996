//! Plans the gathering of lists that may begin anywhere in the array of elements, in any order.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::jobs::{JobArg, warps_of};
use crate::rows::{ADD_SIZES, GATHER_BYTES, MEASURE_LISTS, NAME_ELEMENTS, PLACE_LISTS};
use crate::words::check_offset_width;
use crate::{Checks, Integers, Source, bits};

/// Number of elements that a warp processes at a time, as in `lists.cu`.
const ELEMENTS_EACH: usize = 1024;

/// Binary logarithm of the minimum number of lists per chunk.
const MIN_SHIFT: u32 = 8;

/// Maximum number of chunks. It is limited because one block adds up the sizes of all chunks.
const MAX_CHUNKS: usize = 1 << 14;

/// Lists that may begin anywhere in an array of elements, and may overlap.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// The begin of each list.
    pub begins: Integers<'a>,
    /// The end or the size of each list.
    pub ends_or_sizes: Integers<'a>,
    /// Whether `ends_or_sizes` contains ends; otherwise it contains sizes.
    pub has_ends: bool,
    /// The validity bitmap and its first bit. A null list has no elements, whatever its begin and
    /// end.
    pub validity: Option<(&'a Buffer, usize)>,
    /// The number of elements.
    pub elements: usize,
}

/// The cells of [`Checks::place_lists`].
#[derive(Clone, Copy, Debug)]
pub struct ListCells {
    /// The first list that is not within the elements.
    pub wrong: usize,
    /// The total number of elements, as a [number](crate::Findings::number). If the total does not
    /// fit into an `i32`, the cell contains an arbitrary number that does not fit either.
    pub elements: usize,
    /// The first list whose elements change their position when they are gathered. If there is no
    /// such list, the elements need not be copied.
    pub moved: usize,
}

impl<'a> Lists<'a> {
    /// The number of lists.
    fn n(&self) -> usize {
        self.begins.len.min(self.ends_or_sizes.len)
    }

    fn shift(&self) -> u32 {
        let chunk = self.n().div_ceil(MAX_CHUNKS).max(1).next_power_of_two();
        chunk.ilog2().max(MIN_SHIFT)
    }

    /// Bytes of scratch memory for [`Checks::place_lists`].
    pub fn scratch_bytes(&self) -> usize {
        self.n().div_ceil(1 << self.shift()).saturating_mul(8)
    }

    fn args(&self) -> Result<impl Iterator<Item = JobArg<'a>>> {
        let (begins, ends_or_sizes) = (self.begins.args_by_width()?, self.ends_or_sizes.args_by_width()?);
        let [bits, first] = bits::optional_args(self.validity, self.n(), self.begins.buffer);
        let others = [
            JobArg::Value(self.has_ends.into()),
            bits,
            first,
            JobArg::Value(self.elements as u64),
            JobArg::Value(self.shift().into()),
        ];
        Ok(begins.into_iter().chain(ends_or_sizes).chain(others))
    }
}

impl<'a> Checks<'a> {
    /// Writes the 4-byte offsets of the gathered lists from byte `at` of `to` on. `scratch` has
    /// [`Lists::scratch_bytes`] bytes.
    pub fn place_lists(
        &mut self,
        lists: Lists<'a>,
        to: &mut BufferMut,
        at: usize,
        scratch: &mut BufferMut,
    ) -> Result<ListCells> {
        let first = self.cells(3);
        let cells = ListCells { wrong: first, elements: first + 1, moved: first + 2 };
        let bytes = lists.scratch_bytes();
        let blocks = warps_of(bytes / 8);
        let measured = [JobArg::write(scratch, 0, bytes)?, JobArg::Cells(cells.wrong, 1)];
        self.push(&MEASURE_LISTS, blocks, lists.args()?.chain(measured))?;
        // This job needs a later round, because its kernel may already have jobs from another
        // caller. Without the round, the kernel would run before the kernel that measures lists.
        let sum = [JobArg::write(scratch, 0, bytes)?, JobArg::Cells(cells.elements, 1)];
        self.push_after(&ADD_SIZES, 1, 1, sum)?;
        let placed = [
            JobArg::write(scratch, 0, bytes)?,
            JobArg::write(to, at, lists.n().saturating_add(1).saturating_mul(4))?,
            JobArg::Cells(cells.moved, 1),
        ];
        self.push(&PLACE_LISTS, blocks, lists.args()?.chain(placed))?;
        Ok(cells)
    }

    /// Writes, for each element of the gathered lists, its row in the original elements, from byte
    /// `at` of `to` on. `rows` is the number of rows and their width in bytes, 4 or 8. List `i`
    /// begins at `begins[i]` in the original elements, and has positions `offsets[i]..offsets[i +
    /// 1]` after gathering. Offsets have 4 or 8 bytes and do not descend. The rows of a null list
    /// (`validity`: bitmap and its first bit) have all bits set.
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

    /// Copies the bytes of gathered lists of bytes, `n` bytes from byte `at` of `to` on. List `i`
    /// begins at `begins[i]` in `data`, and has bytes `offsets[i]..offsets[i + 1]` after gathering.
    /// Offsets have 4 or 8 bytes and do not descend. The bytes of a null list (`validity`: bitmap
    /// and its first bit) are 0, and so are bytes outside of `data`.
    #[allow(clippy::too_many_arguments)]
    pub fn gather_bytes(
        &mut self,
        begins: Integers<'a>,
        offsets: (&'a Buffer, usize),
        validity: Option<(&'a Buffer, usize)>,
        data: Source<'a>,
        to: &mut BufferMut,
        at: usize,
        n: usize,
    ) -> Result<()> {
        let (offsets, offset_width) = offsets;
        check_offset_width(offset_width)?;
        let [bits, first] = bits::optional_args(validity, begins.len, begins.buffer);
        let bytes = begins.len.saturating_add(1).saturating_mul(offset_width);
        let others = [
            JobArg::Read(offsets, 0, bytes),
            JobArg::Value(offset_width as u64),
            bits,
            first,
            data.arg(1),
            JobArg::write(to, at, n)?,
        ];
        let args = begins.args_by_width()?.into_iter().chain(others);
        self.push(&GATHER_BYTES, warps_of(n.div_ceil(ELEMENTS_EACH)), args)
    }
}
