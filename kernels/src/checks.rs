//! Questions about contents, answered together.

use crossdock_memory::{Result, Stream};

use crate::jobs::{JobArg, Jobs};
use crate::table::Row;
use crate::{Cells, Findings};

/// Looks at contents that are collected and then launched together: each kernel once for all of them, where the
/// arguments have room, and one copy that brings back what they found.
///
/// Each question is answered in the cell whose number it returns.
#[derive(Default)]
pub struct Checks<'a> {
    jobs: Jobs<'a>,
    n: usize,
}

impl<'a> Checks<'a> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `n` cells: the number of the first.
    pub(crate) fn cells(&mut self, n: usize) -> usize {
        self.n += n;
        self.n - n
    }

    pub(crate) fn push(
        &mut self,
        row: &'static Row,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        self.jobs.push(row, blocks, args)
    }

    /// The same, to run after the jobs of this kernel in the rounds before.
    pub(crate) fn push_after(
        &mut self,
        row: &'static Row,
        round: usize,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        self.jobs.push_after(row, round, blocks, args)
    }

    /// Launches all of them, in the order in which each kernel was first asked for, and waits for the answers, if there are
    /// to be any.
    pub fn run(self, stream: &Stream) -> Result<Findings> {
        if self.n == 0 {
            self.jobs.launch(stream)?;
            return Ok(Findings::default());
        }
        let mut cells = Cells::new(stream, self.n)?;
        self.jobs.launch_with(stream, Some(&mut cells))?;
        cells.read(stream)
    }
}
