//! Plugin that reads and writes Arrow IPC files and streams on every device.
//!
//! The host reads the metadata of messages ([Arrow columnar format], "Serialization and
//! Interprocess Communication"). The body of a message is loaded directly to the batch's device,
//! into one allocation, and the columns are slices of this allocation. On `cpu`, an uncompressed
//! body of a mapped file is used without a copy.
//!
//! Some metadata can be represented only in IPC or only in Arrow's C interface:
//! - A file's footer metadata is kept in the schema's metadata under the prefix
//!   `crossdock.arrow-ipc.footer:`, and moved back into the footer when a file is written.
//! - The metadata of a record batch is kept with the batch. The metadata of other messages is
//!   dropped, with a warning in the host's log.
//! - IPC has no metadata for the values of a dictionary, such as an extension type. The metadata of
//!   the values is stored in the metadata of the dictionary's field, under the key
//!   [`DICTIONARY_VALUES`](crossdock_arrays::metadata::DICTIONARY_VALUES).
//!
//! An input results in the same table or in an error, whether its bytes are mapped, read at
//! offsets, or read from a pipe:
//! - A file must have a footer, and the footer must list exactly the messages of the file
//!   (`read/footer_check.rs`).
//! - Concatenated streams are read as one table if their fields are equal. Therefore a pipe is read
//!   to its end. Bytes after the end of a stream that are neither padding nor Arrow IPC are ignored
//!   with a warning.
//!
//! The fragments of a file are ranges of its record batches (`fragments.rs`); a stream is one
//! fragment. IPC stores no statistics.
//!
//! [Arrow columnar format]: https://arrow.apache.org/docs/format/Columnar.html

mod codec;
mod footer_metadata;
mod fragments;
mod limits;
mod partitioned_block;
mod plan;
mod pool;
mod read;
mod upload;
mod wire;
mod write;

use std::sync::Arc;

use arrow_schema::Schema;
use crossdock_arrays::import_schema_ref;
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Fragment, Host, Importer,
    Input, Options, Plugin, ReadRequest, Result, Sink, abi,
};

/// Public for benchmarks of the compression.
#[doc(hidden)]
pub use codec::Codec;
use pool::Pool;
use write::{Form, Settings};

/// The name of the file format.
pub const FILE: &str = "arrow-ipc-file";
/// The name of the stream format.
pub const STREAM: &str = "arrow-ipc-stream";

/// The Arrow IPC plugin: an importer and an exporter of files and streams.
pub struct ArrowIpc {
    host: Host,
    memory: Memory,
    pool: Arc<Pool>,
    import_formats: [Format; 2],
    export_formats: [Format; 2],
}

impl Plugin for ArrowIpc {
    fn create(host: Host) -> Result<Self> {
        Ok(Self {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            pool: Arc::new(Pool::new(host.threads())),
            host,
            import_formats: formats(),
            export_formats: formats().map(|format| {
                format
                    .with_option("compression", "compression of each buffer: none (the default), lz4 or zstd")
            }),
        })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

fn formats() -> [Format; 2] {
    let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
    [
        Format {
            bytes: true,
            magics: vec![(0, wire::frame::MAGIC.to_vec())],
            extensions: texts(&[".arrow", ".feather", ".ipc"]),
            ..Format::new(FILE, "Arrow IPC file (Feather 2): any table, with a footer for random access")
        },
        Format {
            bytes: true,
            magics: [vec![(0, wire::frame::CONTINUATION.to_vec())], wire::frame::legacy_magics()].concat(),
            extensions: texts(&[".arrows", "-"]),
            ..Format::new(STREAM, "Arrow IPC stream: any table, sequential, also through a pipe")
        },
    ]
}

impl Importer for ArrowIpc {
    fn formats(&self) -> &[Format] {
        &self.import_formats
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let mut reader = self.open_whole(call, input, request)?;
        if let Some(token) = request.fragment {
            reader.restrict(token)?;
        }
        reader.select(request.selection)?;
        Ok(Box::new(reader))
    }

    fn has_fragments(&self) -> bool {
        true
    }

    fn fragments(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        self.open_whole(call, input, request)?.fragments(call)
    }
}

impl ArrowIpc {
    fn open_whole(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<read::Reader> {
        parse_form(request.format)?;
        let reader = read::Reader::open(call, input, &self.host, &self.memory, &self.pool)?;
        if let Some(expected) = request.schema {
            reader.expect(&import_borrowed_schema(expected)?)?;
        }
        Ok(reader)
    }
}

impl Exporter for ArrowIpc {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let settings = parse_settings(format, options)?;
        Ok(plan::plan(&import_borrowed_schema(schema)?, from, settings.codec))
    }

    fn begin(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let memory_limit_bytes = self.host.session().map_or(0, |session| session.memory_limit_bytes);
        let settings = Settings { memory_limit_bytes, ..parse_settings(format, options)? };
        let sink = sink.ok_or_else(|| Error::invalid_argument("Arrow IPC needs a sink, got none"))?;
        let schema = Arc::new(import_borrowed_schema(schema)?);
        Ok(Box::new(write::Writer::begin(settings, schema, sink, &self.memory, &self.pool)?))
    }
}

fn parse_form(format: &str) -> Result<Form> {
    match format {
        FILE => Ok(Form::File),
        STREAM => Ok(Form::Stream),
        other => {
            Err(Error::invalid_argument(format!("unknown format '{other}', expected {FILE} or {STREAM}")))
        }
    }
}

fn parse_settings(format: &str, options: &Options) -> Result<Settings> {
    let codec = match options.get("compression") {
        None | Some("none") => None,
        Some("lz4") => Some(Codec::Lz4),
        Some("zstd") => Some(Codec::Zstd),
        Some(other) => {
            return Err(Error::invalid_argument(format!(
                "unknown compression '{other}', expected none, lz4 or zstd"
            )));
        }
    };
    Ok(Settings { form: parse_form(format)?, codec, memory_limit_bytes: 0 })
}

fn import_borrowed_schema(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the plugin boundary requires the caller to pass a valid ArrowSchema that lives until
    // the call returns.
    unsafe { import_schema_ref(schema) }
}
