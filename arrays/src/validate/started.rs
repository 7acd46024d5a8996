//! Validates the contents of batches while the caller does other work.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::Schema;
use crossdock_kernels::StartedChecks;
use crossdock_memory::{Device, Result, Stream};
use crossdock_plugin_api::{Code, TaskGroup, Tasks};

use super::collect::Check;
use super::{Level, check_nullability, request, validate};
use crate::DeviceBatch;

/// A smaller batch in host memory is validated at once. A task would take longer to begin.
const MIN_TASK_BYTES: u64 = 64 << 10;
/// The minimum number of bytes that a task validates, if a batch has more of them.
const PART_BYTES: u64 = 512 << 10;

/// A validation that has begun.
#[must_use]
pub struct StartedValidation(Work);

enum Work {
    Done(Result<()>),
    /// Each task validates some columns.
    Tasks(TaskGroup, Stream),
    /// Kernels write the result of each check to a cell.
    Kernels(StartedChecks, Vec<usize>, Stream),
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
    pub fn start(batches: &[DeviceBatch], tasks: &Tasks, stream: &Stream) -> Result<Self> {
        let now = || Ok(Self(Work::Done(validate_each(batches, stream))));
        if batches.iter().any(DeviceBatch::has_unknown_sizes) {
            return now();
        }
        if stream.device() != Device::CPU {
            let checks: Vec<_> = batches.iter().flat_map(Check::all).collect();
            let (requests, cells) = request(&checks)?;
            return Ok(Self(Work::Kernels(requests.start(stream)?, cells, stream.clone())));
        }
        let bytes = batches.iter().map(DeviceBatch::buffer_bytes).fold(0, u64::saturating_add);
        if bytes < MIN_TASK_BYTES || tasks.width() < 2 {
            return now();
        }
        let job = |part: DeviceBatch| {
            let stream = stream.clone();
            move || validate(&part, Level::Full, &stream)
        };
        let parts =
            batches.iter().flat_map(|batch| parts(batch).into_iter().map(|columns| part(batch, columns)));
        let jobs = parts.map(|part| part.map(job)).collect::<Result<Vec<_>>>()?;
        Ok(Self(Work::Tasks(tasks.start(jobs)?, stream.clone())))
    }

    /// Waits for the result. `batches` are the batches of [`Self::start`]. Calls `check` regularly.
    /// If `check` returns an error, the wait ends.
    ///
    /// # Errors
    ///
    /// The errors of [`validate`] and of `check`.
    pub fn finish(self, batches: &[DeviceBatch], check: impl Fn() -> Result<()>) -> Result<()> {
        match self.0 {
            Work::Done(result) => result,
            Work::Tasks(group, stream) => match group.wait(check) {
                // The first error does not depend on the order of the tasks.
                Err(error) if error.code() == Code::BAD_DATA => {
                    validate_each(batches, &stream).and(Err(error))
                }
                result => result,
            },
            Work::Kernels(started, cells, stream) => {
                let findings = started.finish()?;
                let mut checks = batches.iter().flat_map(Check::all).zip(cells);
                checks.try_for_each(|(check, cell)| check.result(&findings, cell, &stream))?;
                batches.iter().try_for_each(|batch| check_nullability(batch, &stream))
            }
        }
    }
}

fn validate_each(batches: &[DeviceBatch], stream: &Stream) -> Result<()> {
    batches.iter().try_for_each(|batch| validate(batch, Level::Full, stream))
}

/// Divides the columns into parts of at least [`PART_BYTES`].
fn parts(batch: &DeviceBatch) -> Vec<Range<usize>> {
    let (mut parts, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for i in 0..batch.columns().len() {
        bytes += batch.column_bytes(i).unwrap_or(0);
        if bytes >= PART_BYTES {
            parts.push(begin..i + 1);
            (begin, bytes) = (i + 1, 0);
        }
    }
    if begin < batch.columns().len() {
        parts.push(begin..batch.columns().len());
    }
    parts
}

/// The batch with only these columns.
fn part(batch: &DeviceBatch, columns: Range<usize>) -> Result<DeviceBatch> {
    let (fields, all) = (batch.schema().fields(), batch.columns());
    let fields = fields.get(columns.clone()).unwrap_or_default().to_vec();
    let columns = all.get(columns).unwrap_or_default().to_vec();
    DeviceBatch::try_new(Arc::new(Schema::new(fields)), batch.len(), columns)
}
