//! Reads chunks of an input in order, and parses them on the threads of the session.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{Projection, export_schema, import_schema_ref};
use crossdock_arrow::to_host;
use crossdock_plugin_api::{
    BatchStream, Call, Error, Honoured, Owned, ReadRequest, Result, Source, TaskGroup, Tasks, abi,
};

use crate::chunks::{Chunk, Chunks, RecordEnds, Sizes};
use crate::csv::MAX_BYTES;
use crate::input::Text;
use crate::options::{Compression, InferRows};

/// The size of the first chunk, so that a caller that needs few rows does not wait for many.
const FIRST_BYTES: usize = 64 << 10;
/// The size of later chunks.
const CHUNK_BYTES: usize = 2 << 20;
/// The greatest size of a record.
const RECORD_BYTES: usize = 64 << 20;
/// A chunk, its fields and its batch rarely need more than this multiple of the chunk's bytes.
const COPIES: u64 = 16;
/// The part of the memory that a record may have.
const RECORD_PART: u64 = 8;

/// Parses chunks.
pub trait Parse: Send + Sync {
    /// The records of the chunk.
    ///
    /// # Errors
    /// Bad data with the line and the column.
    fn parse(&self, chunk: &Chunk) -> Result<RecordBatch>;
}

/// An input whose types are to be inferred.
pub struct Input<'a> {
    /// The source.
    pub source: Arc<Source>,
    /// The call.
    pub call: &'a Call<'a>,
    /// The request.
    pub request: &'a ReadRequest<'a>,
    /// The sizes of chunks.
    pub sizes: Sizes,
}

/// An input whose schema is known.
pub struct Opened {
    /// Chunks from which the types were inferred.
    pub kept: VecDeque<Chunk>,
    /// The chunks after them.
    pub chunks: Chunks,
    /// Parses the chunks.
    pub parser: Arc<dyn Parse>,
    /// The schema of the batches.
    pub schema: SchemaRef,
    /// Whether the batches have only the requested columns.
    pub selects_columns: bool,
}

impl<'a> Input<'a> {
    /// Chooses the sizes of chunks by the limits of the session and of the call.
    pub fn new(
        source: Source,
        call: &'a Call<'a>,
        request: &'a ReadRequest<'a>,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> Self {
        let limits = [memory_limit_bytes / 2, call.byte_budget()];
        let limit = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(u64::MAX);
        let in_flight = (threads as u64 + 1).saturating_mul(COPIES);
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let wanted = match request.selection.batch_bytes {
            0 => CHUNK_BYTES,
            wanted => bytes(wanted).clamp(4 << 10, RECORD_BYTES),
        };
        let most = wanted.min(bytes(limit / in_flight).max(4 << 10));
        let record = RECORD_BYTES.min(bytes(limit / RECORD_PART)).clamp(most, MAX_BYTES);
        let sizes = Sizes { first: FIRST_BYTES.min(most), most, record };
        Self { source: Arc::new(source), call, request, sizes }
    }

    /// Begins to read the source.
    ///
    /// # Errors
    /// The error of the source.
    pub fn chunks(&self, ends: Box<dyn RecordEnds>) -> Result<Chunks> {
        let compression = Compression::of_options(self.request.options)?;
        let text = Text::open(self.source.clone(), compression)?;
        Chunks::new(text, ends, self.sizes)
    }

    /// The schema that the caller expects.
    ///
    /// # Errors
    /// Invalid argument if it is invalid.
    pub fn expected(&self) -> Result<Option<Schema>> {
        // SAFETY: the plugin boundary requires a valid schema that lives until the call returns.
        self.request.schema.map(|schema| unsafe { import_schema_ref(schema) }).transpose()
    }

    /// The requested columns of `schema`; `None` if all columns are needed, or if a requested
    /// column does not exist, which the host reports.
    pub fn projection(&self, schema: &Schema) -> Option<Projection> {
        Projection::new(schema, self.request.selection.columns.as_ref()?).ok()
    }

    /// Checks that an input can be read twice, which is necessary to infer types from all rows.
    ///
    /// # Errors
    /// Unsupported if it cannot.
    pub fn check_repeatable(&self) -> Result<()> {
        match self.source.len() {
            Some(_) => Ok(()),
            None => Err(Error::unsupported(
                "the input can be read only once, so types cannot be inferred from all rows; pass a number as \
                 infer_rows",
            )),
        }
    }
}

/// Reads chunks until `add` has enough rows. `add` gets a chunk and the number of wanted rows, and
/// returns the number of added rows. Returns the chunks that were read, unless all rows were
/// wanted.
///
/// # Errors
/// The error of the source or of `add`.
pub fn infer(
    input: &Input<'_>,
    chunks: &mut Chunks,
    kept: &mut VecDeque<Chunk>,
    rows: InferRows,
    mut add: impl FnMut(&Chunk, u64) -> Result<u64>,
) -> Result<()> {
    let mut wanted = match rows {
        InferRows::All => u64::MAX,
        InferRows::First(rows) => rows,
    };
    let mut bytes = 0;
    let mut next = kept.pop_front();
    let mut read = VecDeque::new();
    while let Some(chunk) = next {
        input.call.check_cancelled()?;
        wanted -= add(&chunk, wanted)?.min(wanted);
        bytes += chunk.bytes.len();
        if rows != InferRows::All {
            read.push_back(chunk);
        }
        let is_enough = wanted == 0 || (rows != InferRows::All && bytes >= input.sizes.record);
        next = if is_enough { None } else { chunks.next()? };
    }
    *kept = read;
    Ok(())
}

/// A chunk that is being parsed.
enum Pending {
    Parsing(TaskGroup, Arc<Mutex<Option<RecordBatch>>>),
    /// The text after the previous chunk cannot be read.
    Failed(Error),
}

/// The batches of an input.
pub struct Reader {
    opened: Opened,
    tasks: Tasks,
    pending: VecDeque<Pending>,
    /// The greatest number of chunks that are parsed at the same time.
    width: usize,
    is_at_end: bool,
    rows: Option<Vec<Range<u64>>>,
    batch_rows: usize,
    /// The number of rows of the parsed chunks.
    n_rows: u64,
    ready: VecDeque<RecordBatch>,
}

impl Reader {
    /// Reads the requested rows of an input.
    pub fn new(opened: Opened, request: &ReadRequest<'_>, tasks: &Tasks) -> Self {
        let batch_rows = match request.selection.batch_rows {
            0 => usize::MAX,
            rows => usize::try_from(rows).unwrap_or(usize::MAX),
        };
        Self {
            opened,
            tasks: tasks.clone(),
            pending: VecDeque::new(),
            width: 1,
            is_at_end: false,
            rows: request.selection.rows.clone(),
            batch_rows,
            n_rows: 0,
            ready: VecDeque::new(),
        }
    }

