//! Views of values that lie one after the other.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::codes::{Codes, Marks};
use crate::jobs::{JobArg, chunks};
use crate::limits::VIEW_BYTES as BYTES;
use crate::rows::{VIEWS_OF_CODES, VIEWS_OF_OFFSETS};
use crate::{Checks, Integers, Source};

/// Values that the warps of a block take at a time.
const TILE: usize = 2048;

/// What is made of values: their views, and what says where they lie.
pub struct Views<'a, 't> {
    /// What they are views of.
    pub data: Source<'a>,
    /// Data buffer `i` of the array is to begin at byte `i << part` of that: at most 31.
    pub part: u32,
    /// How many values.
    pub len: usize,
    /// Where the views go.
    pub views: &'t mut BufferMut,
    /// Where it goes at which bytes values begin, and the last one ends, as numbers of 8 bytes, if anybody asks.
    pub offsets: Option<&'t mut BufferMut>,
}

/// The cells of what makes views.
#[derive(Clone, Copy, Debug)]
pub struct Viewed {
    /// The first value that is not where it says, as long as it says, or that no view can say where it lies.
    pub wrong: usize,
    /// As many as there are parts: of each, where the value ends that begins in it and ends in the next.
    pub over: usize,
}

impl Views<'_, '_> {
    /// How many parts the data has.
    pub fn parts(&self) -> usize {
        (self.data.len >> self.part) + 1
    }
}

impl<'a> Checks<'a> {
    /// Makes the views of values that lie between offsets.
    pub fn views_of_offsets(&mut self, offsets: Integers<'a>, views: Views<'a, '_>) -> Result<Viewed> {
        let (cells, blocks) = (self.viewed(&views), chunks(views.len.div_ceil(TILE)));
        let args = offsets.args_by_width()?.into_iter().chain(views.args(cells)?);
        self.push(&VIEWS_OF_OFFSETS, blocks, args)?;
        Ok(cells)
    }

    /// Makes the views of values that codes decode to, to as many bytes as is `told` of each. The codes have been measured,
    /// and found right.
    pub fn views_of_codes(
        &mut self,
        codes: Codes<'a>,
        marks: &'a Marks<Buffer>,
        told: Integers<'a>,
        views: Views<'a, '_>,
    ) -> Result<Viewed> {
        let (cells, blocks) = (self.viewed(&views), chunks(views.len.div_ceil(TILE)));
        let told = told.args_by_width()?;
        let args = codes.begins_args(marks)?.into_iter().chain(told).chain(views.args(cells)?);
        self.push(&VIEWS_OF_CODES, blocks, args)?;
        Ok(cells)
    }

    fn viewed(&mut self, views: &Views<'_, '_>) -> Viewed {
        Viewed { wrong: self.cells(1), over: self.cells(views.parts()) }
    }
}

impl<'a> Views<'a, '_> {
    fn args(self, cells: Viewed) -> Result<[JobArg<'a>; 6]> {
        let parts = self.parts();
        let none = JobArg::write(self.views, 0, 0)?;
        let views = JobArg::write(self.views, 0, self.len.saturating_mul(BYTES))?;
        let offsets = self.offsets.map(|to| JobArg::write(to, 0, (self.len + 1).saturating_mul(8)));
        Ok([
            self.data.arg(1),
            JobArg::Value(self.part.into()),
            views,
            offsets.transpose()?.unwrap_or(none),
            JobArg::Cells(cells.over, parts),
            JobArg::Cells(cells.wrong, 1),
        ])
    }
}
