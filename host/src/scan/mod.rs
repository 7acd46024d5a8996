//! Scans: descriptions of tables that are read in batches.

mod description;
mod fragments;
mod prefetch;
mod run;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::{FieldRef, SchemaRef};
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::Options;

use crate::column_name::ColumnName;
use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::session::Session;
use crate::source::Input;
use crate::table::Table;
use description::Description;
pub use description::{ScanOptions, ScanSource};
pub use fragments::Fragment;
use prefetch::Prefetch;
use run::Run;

/// A description of a table that is read in batches. Each call of [`Scan::batches`] reads the table
/// from its beginning. Cloning shares the description.
#[derive(Clone)]
pub struct Scan {
    session: Session,
    description: Arc<Description>,
}

impl Session {
    /// Describes a table. Opens the first input to read its schema.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are no files, or if a column does not exist; the errors of
    /// [`Session::read`].
    pub fn scan(&self, source: ScanSource, mut options: ScanOptions) -> Result<Scan> {
        if let (Some(schema), None) = (&options.schema, &options.read.columns) {
            let name = |field: &FieldRef| ColumnName::Path(vec![field.name().clone()]);
            options.read.columns = Some(schema.fields().iter().map(name).collect());
        }
        let input = match &source {
            ScanSource::Files(files) => {
                let first = files.first().ok_or_else(|| Error::usage("expected at least one file"))?;
                run::open_file(self, first, &options)?
            }
            ScanSource::Input(input) => {
                run::check_storage(input, &options)?;
                input.clone()
            }
        };
        let mut inputs = vec![input.clone()];
        let mut is_single = true;
        let mut several = false;
        if let ScanSource::Files(files) = &source
            && files.len() > 1
        {
            several = self.recognise(&input, options.read.from.as_deref())?.format.several;
            is_single = several;
            for file in files.iter().skip(1).filter(|_| several) {
                inputs.push(run::open_file(self, file, &options)?);
            }
        }
        // An input of unknown length is read in order, like a pipe.
        let once = inputs.iter().find(|input| input.source().len().is_none());
        let is_once = once.is_some();
        if let Some(input) = once
            && matches!(&source, ScanSource::Files(files) if files.len() > 1)
        {
            return Err(Error::usage(format!(
                "'{}': expected a regular file, because several files are read",
                input.name()
            )));
        }
        let name = input.name().to_owned();
        if (!is_single || inputs.len() > 1) && options.read.fragment.is_some() {
            return Err(Error::usage(
                "fragment: expected one file, because a fragment is a part of one input",
            ));
        }
        let mut read = if is_single { options.read.clone() } else { run::without_rows(&options.read) };
        // Small reads of other inputs may take long.
        read.row_count |= is_single && (matches!(input, Input::File(_)) || input.in_memory().is_some());
        let versions = inputs.iter().map(|input| input.source().version().to_owned()).collect();
        let reader = self.read_several(inputs, &read)?;
        let n_rows = if is_single { reader.n_rows() } else { None };
        let read_by = (reader.shared_plugin(), reader.format().to_owned());
        let write_options = reader.write_options().clone();
        let schema = match &options.schema {
            None => reader.schema().clone(),
            // Reports types that cannot be converted before any batch is read.
            Some(target) => run::conform(self, reader.schema(), target, &[], &name)?.schema().clone(),
        };
        let description = Description {
            schema,
            source,
            options,
            reader: read_by,
            write_options,
            n_rows,
            several,
            versions,
            once: is_once.then(|| Mutex::new(Some(reader))),
        };
        Ok(Scan { session: self.clone(), description: Arc::new(description) })
    }
}

impl Session {
    /// Reads a table. This is faster than a scan that is collected, because the first input is
    /// opened only once.
    ///
    /// # Errors
    /// The errors of [`Session::scan`] and [`Scan::to_table`].
    pub fn read_table(&self, source: ScanSource, options: ScanOptions) -> Result<Table> {
        let input = match source {
            ScanSource::Files(files) => match files.as_slice() {
                [file] if options.schema.is_none() => run::open_file(self, file, &options)?,
                _ => return self.scan(ScanSource::Files(files), options)?.to_table(),
            },
            ScanSource::Input(input) if options.schema.is_none() => {
                run::check_storage(&input, &options)?;
                input
            }
            ScanSource::Input(input) => {
                return self.scan(ScanSource::Input(input), options)?.to_table();
            }
        };
        Table::from_reader(self, self.read_shared(input, &options.read)?)
    }
}

