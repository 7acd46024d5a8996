//! Passes batches through a plugin, as capsules or as bytes in memory, and reads them back.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::{Metadata, SchemaRef};
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{
    CallSettings, Capsule, ColumnPlan, Format, Input as ApiInput, Options, Source, Verdict,
};

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::reader::{Columns, Reader};
use crate::registry::Choice;
use crate::selection::Request;
use crate::session::Session;
use crate::sink::{Output, VecSink};
use crate::source::Input;
use crate::table::Table;
use crate::tracing_hooks;
use crate::writer::{Writer, schema_difference};

/// An intermediate format of a conversion (`--via`). The plugin's exporter writes each batch, and
/// the plugin's importer reads the output back.
pub(super) struct Via {
    session: Session,
    plugin: Arc<Plugin>,
    format: Format,
    write_options: Options,
    /// The format as the importer describes it, and its options.
    read: (Format, Options),
    schema: SchemaRef,
    /// For formats of capsules, the writer of all batches. `None` for formats of bytes, where each
    /// batch gets a new writer, so that its bytes are separate.
    writer: Option<Writer>,
    /// The metadata of the batches that the importer has not returned yet. The metadata is stored
    /// here because most external structs cannot contain it.
    metadata: VecDeque<Metadata>,
    /// The number of rows that the importer has not returned yet.
    rows_out: u64,
}

impl Via {
    /// Opens the writer. Returns an error if the format would change a column.
    pub(super) fn begin(
        session: &Session,
        wanted: &str,
        schema: &SchemaRef,
        options: &Options,
    ) -> Result<Self> {
        let via = Self::choose(session, wanted, schema, options)?;
        let columns = via.plan()?;
        let mut refused = columns.iter().filter(|column| column.verdict == Verdict::Unsupported);
        if let Some(first) = refused.next() {
            return Err(via.refusal(first, refused.count()));
        }
        via.begin_writing()
    }

    /// Chooses the plugin and the format, but does not create a writer.
    pub(super) fn choose(
        session: &Session,
        wanted: &str,
        schema: &SchemaRef,
        options: &Options,
    ) -> Result<Self> {
        let device_type = session.device().r#type;
        let choice = session.choose(Some(wanted), |registry| registry.choose_via(wanted, device_type))?;
        let plugin = session.instance_for_task(&choice.plugin, "via")?;
        let format = choice.format;
        let back = plugin.importer_formats().iter().find(|f| f.name == format.name);
        let back = back.cloned().unwrap_or_default();
        Ok(Self {
            session: session.clone(),
            write_options: format.pick(options),
            read: (back.clone(), back.pick(options)),
            plugin,
            format,
            schema: schema.clone(),
            writer: None,
            metadata: VecDeque::new(),
            rows_out: 0,
        })
    }

    fn begin_writing(mut self) -> Result<Self> {
        if !self.format.capsules.is_empty() {
            self.writer = Some(self.begin_writer(None)?);
        }
        Ok(self)
    }

    /// Returns a verdict for each column: the exporter's verdict, or "unsupported" if the importer
    /// does not return the column unchanged.
    ///
    /// # Errors
    /// The format supports each column alone, but not all columns together.
    pub(super) fn plan(&self) -> Result<Vec<ColumnPlan>> {
        let choice = Choice { plugin: self.plugin.clone(), format: self.format.clone() };
        let mut columns = self.session.plan_columns_of(
            &choice,
            &self.schema,
            self.session.device(),
            &self.write_options,
        )?;
        let is_refused = |columns: &[ColumnPlan]| columns.iter().any(|c| c.verdict == Verdict::Unsupported);
        let together = if is_refused(&columns) { Ok(()) } else { self.try_without_rows(&self.schema) };
        if together.is_ok() && !is_refused(&columns) {
            return Ok(columns);
        }
        for (i, column) in columns.iter_mut().enumerate() {
            if column.verdict == Verdict::Unsupported {
                continue;
            }
            let alone = self.schema.project(&[i]).map_err(|error| Error::usage(error.to_string()))?;
            match self.try_without_rows(&Arc::new(alone)) {
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => (column.verdict, column.reason) = (Verdict::Unsupported, error.one_line()),
                Ok(()) => {}
            }
        }
        if !is_refused(&columns) {
            together?;
        }
        Ok(columns)
    }

    /// Checks that the importer returns an empty batch of this schema unchanged.
    fn try_without_rows(&self, schema: &SchemaRef) -> Result<()> {
        let mut via = Self {
            session: self.session.clone(),
            plugin: self.plugin.clone(),
            format: self.format.clone(),
            write_options: self.write_options.clone(),
            read: self.read.clone(),
            schema: schema.clone(),
            writer: None,
            metadata: VecDeque::new(),
            rows_out: 0,
        }
        .begin_writing()?;
        let table = Table::from_batches(&self.session, schema.clone(), Vec::new())?;
        via.pass(table.empty_batch()?)?;
        via.finish().map(drop)
    }

    fn refusal(&self, column: &ColumnPlan, more: usize) -> Error {
        let name = format!("'{}'", column.name);
        let mut what = column.reason.clone();
        if !what.contains(&name) {
            what = format!("column {name}: {what}");
        }
        if more > 0 {
            what = format!("{what}; {more} more columns are not supported either");
        }
        let source = crossdock_plugin_api::Error::unsupported(what);
        self.plugin.failed(format!("pass batches through {}", self.format.name), source)
    }