    fn has_all_rows(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.last().is_none_or(|last| last.end <= self.n_rows))
    }

    /// Begins to parse chunks.
    fn fill(&mut self, call: &Call<'_>) -> Result<()> {
        while !self.is_at_end && self.pending.len() < self.width {
            call.check_cancelled()?;
            let next = match self.opened.kept.pop_front() {
                Some(chunk) => Ok(Some(chunk)),
                None => self.opened.chunks.next(),
            };
            match next {
                Ok(Some(chunk)) => {
                    let slot = Arc::new(Mutex::new(None));
                    let (parser, result) = (self.opened.parser.clone(), slot.clone());
                    let job = move || {
                        let batch = parser.parse(&chunk)?;
                        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
                        Ok(())
                    };
                    self.pending.push_back(Pending::Parsing(self.tasks.start([job])?, slot));
                }
                Ok(None) => self.is_at_end = true,
                Err(error) => {
                    self.pending.push_back(Pending::Failed(error));
                    self.is_at_end = true;
                }
            }
        }
        let (done, total) = self.opened.chunks.progress();
        call.progress(done, total);
        Ok(())
    }

    /// Appends the needed rows of a parsed chunk to the ready batches.
    fn add(&mut self, batch: &RecordBatch) {
        let begin = self.n_rows;
        let end = begin + batch.num_rows() as u64;
        self.n_rows = end;
        let all = [0..u64::MAX];
        for range in self.rows.as_deref().unwrap_or(&all) {
            let (mut from, to) = (range.start.max(begin), range.end.min(end));
            while from < to {
                let len = (to - from).min(self.batch_rows as u64);
                self.ready.push_back(batch.slice((from - begin) as usize, len as usize));
                from += len;
            }
        }
    }
}

impl BatchStream for Reader {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.opened.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(to_host(batch)));
            }
            if self.has_all_rows() {
                self.pending.clear();
                return Ok(None);
            }
            self.fill(call)?;
            let Some(pending) = self.pending.pop_front() else { return Ok(None) };
            let batch = match pending {
                Pending::Failed(error) => return Err(error),
                Pending::Parsing(group, slot) => {
                    group.wait(|| call.check_cancelled())?;
                    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
                }
            };
            let batch = batch.ok_or_else(|| Error::internal("a chunk was not parsed"))?;
            // Each batch that the caller needed makes it likelier that it needs more.
            self.width = (self.width + 1).min(self.tasks.width() + 1);
            self.add(&batch);
        }
    }

    fn honoured(&self) -> Honoured {
        Honoured { columns: self.opened.selects_columns, rows: self.rows.is_some(), ..Honoured::default() }
    }
}
