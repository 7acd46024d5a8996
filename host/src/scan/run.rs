//! Reads the inputs of a scan one after another.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::DeviceBatch;

use super::description::{Description, ScanSource};
use crate::error::{Error, Result};
use crate::reader::{ReadOptions, Reader};
use crate::selection::{Rows, limited};
use crate::session::Session;
use crate::source::Input;
use crate::table::Table;
use crate::writer::schema_difference;

/// Opens a file of a scan.
pub(super) fn open_file(session: &Session, path: &Path, map: bool) -> Result<Input> {
    let input = Input::open(path, session.cancel_flag())?;
    Ok(if map { input } else { input.without_mapping() })
}

/// The options without the rows, for one of several inputs. The rows count those of all inputs
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
    /// How each input is read. If there are several, the rows are set when an input is opened.
    read: ReadOptions,
    /// The requested rows of all inputs together, if there are several inputs.
    ranges: Option<Vec<Range<u64>>>,
    /// The number of rows of the inputs that were read to their end.
    n_rows_before: u64,
    /// The rows of the result.
    result: Rows,
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
        let mut read = description.options.read.clone();
        let (mut files, mut input) = (VecDeque::new(), None);
        match &description.source {
            _ if once.is_some() => {}
            ScanSource::Files(paths) => files.extend(paths.iter().cloned()),
            ScanSource::Input(only) => input = Some(only.clone()),
        }
        read.limit = limit.into_iter().chain(read.limit).min();
        let (mut ranges, mut of_result) = (None, None);
        if once.is_some() {
            // The reader applies the limit of the scan, but not the limit of the pass.
            of_result = limit;
        } else if files.len() > 1 {
            of_result = read.limit;
            // Without a filter, the rows include the limit, so that no further input is opened.
            let of_ranges = if read.filter.is_empty() { read.limit } else { None };
            ranges = limited(read.rows.as_deref(), of_ranges)?;
            read = without_rows(&read);
        }
        let result = Rows::new(limited(None, of_result)?, 0);
        let (reader, n_rows_before, failed) = (once, 0, false);
        Ok(Self { session, description, files, input, reader, read, ranges, n_rows_before, result, failed })
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
            if let Some(batch) = self.result.next() {
                return Ok(Some(batch));
            }
            if self.result.has_all() {
                return Ok(None);
            }
            if self.reader.is_none() && !self.open_next()? {
                return Ok(None);
            }
            match self.next_of_reader()? {
                Some(batch) => {
                    let failed = |error| Error::data("cannot select rows", error);
                    self.result.add(batch).map_err(failed)?;
                }
                None => {
                    let position = self.reader.take().map_or(0, |reader| reader.position());
                    self.n_rows_before = self.n_rows_before.saturating_add(position);
                    // An input that was open from the start is the only one.
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

    /// Opens the next input. Returns whether there is one with requested rows.
    fn open_next(&mut self) -> Result<bool> {
        let before = self.n_rows_before;
        if let Some(ranges) = &self.ranges {
            let rest = ranges.iter().filter(|rows| rows.end > before);
            let rest: Vec<_> =
                rest.map(|rows| rows.start.saturating_sub(before)..rows.end - before).collect();
            if rest.is_empty() {
                return Ok(false);
            }
            self.read.rows = Some(rest);
        }
        let options = &self.description.options;
        let input = match (self.input.take(), self.files.pop_front()) {
            (Some(input), _) => input,
            (None, Some(path)) => open_file(&self.session, &path, options.map)?,
            (None, None) => return Ok(false),
        };
        let name = input.name().to_owned();
        let reader = match self.ranges {
            // The rows of the next input follow those of this one.
            Some(_) => self.session.read_with_positions(input, &self.read)?,
            None => self.session.read_shared(input, &self.read)?,
        };
        if options.schema.is_none()
            && let Some(difference) = schema_difference(&self.description.schema, reader.schema())
        {
            return Err(Error::usage(format!(
                "'{name}' does not have the schema of the scan's first input: {difference}"
            )));
        }
        self.reader = Some(reader);
        Ok(true)
    }
}
