//! Reads the inputs of a scan one after another.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::Error as ApiError;

use super::description::{Description, ScanOptions, ScanSource};
use crate::error::{Error, Result};
use crate::read_options::ReadOptions;
use crate::reader::Reader;
use crate::row_ranges::within;
use crate::selection::{Rows, limited};
use crate::session::Session;
use crate::source::Input;
use crate::table::Table;

/// Opens a file or a URI of a scan.
pub(super) fn open_file(session: &Session, path: &Path, options: &ScanOptions) -> Result<Input> {
    let input = session.open_input(path, &options.storage)?;
    Ok(if options.map { input } else { input.without_mapping() })
}

/// Returns an error if there are storage options for an input that is open already.
pub(super) fn check_storage(input: &Input, options: &ScanOptions) -> Result<()> {
    match options.storage.iter().next() {
        None => Ok(()),
        Some((key, _)) => Err(Error::usage(format!(
            "'{}' is open already, and the storage option '{key}' applies only to URIs",
            input.name()
        ))),
    }
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
    /// The number of inputs that were opened.
    n_opened: usize,
    /// How each input is read. If there are several, the rows are set when an input is opened.
    read: ReadOptions,
    /// The requested rows of all inputs together, if there are several inputs.
    ranges: Option<Vec<Range<u64>>>,
    /// The number of rows of the open input, if it is known and its reader selects the rows.
    known_rows: Option<u64>,
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
        } else if files.len() > 1 && !description.several {
            of_result = read.limit;
            // Without a filter, the rows include the limit, so that no further input is opened.
            let of_ranges = if read.filter.is_empty() { read.limit } else { None };
            ranges = limited(read.rows.as_deref(), of_ranges)?;
            read = without_rows(&read);
        }
        let result = Rows::new(limited(None, of_result)?, 0);
        Ok(Self {
            session,
            description,
            files,
            input,
            reader: once,
            n_opened: 0,
            read,
            ranges,
            known_rows: None,
            n_rows_before: 0,
            result,
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
                    let n_rows = self.known_rows.take().unwrap_or(position);
                    self.n_rows_before = self.n_rows_before.saturating_add(n_rows);
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

    /// Opens the next input that has requested rows. Returns whether there is one.
    fn open_next(&mut self) -> Result<bool> {
        loop {
            let rest = self.ranges.as_ref().map(|ranges| within(ranges, self.n_rows_before..u64::MAX));
            if rest.as_ref().is_some_and(Vec::is_empty) {
                return Ok(false);
            }
            let mut inputs = self.next_inputs()?;
            let Some(last) = inputs.pop() else { return Ok(false) };
            let reader = match rest {
                Some(rest) => self.open_rows(last, rest)?,
                None => {
                    inputs.push(last);
                    Some(self.open(inputs, &self.read)?)
                }
            };
            if let Some(reader) = reader {
                self.reader = Some(reader);
                return Ok(true);
            }
        }
    }

    /// The next input, or all inputs if the format is read from several inputs at once.
    fn next_inputs(&mut self) -> Result<Vec<Input>> {
        let mut inputs: Vec<Input> = self.input.take().into_iter().collect();
        let n_files = if self.description.several { self.files.len() } else { 1 - inputs.len() };
        for path in self.files.drain(..n_files.min(self.files.len())) {
            inputs.push(open_file(&self.session, &path, &self.description.options)?);
        }
        for input in &inputs {
            check_version(input, self.description.versions.get(self.n_opened))?;
            self.n_opened += 1;
        }
        Ok(inputs)
    }

    /// Opens one of several inputs, of which the rows `rest` are requested. `None` if it has none
    /// of these rows; then only its metadata was read.
    fn open_rows(&mut self, input: Input, rest: Vec<Range<u64>>) -> Result<Option<Reader>> {
        let counted = ReadOptions { filter: Vec::new(), row_count: true, ..without_rows(&self.read) };
        let reader = self.open(vec![input.clone()], &counted)?;
        let Some(n_rows) = reader.n_rows() else {
            drop(reader);
            // The rows of the next input follow those of this one, so the importer must not leave
            // out rows before the last requested one.
            let read = ReadOptions { rows: Some(rest), ..self.read.clone() };
            let name = input.name().to_owned();
            let reader = self.session.read_with_positions(input, &read)?;
            self.description.check_schema(&name, reader.schema())?;
            return Ok(Some(reader));
        };
        let rows = within(&rest, 0..n_rows);
        if rows.is_empty() {
            self.n_rows_before = self.n_rows_before.saturating_add(n_rows);
            return Ok(None);
        }
        self.known_rows = Some(n_rows);
        if rows == [0..n_rows] && self.read.filter.is_empty() {
            return Ok(Some(reader));
        }
        drop(reader);
        self.open(vec![input], &ReadOptions { rows: Some(rows), ..self.read.clone() }).map(Some)
    }

    /// Opens inputs as one table, and compares its schema with the scan's.
    fn open(&self, inputs: Vec<Input>, read: &ReadOptions) -> Result<Reader> {
        let name = inputs.first().map_or("", Input::name).to_owned();
        let reader = self.session.read_several(inputs, read)?;
        self.description.check_schema(&name, reader.schema())?;
        Ok(reader)
    }
}

/// Rejects an input that has changed since its schema was read. An empty version is unknown.
fn check_version(input: &Input, expected: Option<&String>) -> Result<()> {
    let got = input.source().version();
    match expected {
        Some(expected) if expected != got && !expected.is_empty() && !got.is_empty() => {
            let error = ApiError::io(format!("expected the version {expected}, got {got}"));
            Err(Error::data(format!("'{}' has changed since the scan was created", input.name()), error))
        }
        _ => Ok(()),
    }
}
