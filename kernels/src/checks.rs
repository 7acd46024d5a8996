//! Collects jobs with results, and launches them together.

use crossdock_memory::{Buffer, Result, Stream};

use crate::jobs::{JobArg, Jobs};
use crate::table::Row;
use crate::{Cells, Findings};

/// Jobs with results. Each kernel is launched once for all its jobs, or several times if one launch
/// cannot pass all arguments. One copy reads all results.
///
/// Each method that adds a job with a result returns the index of its cell.
#[derive(Default)]
pub struct Checks<'a> {
    jobs: Jobs<'a>,
    n: usize,
}

impl<'a> Checks<'a> {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves `n` cells. Returns the index of the first.
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

    /// Like [`Self::push`], for a job with a round. The job runs after the jobs that the same
    /// kernel has in earlier rounds.
    pub(crate) fn push_after(
        &mut self,
        row: &'static Row,
        round: usize,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        self.jobs.push_after(row, round, blocks, args)
    }

    /// Launches all jobs. The kernels run in the order of their first jobs. If there are result
    /// cells, blocks until the host has read them.
    pub fn run(self, stream: &Stream) -> Result<Findings> {
        self.launch(stream)?.map_or_else(|| Ok(Findings::default()), |cells| cells.read(stream))
    }

    /// Like [`Self::run`], but does not wait for the results. Work that is enqueued on `stream`
    /// later does not delay them.
    pub fn start(self, stream: &Stream) -> Result<StartedChecks> {
        let copy = |cells: Cells| Ok((cells.start_read(stream)?, stream.clone()));
        self.launch(stream)?.map(copy).transpose().map(StartedChecks)
    }

    fn launch(self, stream: &Stream) -> Result<Option<Cells>> {
        if self.n == 0 {
            self.jobs.launch(stream)?;
            return Ok(None);
        }
        let mut cells = Cells::new(stream, self.n)?;
        self.jobs.launch_with(stream, Some(&mut cells))?;
        Ok(Some(cells))
    }
}

/// Launched jobs whose results have not been read.
#[must_use]
pub struct StartedChecks(Option<(Buffer, Stream)>);

impl StartedChecks {
    /// Blocks until the host has read the results.
    pub fn finish(self) -> Result<Findings> {
        self.0.map_or_else(|| Ok(Findings::default()), |(cells, stream)| Findings::read(&cells, &stream))
    }
}