    fn begin_writer(&self, output: Option<Output>) -> Result<Writer> {
        let what = format!("write batches as {}", self.format.name);
        let (plugin, format) = (self.plugin.clone(), self.format.clone());
        Writer::begin(&self.session, plugin, format, &self.schema, &self.write_options, output, what)
    }

    pub(super) fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    pub(super) fn format(&self) -> &str {
        &self.format.name
    }

    /// Whether the format supports this option for reading or for writing.
    pub(super) fn supports(&self, key: &str) -> bool {
        self.format.has_option(key) || self.read.0.has_option(key)
    }

    /// Exports a batch and returns the batches that the importer returns. The importer may split
    /// the exported batch, or return it only in [`Self::finish`].
    pub(super) fn pass(&mut self, batch: DeviceBatch) -> Result<Vec<DeviceBatch>> {
        self.metadata.push_back(batch.metadata().clone());
        self.rows_out += batch.len() as u64;
        let Some(writer) = &mut self.writer else {
            // All returned batches are parts of this batch, so no metadata remains for later
            // batches.
            let batches = self.through_bytes(batch)?;
            let batches = with_metadata(batches, &mut self.metadata);
            self.metadata.clear();
            return self.count_rows(batches);
        };
        let capsules = writer.write(batch)?;
        let batches = self.read_back(capsules)?;
        let batches = with_metadata(batches, &mut self.metadata);
        self.count_rows(batches)
    }

    /// Checks that the importer returns at most as many rows as were exported.
    fn count_rows(&mut self, batches: Vec<DeviceBatch>) -> Result<Vec<DeviceBatch>> {
        let back: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
        self.rows_out = self.rows_out.checked_sub(back).ok_or_else(|| {
            let what = format!("the plugin returned {back} rows, expected at most {}", self.rows_out);
            self.bad_data(what)
        })?;
        Ok(batches)
    }

    fn bad_data(&self, what: String) -> Error {
        let error = crossdock_plugin_api::Error::bad_data(what);
        Error::data(format!("cannot pass batches through {} as {}", self.plugin, self.format.name), error)
    }

    /// Returns the batches that the importer returns at the end.
    pub(super) fn finish(mut self) -> Result<Vec<DeviceBatch>> {
        let mut batches = Vec::new();
        if let Some(writer) = self.writer.take() {
            let capsules = writer.finish()?.capsules;
            let back = self.read_back(capsules)?;
            let is_joined = back.len() < self.metadata.len();
            if is_joined && self.metadata.iter().any(|metadata| !metadata.is_empty()) {
                tracing::warn!(
                    "{} batches were exported to {} and imported as {}: their metadata is dropped",
                    self.metadata.len(),
                    self.format.name,
                    back.len()
                );
                self.metadata.clear();
            }
            let back = with_metadata(back, &mut self.metadata);
            batches = self.count_rows(back)?;
        }
        match self.rows_out {
            0 => Ok(batches),
            lost => Err(self.bad_data(format!("the plugin did not return {lost} rows"))),
        }
    }

    fn read_back(&self, capsules: Vec<Capsule>) -> Result<Vec<DeviceBatch>> {
        if capsules.is_empty() {
            return Ok(Vec::new());
        }
        self.read(ApiInput::Capsules(capsules.into()), self.session.call_for_structs())
    }

    fn through_bytes(&self, batch: DeviceBatch) -> Result<Vec<DeviceBatch>> {
        let sink = VecSink::new();
        let mut writer = self.begin_writer(Some(Output::Memory(sink.clone())))?;
        writer.write(batch)?;
        writer.finish()?;
        let bytes = Input::bytes(sink.take()).shared();
        let source = Source::new(tracing_hooks::source(bytes, self.plugin.account()));
        self.read(ApiInput::Source(source), self.session.call_for_bytes())
    }

    fn read(&self, input: ApiInput, call: CallSettings) -> Result<Vec<DeviceBatch>> {
        let Self { session, plugin, schema, read: (format, options), .. } = self;
        let what = format!("read batches back as {}", format.name);
        let (name, columns) = (format.name.as_str().into(), Columns::Expected(schema));
        let plugin = plugin.clone();
        let reader = Reader::open(
            session,
            plugin,
            call,
            name,
            input,
            columns,
            options,
            &mut Request::default(),
            what.into(),
        )?;
        if let Some(difference) = schema_difference(schema, reader.schema()) {
            return Err(self.bad_data(format!("the plugin returned a changed schema: {difference}")));
        }
        // All batches share one schema object, so that comparing their schemas is cheap.
        let with_schema = |batch: DeviceBatch| {
            batch
                .with_schema(schema.clone())
                .map_err(|error| Error::data(format!("{} returned a malformed batch", self.plugin), error))
        };
        reader.map(|batch| batch.and_then(with_schema)).collect()
    }
}

/// Restores the metadata of batches, which are returned in the order in which they were exported.
fn with_metadata(batches: Vec<DeviceBatch>, metadata: &mut VecDeque<Metadata>) -> Vec<DeviceBatch> {
    let restore = |batch: DeviceBatch| match metadata.pop_front() {
        Some(metadata) => batch.with_metadata(metadata),
        None => batch,
    };
    batches.into_iter().map(restore).collect()
}
