//! Writes batches to an output through an exporter.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{
    DeviceBatch, PendingBatch, export_batch, export_batch_to_external, export_pending, export_schema,
};
use crossdock_isolation::truncated::guarded;
use crossdock_plugin_api::{
    CallSettings, Capsule, CapsuleObject, ColumnPlan, Device, Error as ApiError, Format, Options, Owned,
    Sink, WriterHandle, abi,
};

use crate::error::{Error, Result};
use crate::place::move_batch;
use crate::plugin::Plugin;
use crate::registry::{Choice, Way};
use crate::session::Session;
use crate::sink::Output;
use crate::tracing_hooks::{self, Producer, TracedDrop};

/// Options of [`Session::write`].
#[derive(Clone, Default)]
pub struct WriteOptions {
    /// The name of a plugin or a format. `None`: the output's extension selects the format.
    pub to: Option<String>,
    /// The format's options.
    pub options: Options,
}

/// An output for batches of one schema. If it is dropped before [`Writer::finish`], no output
/// remains.
pub struct Writer {
    // The writer is dropped before the plugin that created it.
    writer: TracedDrop<WriterHandle>,
    plugin: Arc<Plugin>,
    session: Session,
    call: CallSettings,
    schema: SchemaRef,
    format: Format,
    name: String,
    output: Option<Output>,
    /// Whether batches are exported to external consumers.
    is_exported: bool,
    /// Whether writing a batch failed. The output is then incomplete.
    failed: bool,
}

impl Session {
    /// Chooses the plugin and the format for `output`, which is a path, or "-" for standard output.
    /// `to` is the name of a plugin or a format.
    pub fn choose_output(&self, output: &str, to: Option<&str>) -> Result<Choice> {
        self.choose(to, |registry| registry.choose_output(to, output))
    }

    /// Starts an output for batches of `schema`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format is unclear, [`Error::Plugin`] if the plugin cannot write
    /// batches with this schema.
    pub fn write(&self, output: Output, schema: &SchemaRef, options: &WriteOptions) -> Result<Writer> {
        let choice = self.choose_output(output.target(), options.to.as_deref())?;
        let plugin = self.instance_for_task(&choice.plugin, "write")?;
        let what = format!("write '{}' as {}", output.name(), choice.format.name);
        Writer::begin(self, plugin, choice.format, schema, &options.options, Some(output), what)
    }

    /// Creates a writer that exports batches with `schema` as capsules. `to` is the name of a
    /// plugin or a format.
    ///
    /// # Errors
    /// [`Error::Usage`] if `to` is not a format of capsules, [`Error::Plugin`] if the plugin cannot
    /// write batches with this schema.
    pub fn write_capsules(&self, to: &str, schema: &SchemaRef, options: &Options) -> Result<Writer> {
        let chosen = self.capsule_format(to, Way::Out)?;
        let plugin = self.instance_for_task(chosen.plugin(), "write")?;
        chosen.with_plugin(plugin).write(schema, options)
    }

    /// Returns a verdict for each column, as if batches with `schema` on the device `from` were
    /// written as `to`. `to` is the name of a plugin or a format, of bytes or of capsules.
    ///
    /// # Errors
    /// The errors of [`Session::write_capsules`].
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

