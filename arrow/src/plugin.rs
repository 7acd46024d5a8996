//! Plugins that read and write record batches.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader, RecordBatchWriter};
use arrow_schema::{Field, FieldRef, SchemaRef};
use crossdock_arrays::{call_stream, export_schema, import_batch, import_schema_ref};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Exporter, Format, Host, Importer,
    Input, OptionInfo, Options, Owned, Plugin, ReadRequest, Result, Sink, Verdict, abi,
};

use crate::error::{BoxError, FirstError};
use crate::exchange::{from_host, to_host};
use crate::io::{SinkWriter, SourceReader};

/// A format that a crate reads into record batches, or writes from record batches.
///
/// Errors may be those of any crate. They become "bad data" when reading and "unsupported" when
/// writing, unless they are errors of the plugin interface, which keep their code. A panic becomes
/// an error in the same way.
pub trait ArrowFormat: Default + Send + Sync + 'static {
    /// Whether the plugin reads the format.
    const READS: bool = true;
    /// Whether the plugin writes the format.
    const WRITES: bool = true;

    /// The name, the description, the file extensions and the magic numbers of the format.
    /// [`ArrowPlugin`] sets the other fields.
    fn format(&self) -> Format;

    /// The options of [`Self::read`].
    fn read_options(&self) -> Vec<OptionInfo> {
        Vec::new()
    }

    /// The options of [`Self::write`].
    fn write_options(&self) -> Vec<OptionInfo> {
        Vec::new()
    }

    /// Opens an input. The host selects the requested columns and rows, so the reader may ignore
    /// the selection of the request.
    ///
    /// # Errors
    /// Any error.
    fn read(
        &self,
        input: SourceReader,
        request: &ReadRequest<'_>,
    ) -> std::result::Result<Box<dyn RecordBatchReader + Send>, BoxError> {
        let _ = input;
        Err(Error::unsupported(format!("the plugin does not read {}", request.format)).into())
    }

    /// Begins an output.
    ///
    /// # Errors
    /// Any error.
    fn write(
        &self,
        output: SinkWriter,
        schema: &SchemaRef,
        options: &Options,
    ) -> std::result::Result<Box<dyn WriteBatches>, BoxError> {
        let (_, _, _) = (output, schema, options);
        Err(Error::unsupported(format!("the plugin does not write {}", self.format().name)).into())
    }

    /// Why the format cannot store columns of this type; `None` if it can.
    fn problem(&self, field: &Field) -> Option<String> {
        let _ = field;
        None
    }
}

/// Writes record batches. Each [`RecordBatchWriter`] of arrow-rs implements it.
pub trait WriteBatches: Send {
    /// Writes a batch.
    ///
    /// # Errors
    /// Any error.
    fn write(&mut self, batch: &RecordBatch) -> std::result::Result<(), BoxError>;

    /// Completes the output.
    ///
    /// # Errors
    /// Any error.
    fn finish(self: Box<Self>) -> std::result::Result<(), BoxError>;
}

impl<W: RecordBatchWriter + Send> WriteBatches for W {
    fn write(&mut self, batch: &RecordBatch) -> std::result::Result<(), BoxError> {
        Ok(RecordBatchWriter::write(self, batch)?)
    }

    fn finish(self: Box<Self>) -> std::result::Result<(), BoxError> {
        Ok((*self).close()?)
    }
}

/// A plugin for one format.
pub struct ArrowPlugin<F> {
    format: F,
    memory: Memory,
    import_formats: [Format; 1],
    export_formats: [Format; 1],
}

impl<F: ArrowFormat> Plugin for ArrowPlugin<F> {
    fn create(host: Host) -> Result<Self> {
        let format = F::default();
        let with_options = |options| Format {
            bytes: true,
            device_types: vec![Device::CPU.r#type],
            options,
            ..format.format()
        };
        Ok(Self {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            import_formats: [with_options(format.read_options())],
            export_formats: [with_options(format.write_options())],
            format,
        })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        F::READS.then_some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        F::WRITES.then_some(self)
    }
}

impl<F: ArrowFormat> Importer for ArrowPlugin<F> {
    fn formats(&self) -> &[Format] {
        &self.import_formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        call.check_cancelled()?;
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument(format!(
                "{} is read from a source of bytes",
                request.format
            )));
        };
        let input = SourceReader::new(source);
        let (name, error) = (input.name().to_owned(), input.error.clone());
        let reader = error.guard(Error::bad_data, || self.format.read(input, request));
        Ok(Box::new(Stream { reader: reader.map_err(|error| in_file(&name, error))?, name, error }))
    }
}

/// The batches of an input.
struct Stream {
    reader: Box<dyn RecordBatchReader + Send>,
    name: String,
    error: FirstError,
}

impl BatchStream for Stream {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.reader.schema())
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        let next = self.error.guard(Error::bad_data, || Ok(self.reader.next().transpose()?));
        Ok(next.map_err(|error| in_file(&self.name, error))?.map(to_host))
    }
}

fn in_file(name: &str, error: Error) -> Error {
    if error.message().contains(name) { error } else { error.context(format_args!("'{name}'")) }
}

impl<F: ArrowFormat> Exporter for ArrowPlugin<F> {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        _: Device,
        _: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        // SAFETY: the plugin boundary requires a valid schema that lives until the call returns.
        let schema = unsafe { import_schema_ref(schema) }?;
        let plan = |field: &FieldRef| {
            let (verdict, reason) = match self.format.problem(field) {
                Some(why) => (Verdict::Unsupported, why),
                None => (Verdict::Converted, format!("written as {format}")),
            };
            ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
        };
        Ok(schema.fields().iter().map(plan).collect())
    }

    fn begin(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        call.check_cancelled()?;
        let sink = sink.ok_or_else(|| Error::invalid_argument(format!("{format} needs a sink, got none")))?;
        // SAFETY: the plugin boundary requires a valid schema that lives until the call returns.
        let schema = Arc::new(unsafe { import_schema_ref(schema) }?);
        for field in schema.fields() {
            if let Some(why) = self.format.problem(field) {
                let (name, data_type) = (field.name(), field.data_type());
                return Err(Error::unsupported(format!(
                    "column '{name}' is {data_type}: {why}",
                    data_type = crossdock_arrays::type_name(data_type)
                )));
            }
        }
        let output = SinkWriter::new(sink);
        let (name, error) = (output.name().to_owned(), output.error.clone());
        let writer = error.guard(Error::unsupported, || self.format.write(output, &schema, options));
        let writer = Some(writer.map_err(|error| in_file(&name, error))?);
        Ok(Box::new(Writer { writer, schema, memory: self.memory.clone(), name, error }))
    }
}

/// The output of batches.
struct Writer {
    /// `None` after a failed call.
    writer: Option<Box<dyn WriteBatches>>,
    schema: SchemaRef,
    memory: Memory,
    name: String,
    error: FirstError,
}

impl Writer {
    fn take(&mut self) -> Result<Box<dyn WriteBatches>> {
        self.writer.take().ok_or_else(|| Error::invalid_argument("the writer is used after an error"))
    }
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        let stream = call_stream(&self.memory, call, Device::CPU)?;
        let batch = from_host(&batch, &self.schema, &stream)?;
        let mut writer = self.take()?;
        let written = self.error.guard(Error::unsupported, || {
            writer.write(&batch)?;
            Ok(writer)
        });
        self.writer = Some(written.map_err(|error| in_file(&self.name, error))?);
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let writer = self.take()?;
        let finished = self.error.guard(Error::unsupported, || writer.finish());
        finished.map_err(|error| in_file(&self.name, error))?;
        Ok(Vec::new())
    }
}