impl Scan {
    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.description.schema
    }

    /// The number of rows of the table, if it is known before the table is read. It is unknown if
    /// several files are read, and if the metadata of the input does not contain it.
    pub fn n_rows(&self) -> Option<u64> {
        self.description.n_rows
    }

    /// Options with which a writer stores data as the first input does. Empty unless
    /// [`crate::ReadOptions::write_options`] is set.
    pub fn write_options(&self) -> &Options {
        &self.description.write_options
    }

    /// The plugin that reads the first input.
    pub fn plugin(&self) -> &Plugin {
        &self.description.reader.0
    }

    /// The name of the first input's format.
    pub fn format(&self) -> &str {
        &self.description.reader.1
    }

    /// Whether the input can be read only once, because it is a pipe or another input of unknown
    /// length.
    pub fn is_once(&self) -> bool {
        self.description.once.is_some()
    }

    /// The session that reads the table.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The same scan in another session, for example with another cancel flag.
    pub fn with_session(&self, session: &Session) -> Self {
        Self { session: session.clone(), description: self.description.clone() }
    }

    /// Begins to read the table.
    ///
    /// # Errors
    /// [`Error::Usage`] if the input can be read only once, and was read before.
    pub fn batches(&self) -> Result<Batches> {
        self.batches_of(self.description.options.prefetch, None)
    }

    /// Reads the whole table.
    ///
    /// # Errors
    /// The errors of [`Scan::batches`], of opening further inputs, and of reading.
    pub fn to_table(&self) -> Result<Table> {
        self.table_of(self.batches_of(0, None)?)
    }

    /// Reads the first `rows` rows.
    ///
    /// # Errors
    /// Like [`Scan::to_table`].
    pub fn head(&self, rows: u64) -> Result<Table> {
        self.table_of(self.batches_of(0, Some(rows))?)
    }

    fn table_of(&self, batches: Batches) -> Result<Table> {
        let batches = batches.collect::<Result<Vec<_>>>()?;
        Table::from_batches(&self.session, self.schema().clone(), batches)
    }

    fn batches_of(&self, prefetch: usize, limit: Option<u64>) -> Result<Batches> {
        let once = match &self.description.once {
            None => None,
            Some(reader) => {
                let reader = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
                Some(reader.ok_or_else(|| {
                    Error::usage(
                        "the input of the scan can be read only once: open it again for another scan",
                    )
                })?)
            }
        };
        let run = Run::new(self.session.clone(), self.description.clone(), once, limit)?;
        let schema = self.schema().clone();
        Ok(match prefetch {
            0 => Batches { schema, from: Origin::Here(Box::new(run)) },
            n => Batches { schema, from: Origin::Thread(Prefetch::start(run, n, &self.session)?) },
        })
    }
}

/// The batches of a scan, on the session's device. Dropping it stops the scan, which waits for the
/// batch that is being read.
pub struct Batches {
    schema: SchemaRef,
    from: Origin,
}

enum Origin {
    Here(Box<Run>),
    Thread(Prefetch),
}

impl Batches {
    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether a thread reads ahead. Otherwise `next` reads.
    pub fn reads_ahead(&self) -> bool {
        matches!(self.from, Origin::Thread(_))
    }

    /// Waits until `next` returns at once. Returns whether this happened within `timeout`. Returns
    /// immediately if no thread reads ahead.
    pub fn wait(&self, timeout: Duration) -> bool {
        match &self.from {
            Origin::Here(_) => true,
            Origin::Thread(prefetch) => prefetch.wait(timeout),
        }
    }
}

impl Iterator for Batches {
    type Item = Result<DeviceBatch>;

    /// After an error, the next call returns `None`.
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.from {
            Origin::Here(run) => run.next().transpose(),
            Origin::Thread(prefetch) => prefetch.next().transpose(),
        }
    }
}
