//! Batches into an output, through an exporter.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{DeviceBatch, export_batch, export_schema, lend_batch};
use crossdock_isolation::truncated::guarded;
use crossdock_plugin_api::{
    CallSettings, Capsule, ColumnPlan, Device, Error as ApiError, Format, Named, Options, Sink, WriterHandle,
    abi,
};

use crate::error::{Error, Result};
use crate::place::move_batch;
use crate::plugin::Plugin;
use crate::registry::{Choice, Way};
use crate::session::Session;
use crate::sink::Output;
use crate::traced::{self, Ended, Maker};

/// As what to write.
#[derive(Clone, Default)]
pub struct WriteOptions {
    /// A plugin's or a format's name; by the output's ending if not given.
    pub to: Option<String>,
    /// What the format understands.
    pub options: Options,
}

/// An output that takes batches of one schema. Dropped before [`Writer::finish`], it leaves nothing behind.
pub struct Writer {
    // The exporter's writer ends before the plugin that made it.
    writer: Ended<WriterHandle>,
    plugin: Arc<Plugin>,
    session: Session,
    call: CallSettings,
    schema: SchemaRef,
    format: Format,
    name: String,
    output: Option<Output>,
    /// Whether batches become what any library may take, and release while its own work still runs.
    is_lent: bool,
    /// Whether a batch was not written, so that what there is is not what was to be.
    failed: bool,
}

impl Session {
    /// Which plugin writes to `output`, a path or "-" for standard output, and as which format.
    pub fn choose_output(&self, output: &str, to: Option<&str>) -> Result<Choice> {
        self.choose(to, |registry| registry.choose_output(to, output))
    }

    /// Begins to write batches of `schema`.
    ///
    /// # Errors
    /// [`Error::Usage`] where the format is unclear; what the plugin says where it cannot write such batches.
    pub fn write(&self, output: Output, schema: &SchemaRef, options: &WriteOptions) -> Result<Writer> {
        let choice = self.choose_output(output.target(), options.to.as_deref())?;
        let plugin = self.fresh(&choice.plugin, "write")?;
        let what = format!("write '{}' as {}", output.name(), choice.format.name);
        Writer::begin(self, plugin, choice.format, schema, &options.options, Some(output), what)
    }

    /// Begins to give batches of `schema` as capsules: `to` is a plugin's or a format's name.
    ///
    /// # Errors
    /// [`Error::Usage`] where no format of capsules is meant; what the plugin says where it cannot write such batches.
    pub fn write_capsules(&self, to: &str, schema: &SchemaRef, options: &Options) -> Result<Writer> {
        let chosen = self.capsule_format(to, Way::Out)?;
        let plugin = self.fresh(chosen.plugin(), "write")?;
        chosen.of(plugin).write(schema, options)
    }

