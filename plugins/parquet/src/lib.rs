//! A plugin that reads and writes Parquet files with the crate `parquet`.
//!
//! The crate decodes columns. This plugin decides what to decode, on which thread, and in how many
//! rows at a time:
//!
//! - `bytes`: reads ranges of a file; `thrift`: reads metadata that the crate does not check.
//! - `footer`, `page_index`, `pages`: the metadata of a file, of column chunks and of pages.
//! - `columns`: finds the column chunks of columns and nested fields.
//! - `prune`: finds the rows that can fulfil predicates; `rows`: ranges of rows.
//! - `plan`: divides the rows into parts and batches; `fragments`: names row groups; `statistics`:
//!   their statistics.
//! - `lane`: decodes a column of a part; `running`: decodes the columns on the session's threads.
//! - `reader`: the stream of batches.
//! - `settings`, `types`: the options and types of files; `writer`: writes batches to `sink`.

mod bytes;
mod columns;
mod encoded;
mod error;
mod footer;
mod fragments;
mod hybrid;
mod lane;
mod on_device;
mod page_index;
mod pages;
mod plan;
mod prune;
mod reader;
mod rows;
mod running;
mod schema;
mod settings;
mod sink;
mod statistics;
mod thrift;
mod types;
mod units;
mod writer;

use arrow_schema::FieldRef;
use crossdock_arrays::import_schema_ref;
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Fragment, Host, Importer,
    Input, Options, Plugin, ReadRequest, Result, Sink, Tasks, Verdict, abi, crossdock_plugin,
};

use reader::{Context, Reader};
use settings::Settings;
use writer::Writer;

/// The name of the format.
pub const FORMAT: &str = "parquet";

crossdock_plugin!(
    Parquet,
    name: "parquet",
    description: "reads and writes Parquet files",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "parquet",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.tasks/1",
);

/// An instance of the plugin.
pub struct Parquet {
    context: Context,
    read: [Format; 1],
    written: [Format; 1],
}

impl Plugin for Parquet {
    fn create(host: Host) -> Result<Self> {
        let context = Context {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            tasks: Tasks::from_host(&host)?,
            host,
        };
        let magics = [footer::MAGIC, footer::ENCRYPTED].map(|magic| (0, magic.to_vec()));
        let format = Format {
            bytes: true,
            filters: true,
            magics: magics.into(),
            extensions: vec![".parquet".into()],
            ..Format::new(FORMAT, "Parquet file: a table of compressed columns")
        };
        let written = Format {
            filters: false,
            magics: Vec::new(),
            device_types: vec![abi::DEVICE_CPU],
            ..format.clone()
        };
        let written =
            settings::OPTIONS.iter().fold(written, |format, (key, text)| format.with_option(key, text));
        Ok(Self { context, read: [format], written: [written] })
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

impl Importer for Parquet {
    fn formats(&self) -> &[Format] {
        &self.read
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        Ok(Box::new(Reader::open(&self.context, call, input, request)?))
    }

    fn has_fragments(&self) -> bool {
        true
    }

    fn fragments(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Vec<Fragment>> {
        Reader::open(&self.context, call, input, request)?.fragments()
    }
}

impl Exporter for Parquet {
    fn formats(&self) -> &[Format] {
        &self.written
    }

    fn plan(
        &self,
        _: &Call<'_>,
        _format: &str,
        schema: &abi::ArrowSchema,
        _from: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        let how = Settings::from_options(options)?.description();
        // SAFETY: the trait passes a valid schema, which is borrowed for the call.
        let schema = unsafe { import_schema_ref(schema) }?;
        let column = |field: &FieldRef| {
            let (verdict, reason) = match types::check(field) {
                Ok(()) => (Verdict::Converted, how.clone()),
                Err(error) => (Verdict::Unsupported, error.message().to_owned()),
            };
            ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
        };
        Ok(schema.fields().iter().map(column).collect())
    }

    fn begin(
        &self,
        call: &Call<'_>,
        _format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        let settings = Settings::from_options(options)?;
        let sink = sink.ok_or_else(|| Error::invalid_argument("a Parquet file needs a sink, got none"))?;
        // SAFETY: the trait passes a valid schema, which is borrowed for the call.
        let schema = unsafe { import_schema_ref(schema) }?;
        Ok(Box::new(Writer::begin(call, schema, &settings, sink, &self.context)?))
    }
}
