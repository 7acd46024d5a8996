//! A host with only the plugin `csv`, and functions that read and write CSV in memory.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, Table, WriteOptions};
use crossdock_arrays::{export_schema, import_batch, import_schema};
use crossdock_memory_backend::{Backend, Faults};
use crossdock_plugin_api::{
    ByteSource, CallSettings, Device, Input as ApiInput, Options, ReadRequest, Source, Validate,
};
use crossdock_tests::csv_plugin;

/// Options, as pairs of a name and a value.
pub type Pairs<'a> = &'a [(&'a str, &'a str)];

pub struct Fixture {
    pub host: Host,
    pub session: Session,
}

impl Fixture {
    pub fn new() -> Self {
        Self::over(Backend::builder().build())
    }

    pub fn with_faults(faults: Faults) -> Self {
        Self::over(Backend::builder().faults(faults).build())
    }

    pub fn with_limit(bytes: usize) -> Self {
        Self::over(Backend::builder().limit_bytes(bytes).build())
    }

    fn over(backend: Backend) -> Self {
        let search = Search::nowhere().with_path(csv_plugin());
        let host = Host::builder().backend(backend).search(search).build().unwrap();
        // The host validates every batch that the plugin returns.
        let session = host.session().validate(Validate::Full).open().unwrap();
        Self { host, session }
    }

    /// Reads a CSV text. The column types are those in `options`, or are inferred.
    pub fn read(&self, text: impl AsRef<[u8]>, options: Pairs<'_>) -> Result<Read, String> {
        let read =
            ReadOptions { from: Some("csv".into()), options: pairs(options), ..ReadOptions::default() };
        let input = Input::bytes(text.as_ref().to_vec());
        let reader = self.session.read(input, &read).map_err(|e| error_chain(&e))?;
        let table = Table::from_reader(&self.session, reader).map_err(|e| error_chain(&e))?;
        Read::from_table(&table)
    }

    /// Reads a source with an expected schema.
    pub fn read_as(
        &self,
        source: Arc<dyn ByteSource>,
        schema: Option<&Schema>,
        options: Pairs<'_>,
        call: &CallSettings,
    ) -> Result<Read, String> {
        let plugin = self.session.plugin("csv").unwrap();
        let message_of = |error: crossdock_plugin_api::Error| error.message().to_string();
        let expected = schema.map(|schema| export_schema(schema).unwrap());
        let input = ApiInput::Source(Source::new(source));
        let importer = plugin.importer().unwrap();
        let mut stream = importer
            .open(
                call,
                input,
                &ReadRequest::new("csv").with_schema(expected.as_deref()).with_options(&pairs(options)),
            )
            .map_err(message_of)?;
        let schema: SchemaRef = Arc::new(import_schema(&stream.schema().map_err(message_of)?).unwrap());
        let mut batches = Vec::new();
        while let Some(batch) = stream.next(call).map_err(message_of)? {
            batches.push(import_batch(batch, &schema, self.session.memory()).map_err(message_of)?);
        }
        let table = Table::from_batches(&self.session, schema, batches).map_err(|e| error_chain(&e))?;
        Read::from_table(&table)
    }

    /// Reads a CSV text with an expected schema.
    pub fn read_with(&self, text: &[u8], schema: &Schema, options: Pairs<'_>) -> Result<Read, String> {
        let source = Arc::new(Text { bytes: text.to_vec(), step: usize::MAX, is_pipe: false });
        self.read_as(source, Some(schema), options, &CallSettings::new(Device::CPU))
    }

    pub fn write(&self, batches: &[RecordBatch], options: Pairs<'_>) -> Result<String, String> {
        let table = Table::from_record_batches(&self.session, batches[0].schema(), batches);
        let table = table.map_err(|e| error_chain(&e))?;
        let write = WriteOptions { to: Some("csv".into()), options: pairs(options) };
        let sink = VecSink::new();
        table.write_to(Output::Memory(sink.clone()), &write).map_err(|e| error_chain(&e))?;
        Ok(String::from_utf8(sink.take()).unwrap())
    }

    /// Fails the test if something leaked.
    pub fn assert_settled(self) {
        let Self { host, session } = self;
        drop(session);
        assert_eq!(host.settle(), []);
    }
}

/// A table that was read.
#[derive(Debug)]
pub struct Read {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl Read {
    fn from_table(table: &Table) -> Result<Self, String> {
        let batches = table.to_record_batches().map_err(|e| error_chain(&e))?;
        Ok(Self { schema: table.schema().clone(), batches })
    }

    /// The only batch.
    pub fn batch(&self) -> &RecordBatch {
        assert_eq!(self.batches.len(), 1, "expected one batch");
        &self.batches[0]
    }

    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A source that returns at most `step` bytes of the text per read.
pub struct Text {
    pub bytes: Vec<u8>,
    pub step: usize,
    pub is_pipe: bool,
}

impl ByteSource for Text {
    fn name(&self) -> &str {
        "test.csv"
    }
    fn len(&self) -> Option<u64> {
        (!self.is_pipe).then_some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> crossdock_plugin_api::Result<usize> {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len()).min(self.step);
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

fn pairs(options: Pairs<'_>) -> Options {
    options.iter().fold(Options::new(), |all, (key, value)| all.with(*key, *value))
}

/// The message of an error, followed by the messages of its sources.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        None => error.to_string(),
        Some(cause) => format!("{error}: {}", error_chain(cause)),
    }
}