    /// What would happen to the columns of batches of `schema` that lie on `from`, if `to` (a plugin's or a format's name, of
    /// bytes or of capsules) wrote them. A verdict for each, in order.
    ///
    /// # Errors
    /// As [`Session::write_capsules`].
    pub fn plan_columns(
        &self,
        to: &str,
        schema: &SchemaRef,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let choice = self.choose(Some(to), |registry| registry.choose_export(to, from.r#type))?;
        self.plan_columns_of(&choice, schema, from, options)
    }

    /// The same of a format that was chosen.
    pub(crate) fn plan_columns_of(
        &self,
        Choice { plugin, format }: &Choice,
        schema: &SchemaRef,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let failed = |error| plugin.failed(format!("plan for {}", format.name), error);
        let raw = export_schema(schema).map_err(failed)?;
        let call = self.call_for_structs();
        let exporter = plugin.exporter()?;
        let plan = || exporter.plan(&call, &format.name, &raw, from, options);
        let verdicts = plugin.account().call("exporter.plan", plan).map_err(failed)?;
        match (verdicts.len(), schema.fields().len()) {
            (got, expected) if got == expected => Ok(verdicts),
            (got, expected) => Err(Error::data(
                format!("{plugin} gave a wrong plan"),
                ApiError::internal(format!("{got} verdicts for {expected} columns")),
            )),
        }
    }
}

impl Writer {
    pub(crate) fn begin(
        session: &Session,
        plugin: Arc<Plugin>,
        format: Format,
        schema: &SchemaRef,
        options: &Options,
        output: Option<Output>,
        name: String,
    ) -> Result<Self> {
        session.check_cancelled()?;
        let call = session.call_for_structs();
        let failed = |error| plugin.failed(&name, error);
        let raw = export_schema(schema).map_err(failed)?;
        let (exporter, account) = (plugin.exporter()?, plugin.account());
        let sink = output.as_ref().map(|output| Sink::new(traced::sink(output.bytes(), account)));
        let begin = || exporter.begin(&call, &format.name, &raw, options, sink);
        let writer = account.call("exporter.begin", begin).map_err(failed)?;
        let writer = Ended::new(writer, account, "writer.release");
        let (session, schema) = (session.clone(), schema.clone());
        // The plugin may hand the batch on as it is.
        let is_lent =
            format.capsules.iter().any(|name| name.as_bytes() != abi::EncodedArray::NAME.to_bytes());
        let is_lent = is_lent && output.is_none();
        Ok(Self { writer, plugin, session, call, schema, format, name, output, is_lent, failed: false })
    }

    /// Who writes.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    pub(crate) fn shared_plugin(&self) -> Arc<Plugin> {
        self.plugin.clone()
    }

    /// As what.
    pub fn format(&self) -> &str {
        &self.format.name
    }

    /// Bytes that went into the output so far; 0 where it is capsules.
    pub fn bytes_written(&self) -> u64 {
        self.output.as_ref().map_or(0, Output::bytes_written)
    }

    /// The batch where the format can take it: itself, or moved to host memory.
    pub fn place(&self, batch: DeviceBatch) -> Result<DeviceBatch> {
        if self.format.takes(batch.device().r#type) {
            return Ok(batch);
        }
        if !self.format.takes(Device::CPU.r#type) {
            return Err(Error::usage(format!(
                "{} does not take batches that lie on {}, nor in host memory",
                self.format.name,
                batch.device()
            )));
        }
        move_batch(&self.session, batch, Device::CPU)
    }

    /// Writes a batch of the schema; what it became, where the format is one of capsules.
    pub fn write(&mut self, batch: DeviceBatch) -> Result<Vec<Capsule>> {
        let written = guarded(|| self.write_batch(batch));
        self.failed |= written.is_err();
        written
    }

    /// The same for a batch that lies where the format takes it, and that stays the caller's.
    pub fn write_borrowed(&mut self, batch: &DeviceBatch) -> Result<Vec<Capsule>> {
        if !self.format.takes(batch.device().r#type) {
            return self.write(batch.clone());
        }
        let written = self.session.check_cancelled().and_then(|()| guarded(|| self.write_placed(batch)));
        self.failed |= written.is_err();
        written
    }

    fn write_batch(&mut self, batch: DeviceBatch) -> Result<Vec<Capsule>> {
        self.session.check_cancelled()?;
        let batch = self.place(batch)?;
        self.write_placed(&batch)
    }

    fn write_placed(&mut self, batch: &DeviceBatch) -> Result<Vec<Capsule>> {
        let failed = |error| self.plugin.failed(&self.name, error);
        if let Some(difference) = schema_difference(&self.schema, batch.schema()) {
            return Err(Error::usage(format!("a batch does not fit what is being written: {difference}")));
        }
        let export = if self.is_lent { lend_batch } else { export_batch };
        let raw = export(batch, false, self.session.stream()).map_err(failed)?;
        let account = self.plugin.account();
        let write = || self.writer.write(&self.call, traced::crossing(raw, account, Maker::Host));
        account.call("writer.write", write).map_err(|error| self.plugin.failed(&self.name, error))
    }

    /// Ends it. A file appears now.
    ///
    /// # Errors
    /// [`Error::Usage`] where a batch could not be written: nothing appears without it.
    pub fn finish(self) -> Result<Finished> {
        self.session.check_cancelled()?;
        if self.failed {
            return Err(Error::usage(format!(
                "cannot {}: a batch before was not written; begin anew",
                self.name
            )));
        }
        let Self { writer, plugin, call, name, output, .. } = self;
        let finish = || writer.into_inner().finish(&call);
        let capsules =
            plugin.account().call("writer.finish", finish).map_err(|error| plugin.failed(&name, error))?;
        let bytes_written = output.as_ref().map_or(0, Output::bytes_written);
        if let Some(output) = output {
            output.commit()?;
        }
        Ok(Finished { capsules, bytes_written })
    }
}

/// What the end of an output gave.
pub struct Finished {
    /// What only the end could give, of formats of capsules.
    pub capsules: Vec<Capsule>,
    /// Bytes in all; 0 where the output is capsules.
    pub bytes_written: u64,
}

/// Where two schemas differ first, in words. Everything counts: names, types, nullability, metadata.
pub(crate) fn schema_difference(expected: &SchemaRef, got: &SchemaRef) -> Option<String> {
    if Arc::ptr_eq(expected, got) || expected == got {
        return None;
    }
    if expected.fields().len() != got.fields().len() {
        return Some(format!("expected {} columns, got {}", expected.fields().len(), got.fields().len()));
    }
    let pair = expected.fields().iter().zip(got.fields()).find(|(e, g)| e != g);
    Some(match pair {
        None => {
            format!("the schema's metadata: expected {:?}, got {:?}", expected.metadata(), got.metadata())
        }
        Some((e, g)) if e.name() != g.name() => {
            format!("expected a column '{}', got '{}'", e.name(), g.name())
        }
        Some((e, g)) if e.data_type() != g.data_type() => {
            format!("column '{}': expected {}, got {}", e.name(), e.data_type(), g.data_type())
        }
        Some((e, g)) if e.is_nullable() != g.is_nullable() => {
            format!("column '{}': expected nullable {}, got {}", e.name(), e.is_nullable(), g.is_nullable())
        }
        Some((e, g)) => {
            format!("column '{}': expected metadata {:?}, got {:?}", e.name(), e.metadata(), g.metadata())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Field, Schema};

    #[test]
    fn the_first_difference_of_two_schemas_is_named() {
        let note = || std::collections::HashMap::from([("k".to_owned(), "v".to_owned())]);
        let field = || Field::new("a", DataType::Int8, false);
        let one = |field: Field| Arc::new(Schema::new(vec![Field::new("same", DataType::Null, true), field]));
        let difference = |other: SchemaRef| schema_difference(&one(field()), &other);
        assert_eq!(difference(one(field())), None);
        for (other, expected) in [
            (Arc::new(Schema::empty()), "expected 2 columns, got 0"),
            (one(field().with_name("b")), "expected a column 'a', got 'b'"),
            (one(field().with_data_type(DataType::Int16)), "column 'a': expected Int8, got Int16"),
            (one(field().with_nullable(true)), "column 'a': expected nullable false, got true"),
            (one(field().with_metadata(note())), "column 'a': expected metadata {}, got {\"k\": \"v\"}"),
            (
                Arc::new(one(field()).as_ref().clone().with_metadata(note())),
                "the schema's metadata: expected {}, got {\"k\": \"v\"}",
            ),
        ] {
            assert_eq!(difference(other).as_deref(), Some(expected));
        }
    }
}
