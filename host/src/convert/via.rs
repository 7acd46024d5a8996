//! Out through a plugin, as capsules or as bytes in memory, and back in.

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
use crate::session::Session;
use crate::sink::{Output, VecSink};
use crate::source::Input;
use crate::table::Table;
use crate::traced;
use crate::writer::{Writer, schema_difference};

/// One `--via`: an exporter's writer, and for all that it gives the same plugin's importer.
pub(super) struct Via {
    session: Session,
    plugin: Arc<Plugin>,
    format: Format,
    told: Options,
    /// The same format as it is read back, and what it is told then.
    read: (Format, Options),
    schema: SchemaRef,
    /// Takes all batches where they become capsules. Bytes are written for each batch anew, so that they are one batch's
    /// at a time.
    writer: Option<Writer>,
    /// The own metadata of the batches that are out: few foreign structs have a place for it.
    metadata: VecDeque<Metadata>,
    /// Rows that went out and have not come back.
    rows_out: u64,
}

impl Via {
    /// Begins it, unless a column would not come back as it is.
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
        via.begun()
    }

    /// Ready to begin.
    pub(super) fn choose(
        session: &Session,
        wanted: &str,
        schema: &SchemaRef,
        options: &Options,
    ) -> Result<Self> {
        let device_type = session.device().r#type;
        let choice = session.choose(Some(wanted), |registry| registry.choose_via(wanted, device_type))?;
        let plugin = session.fresh(&choice.plugin, "via")?;
        let format = choice.format;
        let back = plugin.importer_formats().iter().find(|f| f.name == format.name);
        let back = back.cloned().unwrap_or_default();
        Ok(Self {
            session: session.clone(),
            told: format.pick(options),
            read: (back.clone(), back.pick(options)),
            plugin,
            format,
            schema: schema.clone(),
            writer: None,
            metadata: VecDeque::new(),
            rows_out: 0,
        })
    }

    fn begun(mut self) -> Result<Self> {
        if !self.format.capsules.is_empty() {
            self.writer = Some(self.begin_writer(None)?);
        }
        Ok(self)
    }

    /// What happens to each column: what the exporter says, and whether the importer gives it back as it was.
    ///
    /// # Errors
    /// What is wrong with all columns together, where each alone would pass.
    pub(super) fn plan(&self) -> Result<Vec<ColumnPlan>> {
        let choice = Choice { plugin: self.plugin.clone(), format: self.format.clone() };
        let mut columns =
            self.session.plan_columns_of(&choice, &self.schema, self.session.device(), &self.told)?;
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

    /// Whether a batch of this schema without rows comes back as it went.
    fn try_without_rows(&self, schema: &SchemaRef) -> Result<()> {
        let mut via = Self {
            session: self.session.clone(),
            plugin: self.plugin.clone(),
            format: self.format.clone(),
            told: self.told.clone(),
            read: self.read.clone(),
            schema: schema.clone(),
            writer: None,
            metadata: VecDeque::new(),
            rows_out: 0,
        }
        .begun()?;
        let nothing = Table::from_batches(&self.session, schema.clone(), Vec::new())?;
        via.pass(nothing.empty_batch()?)?;
        via.finish().map(drop)
    }

    fn refusal(&self, column: &ColumnPlan, more: usize) -> Error {
        let name = format!("'{}'", column.name);
        let mut what = column.reason.clone();
        if !what.contains(&name) {
            what = format!("column {name}: {what}");
        }
        if more > 0 {
            what = format!("{what}; {more} more columns have no place either");
        }
        let source = crossdock_plugin_api::Error::unsupported(what);
        self.plugin.failed(format!("send batches through {}", self.format.name), source)
    }

    fn begin_writer(&self, output: Option<Output>) -> Result<Writer> {
        let what = format!("write batches as {}", self.format.name);
        let (plugin, format) = (self.plugin.clone(), self.format.clone());
        Writer::begin(&self.session, plugin, format, &self.schema, &self.told, output, what)
    }

    pub(super) fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    pub(super) fn format(&self) -> &str {
        &self.format.name
    }

    /// Whether the format understands this option on either way.
    pub(super) fn understands(&self, key: &str) -> bool {
        self.format.understands(key) || self.read.0.understands(key)
    }

    /// The batch as it comes back: usually as one, perhaps only at the end.
    pub(super) fn pass(&mut self, batch: DeviceBatch) -> Result<Vec<DeviceBatch>> {
        self.metadata.push_back(batch.metadata().clone());
        self.rows_out += batch.len() as u64;
        let Some(writer) = &mut self.writer else {
            // However many come back are this one's.
            let batches = self.through_bytes(batch)?;
            let batches = with_metadata(batches, &mut self.metadata);
            self.metadata.clear();
            return self.counted(batches);
        };
        let capsules = writer.write(batch)?;
        let batches = self.read_back(capsules)?;
        let batches = with_metadata(batches, &mut self.metadata);
        self.counted(batches)
    }

    /// Nobody may make rows up, nor, by the end, have lost any.
    fn counted(&mut self, batches: Vec<DeviceBatch>) -> Result<Vec<DeviceBatch>> {
        let back: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
        self.rows_out = self.rows_out.checked_sub(back).ok_or_else(|| {
            let what = format!("{back} rows came back, and only {} were out", self.rows_out);
            self.wrong(what)
        })?;
        Ok(batches)
    }

    fn wrong(&self, what: String) -> Error {
        let error = crossdock_plugin_api::Error::bad_data(what);
        Error::data(format!("via {} as {}", self.plugin, self.format.name), error)
    }

    /// What comes back at the end.
    pub(super) fn finish(mut self) -> Result<Vec<DeviceBatch>> {
        let mut batches = Vec::new();
        if let Some(writer) = self.writer.take() {
            let capsules = writer.finish()?.capsules;
            let back = self.read_back(capsules)?;
            let is_joined = back.len() < self.metadata.len();
            if is_joined && self.metadata.iter().any(|metadata| !metadata.is_empty()) {
                tracing::warn!(
                    "{} batches come back from {} as {}: the metadata of each are left out",
                    self.metadata.len(),
                    self.format.name,
                    back.len()
                );
                self.metadata.clear();
            }
            let back = with_metadata(back, &mut self.metadata);
            batches = self.counted(back)?;
        }
        match self.rows_out {
            0 => Ok(batches),
            lost => Err(self.wrong(format!("{lost} of the rows that went out have not come back"))),
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
        let source = Source::new(traced::source(bytes, self.plugin.account()));
        self.read(ApiInput::Source(source), self.session.call_for_bytes())
    }

    fn read(&self, input: ApiInput, call: CallSettings) -> Result<Vec<DeviceBatch>> {
        let Self { session, plugin, schema, read: (format, options), .. } = self;
        let what = format!("read batches back as {}", format.name);
        let (name, columns) = (format.name.as_str().into(), Columns::Expected(schema));
        let plugin_too = plugin.clone();
        let reader = Reader::open(session, plugin_too, call, name, input, columns, options, what.into())?;
        if let Some(difference) = schema_difference(schema, reader.schema()) {
            let error = crossdock_plugin_api::Error::bad_data(difference);
            return Err(Error::data(format!("via {plugin}, the schema came back changed"), error));
        }
        // Under the schema that everybody holds already, so that nobody compares it again.
        let same = |batch: DeviceBatch| {
            batch
                .with_schema(schema.clone())
                .map_err(|error| Error::data(format!("{plugin} gave a wrong batch"), error))
        };
        reader.map(|batch| batch.and_then(same)).collect()
    }
}

/// Batches come back in the order in which they went out.
fn with_metadata(batches: Vec<DeviceBatch>, metadata: &mut VecDeque<Metadata>) -> Vec<DeviceBatch> {
    let own = |batch: DeviceBatch| match metadata.pop_front() {
        Some(metadata) => batch.with_metadata(metadata),
        None => batch,
    };
    batches.into_iter().map(own).collect()
}
