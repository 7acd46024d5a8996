//! Arrow IPC for Crossdock: files and streams, both ways, on any device.
//!
//! Messages' metadata is read on the host ([Arrow columnar format], "Serialization and Interprocess Communication");
//! a body goes straight to where the batch is wanted, into one allocation of which the columns are slices. On `cpu`
//! an uncompressed body of a mapped file stays where it is.
//!
//! What IPC has and Arrow's C interface does not, or the other way round:
//! - A file's footer metadata travels in the schema's metadata under the prefix `crossdock.arrow-ipc.footer:`, and goes
//!   back into the footer when a file is written.
//! - A record batch's own metadata goes along with the batch; that of other messages is left out, with a warning in the
//!   host's log.
//! - The metadata of a dictionary's values, such as an extension type, have no place in IPC: they are the value of a key of
//!   the dictionary's field ([`DICTIONARY_VALUES`](crossdock_arrays::metadata::DICTIONARY_VALUES)).
//!
//! The same bytes give the same table, or an error, whether they are mapped, read at offsets or come through a pipe:
//! - A file needs its footer, which must list all messages of the file and no others (`read/footer_check.rs`).
//! - Streams one after another are one table if their fields are equal, so a pipe is read to its end. Bytes after the end
//!   of a stream that are neither padding nor Arrow IPC are left out, with a warning.
//!
//! [Arrow columnar format]: https://arrow.apache.org/docs/format/Columnar.html

mod codec;
mod filling;
mod footer_metadata;
mod limits;
mod plan;
mod pool;
mod read;
mod sending;
mod wire;
mod write;

use std::sync::Arc;

use arrow_schema::Schema;
use crossdock_arrays::import_schema_ref;
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, Result, Sink, abi,
};

/// For benchmarks, which measure it alone.
#[doc(hidden)]
pub use codec::Codec;
use pool::Pool;
use write::{Form, Settings};

/// The name of the file form.
pub const FILE: &str = "arrow-ipc-file";
/// The name of the stream form.
pub const STREAM: &str = "arrow-ipc-stream";

/// The plugin: an importer and an exporter of both forms.
pub struct ArrowIpc {
    host: Host,
    memory: Memory,
    pool: Arc<Pool>,
    read: [Format; 2],
    written: [Format; 2],
}

impl Plugin for ArrowIpc {
    fn create(host: Host) -> Result<Self> {
        Ok(Self {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            pool: Arc::new(Pool::new(host.threads())),
            host,
            read: formats(),
            written: formats().map(|format| {
                format.with_option("compression", "of each buffer: none (the default), lz4 or zstd")
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
            endings: texts(&[".arrow", ".feather", ".ipc"]),
            ..Format::new(FILE, "Arrow IPC file (Feather 2): any table, with a footer for random access")
        },
        Format {
            bytes: true,
            magics: [vec![(0, wire::frame::CONTINUATION.to_vec())], wire::frame::legacy_magics()].concat(),
            endings: texts(&[".arrows", "-"]),
            ..Format::new(STREAM, "Arrow IPC stream: any table, in order, through a pipe too")
        },
    ]
}

impl Importer for ArrowIpc {
    fn formats(&self) -> &[Format] {
        &self.read
    }

    fn open(
        &self,
        call: &Call<'_>,
        format: &str,
        input: Input,
        schema: Option<&abi::ArrowSchema>,
        _: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        form_of(format)?;
        let reader = read::Reader::open(call, input, &self.host, &self.memory, &self.pool)?;
        if let Some(expected) = schema {
            reader.expect(&read_schema(expected)?)?;
        }
        Ok(Box::new(reader))
    }
}

impl Exporter for ArrowIpc {
    fn formats(&self) -> &[Format] {
        &self.written
    }

    fn plan(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let settings = settings(format, options)?;
        Ok(plan::plan(&read_schema(schema)?, from, settings.codec))
    }

    fn begin(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let settings = settings(format, options)?;
        let sink = sink
            .ok_or_else(|| Error::invalid_argument("Arrow IPC is written to a sink, and none was given"))?;
        let schema = Arc::new(read_schema(schema)?);
        Ok(Box::new(write::Writer::begin(settings, schema, sink, &self.memory, &self.pool)?))
    }
}

fn form_of(format: &str) -> Result<Form> {
    match format {
        FILE => Ok(Form::File),
        STREAM => Ok(Form::Stream),
        other => Err(Error::invalid_argument(format!(
            "the format '{other}' is not ours: expected {FILE} or {STREAM}"
        ))),
    }
}

fn settings(format: &str, options: &Options) -> Result<Settings> {
    let codec = match options.get("compression") {
        None | Some("none") => None,
        Some("lz4") => Some(Codec::Lz4),
        Some("zstd") => Some(Codec::Zstd),
        Some(other) => {
            return Err(Error::invalid_argument(format!(
                "compression '{other}' is unknown: expected none, lz4 or zstd"
            )));
        }
    };
    Ok(Settings { form: form_of(format)?, codec })
}

fn read_schema(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the traits hand out schemas that their caller vouches for, borrowed for the call.
    unsafe { import_schema_ref(schema) }
}
