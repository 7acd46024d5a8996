//! Creates views of contiguous values.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::codes::{Codes, Marks};
use crate::jobs::{JobArg, chunks};
use crate::limits::VIEW_BYTES as BYTES;
use crate::rows::{VIEWS_OF_CODES, VIEWS_OF_OFFSETS};
use crate::{Checks, Integers, Source};

/// Number of values that a block processes at a time.
const TILE: usize = 2048;

/// The views to create, and their data.
pub struct Views<'a, 't> {
    /// The bytes of the values.
    pub data: Source<'a>,
    /// Data buffer `i` of the view array begins at byte `i << part_shift` of the data;
    /// `part_shift` is at most 31.
    pub part_shift: u32,
    /// The number of values.
    pub len: usize,
    /// The views.
    pub views: &'t mut BufferMut,
    /// An optional output: the begin of each value, followed by the end of the last value, as
    /// numbers of 8 bytes.
    pub offsets: Option<&'t mut BufferMut>,
}

/// The cells of [`Checks::views_of_offsets`] and [`Checks::views_of_codes`].
#[derive(Clone, Copy, Debug)]
pub struct ViewCells {
    /// The first value that is out of range, has the wrong length, or is too long for a view.
    pub wrong: usize,
    /// The index of the first cell of a range, which has one cell per part of the data. If a value
    /// begins in a part and ends in the next part, the part's cell contains the end of this value.
    pub over: usize,
}

impl Views<'_, '_> {
    /// The number of parts of the data.
    pub fn parts(&self) -> usize {
        (self.data.len >> self.part_shift) + 1
    }
}

impl<'a> Checks<'a> {
    /// Creates the views of values between offsets.
    pub fn views_of_offsets(&mut self, offsets: Integers<'a>, views: Views<'a, '_>) -> Result<ViewCells> {
        let (cells, blocks) = (self.view_cells(&views), chunks(views.len.div_ceil(TILE)));
        let args = offsets.args_by_width()?.into_iter().chain(views.args(cells)?);
        self.push(&VIEWS_OF_OFFSETS, blocks, args)?;
        Ok(cells)
    }

    /// Creates the views of decoded values. `lengths` are their expected lengths.
    /// [`Checks::measure_codes`] must have measured the codes without an error.
    pub fn views_of_codes(
        &mut self,
        codes: Codes<'a>,
        marks: &'a Marks<Buffer>,
        lengths: Integers<'a>,
        views: Views<'a, '_>,
    ) -> Result<ViewCells> {
        let (cells, blocks) = (self.view_cells(&views), chunks(views.len.div_ceil(TILE)));
        let lengths = lengths.args_by_width()?;
        let args = codes.begins_args(marks)?.into_iter().chain(lengths).chain(views.args(cells)?);
        self.push(&VIEWS_OF_CODES, blocks, args)?;
        Ok(cells)
    }

    fn view_cells(&mut self, views: &Views<'_, '_>) -> ViewCells {
        ViewCells { wrong: self.cells(1), over: self.cells(views.parts()) }
    }
}

impl<'a> Views<'a, '_> {
    fn args(self, cells: ViewCells) -> Result<[JobArg<'a>; 6]> {
        let parts = self.parts();
        let none = JobArg::write(self.views, 0, 0)?;
        let views = JobArg::write(self.views, 0, self.len.saturating_mul(BYTES))?;
        let offsets = self.offsets.map(|to| JobArg::write(to, 0, (self.len + 1).saturating_mul(8)));
        Ok([
            self.data.arg(1),
            JobArg::Value(self.part_shift.into()),
            views,
            offsets.transpose()?.unwrap_or(none),
            JobArg::Cells(cells.over, parts),
            JobArg::Cells(cells.wrong, 1),
        ])
    }
}