    /// Like [`Self::plan_columns`], for a format that was already chosen.
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
        let verdicts = plugin.account().trace_host_call("exporter.plan", plan).map_err(failed)?;
        match (verdicts.len(), schema.fields().len()) {
            (got, expected) if got == expected => Ok(verdicts),
            (got, expected) => Err(Error::data(
                format!("{plugin} returned a malformed plan"),
                ApiError::internal(format!("expected {expected} verdicts, one for each column, got {got}")),
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
        let sink = output.as_ref().map(|output| Sink::new(tracing_hooks::sink(output.bytes(), account)));
        let begin = || exporter.begin(&call, &format.name, &raw, options, sink);
        let writer = account.trace_host_call("exporter.begin", begin).map_err(failed)?;
        let writer = TracedDrop::new(writer, account, "writer.release");
        let (session, schema) = (session.clone(), schema.clone());
        // A plugin may put the batch itself into a capsule, without copying the batch.
        let has_external_capsule =
            format.capsules.iter().any(|name| name.as_bytes() != abi::EncodedArray::NAME.to_bytes());
        let is_exported = has_external_capsule && output.is_none();
        Ok(Self { writer, plugin, session, call, schema, format, name, output, is_exported, failed: false })
    }

    /// The plugin that writes.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    pub(crate) fn shared_plugin(&self) -> Arc<Plugin> {
        self.plugin.clone()
    }

    /// The name of the format.
    pub fn format(&self) -> &str {
        &self.format.name
    }

    /// The number of bytes written so far; 0 for capsules.
    pub fn bytes_written(&self) -> u64 {
        self.output.as_ref().map_or(0, Output::bytes_written)
    }

    /// Moves the batch to host memory, unless the format accepts its device.
    pub fn place(&self, batch: DeviceBatch) -> Result<DeviceBatch> {
        if self.format.accepts_device(batch.device().r#type) {
            return Ok(batch);
        }
        if !self.format.accepts_device(Device::CPU.r#type) {
            return Err(Error::usage(format!(
                "{} accepts batches neither on {} nor in host memory",
                self.format.name,
                batch.device()
            )));
        }
        move_batch(&self.session, batch, Device::CPU)
    }

    /// Writes a batch with the output's schema. Returns the batch's capsules, for formats of
    /// capsules.
    pub fn write(&mut self, batch: DeviceBatch) -> Result<Vec<Capsule>> {
        let result = guarded(|| self.write_batch(batch));
        self.failed |= result.is_err();
        result
    }

    /// Writes batches with the output's schema, and calls `written` after each. The batches must
    /// not change meanwhile. A plugin in a process of its own receives several at a time.
    ///
    /// # Errors
    /// The error of a batch, or of one of the last batches before it.
    pub fn write_all(
        &mut self,
        batches: &[DeviceBatch],
        mut written: impl FnMut(&DeviceBatch),
    ) -> Result<()> {
        let Some((last, others)) = batches.split_last() else { return Ok(()) };
        for batch in others {
            crossdock_isolation::with_more_to_follow(|| self.write_borrowed(batch))?;
            written(batch);
        }
        self.write_borrowed(last)?;
        written(last);
        Ok(())
    }

    /// Like [`Self::write`], for a batch after which the caller writes another one or finishes the
    /// output before it returns to the application. A plugin in a process of its own may receive
    /// the batch later, so its error may be that of a later call.
    pub(crate) fn write_with_more_to_follow(&mut self, batch: DeviceBatch) -> Result<Vec<Capsule>> {
        crossdock_isolation::with_more_to_follow(|| self.write(batch))
    }

    /// Like [`Self::write`], without taking ownership of the batch.
    pub fn write_borrowed(&mut self, batch: &DeviceBatch) -> Result<Vec<Capsule>> {
        if !self.format.accepts_device(batch.device().r#type) {
            return self.write(batch.clone());
        }
        let result = self.session.check_cancelled().and_then(|()| guarded(|| self.write_placed(batch)));
        self.failed |= result.is_err();
        result
    }

    /// Like [`Self::write`], for a batch whose number of rows may be on the device. If the format
    /// accepts such batches on this device (`CROSSDOCK_FORMAT_DEVICE_ROWS`), the host does not read
    /// the number.
    pub fn write_pending(&mut self, batch: &PendingBatch) -> Result<Vec<Capsule>> {
        let result = guarded(|| self.write_pending_batch(batch));
        self.failed |= result.is_err();
        result
    }

    fn write_pending_batch(&mut self, batch: &PendingBatch) -> Result<Vec<Capsule>> {
        let is_accepted = self.format.device_rows && self.format.accepts_device(batch.device().r#type);
        if batch.known_rows().is_some() || !is_accepted || !batch.has_fixed_width() {
            let settled = batch.settle(self.session.stream());
            return self.write_batch(settled.map_err(|error| self.plugin.failed(&self.name, error))?);
        }
        self.session.check_cancelled()?;
        self.check_schema(batch.schema())?;
        let raw = export_pending(batch, self.session.stream(), self.is_exported);
        self.write_raw(raw.map_err(|error| self.plugin.failed(&self.name, error))?)
    }

    fn write_batch(&mut self, batch: DeviceBatch) -> Result<Vec<Capsule>> {
        self.session.check_cancelled()?;
        let batch = self.place(batch)?;
        self.write_placed(&batch)
    }

    fn write_placed(&mut self, batch: &DeviceBatch) -> Result<Vec<Capsule>> {
        self.check_schema(batch.schema())?;
        let export = if self.is_exported { export_batch_to_external } else { export_batch };
        let raw = export(batch, false, self.session.stream());
        self.write_raw(raw.map_err(|error| self.plugin.failed(&self.name, error))?)
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        match schema_difference(&self.schema, schema) {
            None => Ok(()),
            Some(difference) => {
                Err(Error::usage(format!("the batch does not have the output's schema: {difference}")))
            }
        }
    }

    fn write_raw(&mut self, raw: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        let account = self.plugin.account();
        let write = || self.writer.write(&self.call, tracing_hooks::batch(raw, account, Producer::Host));
        account.trace_host_call("writer.write", write).map_err(|error| self.plugin.failed(&self.name, error))
    }

    /// Finishes the output. A file appears at its path now.
    ///
    /// # Errors
    /// [`Error::Usage`] if an earlier batch could not be written. The incomplete output is
    /// discarded.
    pub fn finish(self) -> Result<Finished> {
        self.session.check_cancelled()?;
        if self.failed {
            return Err(Error::usage(format!(
                "cannot {}: an earlier batch was not written; start a new output",
                self.name
            )));
        }
        let Self { writer, plugin, call, name, output, .. } = self;
        let finish = || writer.into_inner().finish(&call);
        let capsules = plugin
            .account()
            .trace_host_call("writer.finish", finish)
            .map_err(|error| plugin.failed(&name, error))?;
        let bytes_written = output.as_ref().map_or(0, Output::bytes_written);
        if let Some(output) = output {
            output.commit()?;
        }
        plugin.end();
        Ok(Finished { capsules, bytes_written })
    }
}

/// The result of [`Writer::finish`].
pub struct Finished {
    /// The capsules that the format returns only at the end.
    pub capsules: Vec<Capsule>,
    /// The total number of bytes written; 0 for capsules.
    pub bytes_written: u64,
}

/// Describes the first difference between two schemas: in names, types, nullability or metadata.
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
            format!("expected column '{}', got '{}'", e.name(), g.name())
        }
        Some((e, g)) if e.data_type() != g.data_type() => {
            format!(
                "column '{}': expected {}, got {}",
                e.name(),
                crossdock_arrays::type_name(e.data_type()),
                crossdock_arrays::type_name(g.data_type())
            )
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
    fn describes_the_first_difference_of_two_schemas() {
        let note = || std::collections::HashMap::from([("k".to_owned(), "v".to_owned())]);
        let field = || Field::new("a", DataType::Int8, false);
        let one = |field: Field| Arc::new(Schema::new(vec![Field::new("same", DataType::Null, true), field]));
        let difference = |other: SchemaRef| schema_difference(&one(field()), &other);
        assert_eq!(difference(one(field())), None);
        for (other, expected) in [
            (Arc::new(Schema::empty()), "expected 2 columns, got 0"),
            (one(field().with_name("b")), "expected column 'a', got 'b'"),
            (one(field().with_data_type(DataType::Int16)), "column 'a': expected int8, got int16"),
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
