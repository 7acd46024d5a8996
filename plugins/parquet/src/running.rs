//! Decodes the batches of a part of a file on the threads of the session.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_arrays::DeviceArray;
use crossdock_memory::{BufferMut, Stream};
use crossdock_plugin_api::{Call, Device, Error, Result, TaskGroup};

use crate::bytes::File;
use crate::columns::Column;
use crate::footer::Footer;
use crate::lane::{Lane, Limits, Part, SmallerStep};
use crate::reader::Context;
use crate::rows::{count, part};

/// The file and the columns that are decoded.
pub struct Job {
    pub context: Context,
    pub file: Arc<File>,
    pub footer: Footer,
    pub columns: Vec<Arc<Column>>,
    pub limits: Limits,
    /// The streams on which columns are decoded on a device. Empty for the CPU, and
    /// with a memory limit, because a column chunk is decoded at once.
    pub streams: Vec<Stream>,
}

/// A part whose next batch is being decoded.
pub struct Running {
    job: Arc<Job>,
    part: Part,
    /// The number of rows of the part.
    n_rows: u64,
    /// The number of rows that were returned.
    done: u64,
    lanes: Vec<Arc<Mutex<Lane>>>,
    batch: Option<Batch>,
    /// The estimated size of a row in bytes.
    row_bytes: f64,
    smaller: Arc<SmallerStep>,
}

/// A batch that is being decoded.
struct Batch {
    n_rows: usize,
    /// Memory of the host of the estimated size. It is not used. It makes the memory of the crate
    /// count against the session's budget.
    _reserved: Option<BufferMut>,
    results: Arc<Mutex<Vec<Option<DeviceArray>>>>,
    tasks: TaskGroup,
}

impl Running {
    /// Starts the first batch of a part.
    ///
    /// # Errors
    /// Out of memory if the estimated size of the batch exceeds the budget.
    pub fn start(job: &Arc<Job>, part: Part, row_bytes: f64) -> Result<Self> {
        let mut running = Self {
            job: job.clone(),
            n_rows: count(&part.rows),
            done: 0,
            lanes: Vec::new(),
            batch: None,
            row_bytes,
            smaller: Arc::default(),
            part,
        };
        running.open_lanes();
        let reserved = running.reserve()?;
        running.start_batch(reserved)?;
        Ok(running)
    }

    /// Opens the columns at the rows that are left.
    fn open_lanes(&mut self) {
        let rows = part(&self.part.rows, &(self.done..self.n_rows));
        let rest = Part { rows, ..self.part.clone() };
        let Job { file, footer, columns, limits, streams, .. } = &*self.job;
        // Columns on one stream would wait for each other.
        let first = self.part.group.wrapping_mul(columns.len());
        let stream = |i: usize| streams.get(first.wrapping_add(i).checked_rem(streams.len())?).cloned();
        let lane = |(i, column)| {
            Arc::new(Mutex::new(Lane::new(file, footer, column, rest.clone(), *limits, stream(i))))
        };
        self.lanes = columns.iter().enumerate().map(lane).collect();
    }

    /// The number of rows of the next batch.
    fn next_rows(&self) -> usize {
        usize::try_from(self.n_rows - self.done).unwrap_or(usize::MAX).min(self.part.step)
    }

    /// The estimated size of the next batch in bytes.
    pub fn bytes(&self) -> u64 {
        (self.next_rows() as f64 * self.row_bytes) as u64
    }

    /// Counts the next batch against the budget.
    fn reserve(&self) -> Result<Option<BufferMut>> {
        if self.job.limits.column_bytes.is_none() {
            return Ok(None);
        }
        let memory = &self.job.context.memory;
        let bytes = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        let reserved = memory.alloc(&memory.default_stream(Device::CPU)?, bytes);
        reserved.map(Some).map_err(|error| error.context("memory for decoding a batch"))
    }

    fn start_batch(&mut self, reserved: Option<BufferMut>) -> Result<()> {
        let n_rows = self.next_rows();
        let Context { memory, tasks, .. } = &self.job.context;
        let results = Arc::new(Mutex::new(vec![None; self.lanes.len()]));
        let decode = |(i, lane): (usize, &Arc<Mutex<Lane>>)| {
            let (lane, results) = (lane.clone(), results.clone());
            let (memory, smaller) = (memory.clone(), self.smaller.clone());
            move || {
                let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
                let array = lane.next(n_rows, &memory, &smaller)?;
                let mut results: std::sync::MutexGuard<'_, Vec<Option<DeviceArray>>> =
                    results.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(place) = results.get_mut(i) {
                    *place = Some(array);
                }
                Ok(())
            }
        };
        let tasks = tasks.start(self.lanes.iter().enumerate().map(decode))?;
        self.batch = Some(Batch { n_rows, _reserved: reserved, results, tasks });
        Ok(())
    }

    /// Waits for the batch, and starts the next batch of the part. Returns the number of rows and
    /// the columns, and whether the part has more batches.
    ///
    /// # Errors
    /// Cancelled, or the error of a column.
    pub fn next(&mut self, call: &Call<'_>) -> Result<(usize, Vec<DeviceArray>, bool)> {
        let (n_rows, results) = loop {
            if self.batch.is_none() {
                let reserved = self.reserve()?;
                self.start_batch(reserved)?;
            }
            let batch = self.batch.take().ok_or_else(|| Error::internal("no batch was started"))?;
            match (batch.tasks.wait(|| call.check_cancelled()), self.smaller.take()) {
                (Ok(()), _) => break (batch.n_rows, batch.results),
                (Err(_), Some(rows)) if rows < batch.n_rows => {
                    self.part.step = rows;
                    self.open_lanes();
                }
                (Err(error), _) => return Err(error),
            }
        };
        self.done += n_rows as u64;
        let has_more = self.done < self.n_rows;
        // Without memory for the next batch, it begins when this batch has been used.
        if has_more && let Ok(reserved) = self.reserve() {
            self.start_batch(reserved)?;
        }
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Error::internal("a task that decodes a column has no result");
        let columns = results.iter_mut().map(|array| array.take().ok_or_else(missing));
        Ok((n_rows, columns.collect::<Result<_>>()?, has_more))
    }
}
