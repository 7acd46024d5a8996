//! Validates the contents of batches while the caller does other work.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_kernels::StartedChecks;
use crossdock_memory::{Device, Error, Result, Stream};
use crossdock_plugin_api::{TaskGroup, Tasks};

use super::collect::{Check, has_checks};
use super::{Level, request, validate, validate_columns};
use crate::{DeviceBatch, check_nullability};

/// If the checks of batches in host memory read fewer bytes, they are made at once. A task would
/// take longer to begin.
const MIN_TASK_BYTES: usize = 64 << 10;
/// The number of bytes from which on the checks of columns are a task of their own.
const PART_BYTES: usize = 256 << 10;

/// A validation that has begun.
pub struct StartedValidation {
    /// `None` for a batch that is valid whatever its contents are.
    batches: Arc<Vec<Option<DeviceBatch>>>,
    stream: Stream,
    state: Mutex<State>,
}

enum State {
    /// Each task validates some columns.
    Tasks(TaskGroup),
    /// Kernels write the result of each check to a cell.
    Kernels(StartedChecks, Vec<usize>),
    /// All batches are valid.
    Valid,
    /// At least one batch is wrong, or the result is unknown.
    Unknown,
}

impl StartedValidation {
    /// Begins to validate the contents of batches like [`validate`] with [`Level::Full`]: in tasks
    /// if they are in host memory, otherwise with kernels on `stream`, launched once for all
    /// batches. `stream` is on the device of all batches and is kept until the validation is
    /// finished.
    ///
    /// # Errors
    ///
    /// Memory is exhausted, or the device fails.
    pub fn start<'a>(
        batches: impl IntoIterator<Item = &'a DeviceBatch>,
        tasks: &Tasks,
        stream: &Stream,
    ) -> Result<Self> {
        let to_check = |batch: &DeviceBatch| has_checks(batch).then(|| batch.clone());
        let batches: Arc<Vec<_>> = Arc::new(batches.into_iter().map(to_check).collect());
        let state = if batches.iter().all(Option::is_none) {
            State::Valid
        } else if batches.iter().flatten().any(DeviceBatch::has_unknown_sizes) {
            State::Unknown
        } else if stream.device() == Device::CPU {
            Self::start_tasks(&batches, tasks, stream)?
        } else {
            let checks: Vec<_> = batches.iter().flatten().flat_map(Check::all).collect();
            let (requests, cells) = request(&checks)?;
            State::Kernels(requests.start(stream)?, cells)
        };
        Ok(Self { batches, stream: stream.clone(), state: Mutex::new(state) })
    }

    fn start_tasks(batches: &Arc<Vec<Option<DeviceBatch>>>, tasks: &Tasks, stream: &Stream) -> Result<State> {
        let parts = parts(batches);
        if parts.bytes < MIN_TASK_BYTES || tasks.width() < 2 {
            return Ok(State::Unknown);
        }
        // The tasks share the batches, because all clones of arrays would count references to the
        // same memory.
        let job = |pieces: Vec<Piece>| {
            let (batches, stream) = (batches.clone(), stream.clone());
            move || pieces.into_iter().try_for_each(|piece| piece.validate(&batches, &stream))
        };
        Ok(State::Tasks(tasks.start(parts.parts.into_iter().map(job))?))
    }

    /// Waits for the results of all batches. Returns the result for batch `i`. Calls `check`
    /// regularly. If `check` returns an error, the wait ends.
    ///
    /// # Errors
    ///
    /// The errors of [`validate`] and of `check`.
    pub fn finish(&self, i: usize, check: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid = match std::mem::replace(&mut *state, State::Unknown) {
            State::Tasks(group) => {
                let result = group.wait(&check);
                check()?;
                result.is_ok()
            }
            State::Kernels(started, cells) => self.are_valid(started, cells).is_ok(),
            State::Valid => true,
            State::Unknown => false,
        };
        if is_valid {
            *state = State::Valid;
            return Ok(());
        }
        drop(state);
        // The error of a task or of all kernels does not say which batch is wrong.
        let batch = self.batches.get(i).ok_or_else(missing)?;
        batch.as_ref().map_or(Ok(()), |batch| validate(batch, Level::Full, &self.stream))
    }

    fn are_valid(&self, started: StartedChecks, cells: Vec<usize>) -> Result<()> {
        let findings = started.finish()?;
        let batches = || self.batches.iter().flatten();
        let mut checks = batches().flat_map(Check::all).zip(cells);
        checks.try_for_each(|(check, cell)| check.result(&findings, cell, &self.stream))?;
        batches().try_for_each(|batch| check_nullability(batch, &self.stream))
    }
}

fn missing() -> Error {
    Error::internal("a validation of a batch that does not exist")
}

/// Columns of a batch.
struct Piece {
    batch: usize,
    columns: Range<usize>,
}

impl Piece {
    fn validate(self, batches: &[Option<DeviceBatch>], stream: &Stream) -> Result<()> {
        let batch = batches.get(self.batch).and_then(Option::as_ref).ok_or_else(missing)?;
        validate_columns(batch, self.columns, stream)
    }
}

/// What each task validates.
struct Parts {
    parts: Vec<Vec<Piece>>,
    /// The number of bytes that all checks read.
    bytes: usize,
}

/// Divides the columns of all batches, in order, into parts with [`PART_BYTES`].
fn parts(batches: &[Option<DeviceBatch>]) -> Parts {
    let (mut all, mut open, mut open_bytes) = (Parts { parts: Vec::new(), bytes: 0 }, Vec::new(), 0);
    for (batch, of) in batches.iter().enumerate().filter_map(|(i, of)| Some((i, of.as_ref()?))) {
        let (mut begin, n) = (0, of.columns().len());
        for i in 0..n {
            let bytes = Check::of_column(of, i).iter().map(Check::bytes).fold(0, usize::saturating_add);
            all.bytes = all.bytes.saturating_add(bytes);
            open_bytes += bytes;
            if open_bytes >= PART_BYTES {
                open.push(Piece { batch, columns: begin..i + 1 });
                all.parts.push(std::mem::take(&mut open));
                (begin, open_bytes) = (i + 1, 0);
            }
        }
        if begin < n {
            open.push(Piece { batch, columns: begin..n });
        }
    }
    if !open.is_empty() {
        all.parts.push(open);
    }
    all
}
