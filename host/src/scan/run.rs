//! Reads the inputs of a scan one after another.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::DeviceBatch;

use super::description::{Description, ScanSource};
use crate::error::{Error, Result};
use crate::fragments::rows::within;
use crate::reader::{ReadOptions, Reader};
use crate::selection::{Rows, limited};
use crate::session::Session;
use crate::source::Input;
use crate::table::Table;

/// Opens a file of a scan.
pub(super) fn open_file(session: &Session, path: &Path, map: bool) -> Result<Input> {
    let input = Input::open(path, session.cancel_flag())?;
    Ok(if map { input } else { input.without_mapping() })
}

/// The options without the rows, for one of several inputs. The scan applies the rows to all inputs
/// together.
pub(super) fn without_rows(options: &ReadOptions) -> ReadOptions {
    ReadOptions { rows: None, limit: None, ..options.clone() }
}

/// Converts batches of the input `name` to the schema `target`.
pub(super) fn conform(
    session: &Session,
    schema: &SchemaRef,
    target: &SchemaRef,
    batches: &[DeviceBatch],
    name: &str,
) -> Result<Table> {
    let table = Table::from_batches(session, schema.clone(), batches.to_vec())?;
    table.conform(target).map_err(|error| match error {
        Error::Usage(message) => Error::usage(format!("'{name}': {message}")),
        error => error,
    })
}

/// One pass over the inputs.
pub(super) struct Run {
    session: Session,
    description: Arc<Description>,
    /// The files that are not open yet.
    files: VecDeque<PathBuf>,
    /// An input that is not open yet.
    input: Option<Input>,
    reader: Option<Reader>,
    /// Whether there is only one input, so that its reader applies the rows.
    is_single: bool,
    /// The requested rows of all inputs together.
    ranges: Option<Vec<Range<u64>>>,
    /// The position of the first row of the open input in all inputs.
    begin: u64,
    /// The number of rows of the open input, if its reader selects the requested rows.
    known_rows: Option<u64>,
    /// Selects the rows of the open input, unless its reader does.
    rows: Rows,
    failed: bool,
}

impl Run {
    /// `limit`: the maximum number of rows of this pass. `once`: the open reader of the only input.
    pub fn new(
        session: Session,
        description: Arc<Description>,
        once: Option<Reader>,
        limit: Option<u64>,
    ) -> Result<Self> {
        let read = &description.options.read;
        let (mut files, mut input) = (VecDeque::new(), None);
        match &description.source {
            _ if once.is_some() => {}
            ScanSource::Files(paths) => files.extend(paths.iter().cloned()),
            ScanSource::Input(only) => input = Some(only.clone()),
        }
        let is_single = files.len() < 2;
        let limit = limit.into_iter().chain(read.limit).min();
        let ranges = limited(read.rows.as_deref(), limit)?;
        // A reader that is already open applies the rows of the scan, but not the limit of the
        // pass.
        let limited_once = limit.filter(|_| once.is_some()).map(|limit| vec![0..limit]);
        let rows = Rows::new(limited_once, read.batch_rows);
        Ok(Self {
            session,
            description,
            files,
            input,
            reader: once,
            is_single,
            ranges,
            begin: 0,
            known_rows: None,
            rows,
            failed: false,
        })
    }

    /// The next batch; `None` at the end and after an error.
    pub fn next(&mut self) -> Result<Option<DeviceBatch>> {
        if self.failed {
            return Ok(None);
        }
        let next = self.advance();
        self.failed = next.is_err();
        next
    }

    /// The input that blocks until another process writes to it.
    pub fn pipe(&self) -> Option<Arc<crate::source::PipeSource>> {
        self.reader.as_ref().and_then(Reader::pipe)
    }

    fn advance(&mut self) -> Result<Option<DeviceBatch>> {
        loop {
            if let Some(batch) = self.rows.next() {
                return Ok(Some(batch));
            }
            if self.rows.has_all() {
                return Ok(None);
            }
            if self.reader.is_none() && !self.open_next()? {
                return Ok(None);
            }
            match self.next_of_reader()? {
                Some(batch) => {
                    let failed = |error| Error::data("cannot select rows", error);
                    self.rows.add(batch).map_err(failed)?;
                }
                // An input that was open from the start is the only one.
                None => {
                    self.reader = None;
                    self.begin += self.known_rows.take().unwrap_or(self.rows.n_rows());
                    self.rows = Rows::new(None, self.description.options.read.batch_rows);
                    if self.files.is_empty() && self.input.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The next batch of the open input, in the schema of the scan.
    fn next_of_reader(&mut self) -> Result<Option<DeviceBatch>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let (Some(batch), target) = (reader.next()?, &self.description.options.schema) else {
            return Ok(None);
        };
        match target {
            None => Ok(Some(batch)),
            Some(target) => {
                let table = conform(&self.session, reader.schema(), target, &[batch], reader.input_name())?;
                Ok(table.batches().first().cloned())
            }
        }
    }

    /// Opens the next input that has requested rows. Returns whether there is one.
    fn open_next(&mut self) -> Result<bool> {
        loop {
            let options = &self.description.options;
            if self.ranges.as_ref().is_some_and(|rows| rows.last().is_none_or(|last| last.end <= self.begin))
            {
                return Ok(false);
            }
            let input = match (self.input.take(), self.files.pop_front()) {
                (Some(input), _) => input,
                (None, Some(path)) => open_file(&self.session, &path, options.map)?,
                (None, None) => return Ok(false),
            };
            let opened = match &self.ranges {
                Some(ranges) if !self.is_single => self.open_rows(input, &ranges.clone())?,
                ranges => {
                    let read = ReadOptions { rows: ranges.clone(), ..without_rows(&options.read) };
                    Some(self.open(input, &read)?)
                }
            };
            if let Some(reader) = opened {
                self.reader = Some(reader);
                return Ok(true);
            }
        }
    }

    /// Opens one of several inputs, of which some rows are requested. `None` if it has none of these
    /// rows; then only its metadata was read.
    fn open_rows(&mut self, input: Input, ranges: &[Range<u64>]) -> Result<Option<Reader>> {
        let all = without_rows(&self.description.options.read);
        let batch_rows = all.batch_rows;
        let reader = self.open(input.clone(), &ReadOptions { row_count: true, ..all.clone() })?;
        let Some(n_rows) = reader.n_rows() else {
            // All rows up to the last requested row are read, because otherwise the position of the
            // next input is unknown.
            let rows = within(ranges, self.begin..u64::MAX);
            let end = rows.last().map_or(0, |last| last.end);
            self.rows = Rows::new(Some(rows), batch_rows);
            return self.open(input, &ReadOptions { rows: Some(vec![0..end]), ..all }).map(Some);
        };
        let rows = within(ranges, self.begin..self.begin.saturating_add(n_rows));
        if rows.is_empty() {
            self.begin += n_rows;
            return Ok(None);
        }
        self.known_rows = Some(n_rows);
        self.rows = Rows::new(None, batch_rows);
        if rows == [0..n_rows] {
            return Ok(Some(reader));
        }
        drop(reader);
        self.open(input, &ReadOptions { rows: Some(rows), ..all }).map(Some)
    }

    /// Opens an input, and compares its schema with the scan's.
    fn open(&self, input: Input, read: &ReadOptions) -> Result<Reader> {
        let name = input.name().to_owned();
        let reader = self.session.read_shared(input, read)?;
        self.description.check_schema(&name, reader.schema())?;
        Ok(reader)
    }
}
