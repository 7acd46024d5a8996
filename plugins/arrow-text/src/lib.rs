//! Plugin that reads and writes CSV and NDJSON (JSON Lines), also compressed with gzip or
//! Zstandard.
//!
//! Text is read in order, decompressed, and divided into chunks of whole records. The threads of
//! the session parse the chunks. Batches are in host memory; the host copies them to the device of
//! the session.
//!
//! The values of CSV are read with the parsers of arrow-cast, and NDJSON with arrow-json. The
//! fields of CSV are not found by arrow-csv: it does not distinguish a quoted empty text from a
//! null, its errors count records instead of lines, and some of its columns drop digits and time
//! zones silently.
//!
//! - `input`: decompresses a source; `chunks`: divides its text.
//! - `csv`, `ndjson`: the formats; `values`: values in both.
//! - `reader`: parses chunks on several threads; `writer`: formats batches on several threads.
//! - `output`: compresses text.

mod chunks;
mod csv;
mod input;
mod lines;
mod ndjson;
mod options;
mod output;
mod reader;
mod types;
mod values;
mod writer;

use std::sync::Arc;

use crossdock_arrays::import_schema_ref;
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchStream, BatchWriter, Call, ColumnPlan, Device, Error, Exporter, Format, Host, Importer, Input,
    Options, Plugin, ReadRequest, Result, Sink, Tasks, abi,
};

use options::{Compression, CsvWriteOptions, NdjsonWriteOptions};
use output::Output;

/// The name of the format CSV.
pub const CSV: &str = "csv";
/// The name of the format NDJSON.
pub const NDJSON: &str = "ndjson";

/// The plugin: an importer and an exporter of both formats.
pub struct ArrowText {
    host: Host,
    memory: Memory,
    tasks: Tasks,
    import_formats: [Format; 2],
    export_formats: [Format; 2],
}

impl Plugin for ArrowText {
    fn create(host: Host) -> Result<Self> {
        let [csv, ndjson] = formats();
        let export_formats =
            [options::describe_csv_output(csv.clone()), options::describe_ndjson_output(ndjson.clone())];
        Ok(Self {
            memory: Memory::from_host(&host)?.with_host_kernels()?,
            tasks: Tasks::from_host(&host)?,
            host,
            import_formats: [options::describe_csv(csv), options::describe_ndjson(ndjson)],
            export_formats,
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
    let format = |name: &str, description: &str, extensions: [&str; 2]| {
        let compressed = |extension: &&str| ["", ".gz", ".zst"].map(|codec| format!("{extension}{codec}"));
        Format {
            bytes: true,
            extensions: extensions.iter().flat_map(compressed).collect(),
            device_types: vec![Device::CPU.r#type],
            ..Format::new(name, description)
        }
    };
    [
        format(CSV, "comma-separated values: any table without nested columns", [".csv", ".tsv"]),
        format(
            NDJSON,
            "newline-delimited JSON (JSON Lines): any table, one object per row",
            [".ndjson", ".jsonl"],
        ),
    ]
}

impl Importer for ArrowText {
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
        let limit = self.host.session().map_or(0, |session| session.memory_limit_bytes);
        let input = reader::Input::new(source, call, request, limit, self.tasks.width());
        let opened = match request.format {
            CSV => csv::open(&input),
            _ => ndjson::open(&input),
        }?;
        Ok(Box::new(reader::Reader::new(opened, request, &self.tasks)))
    }
}

impl Exporter for ArrowText {
    fn formats(&self) -> &[Format] {
        &self.export_formats
    }

    fn plan(
        &self,
        _: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        _: Device,
        options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        // SAFETY: the plugin boundary requires a valid schema that lives until the call returns.
        let schema = unsafe { import_schema_ref(schema) }?;
        Compression::of_options(options)?;
        Ok(writer::plan(&*writer_format(format, options, "")?, &schema))
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
        let schema = unsafe { import_schema_ref(schema) }?;
        let of_name = Compression::of_name(sink.name());
        let compression = Compression::of_options(options)?.unwrap_or(of_name);
        let format = writer_format(format, options, sink.name())?;
        let out = || Output::new(sink, compression);
        Ok(Box::new(writer::Writer::new(format, schema, out, &self.memory, &self.tasks)?))
    }
}

fn writer_format(format: &str, options: &Options, name: &str) -> Result<Arc<dyn writer::Format>> {
    Ok(match format {
        CSV => Arc::new(csv::CsvFormat(CsvWriteOptions::read(options, name)?)),
        _ => Arc::new(ndjson::NdjsonFormat(NdjsonWriteOptions::read(options)?)),
    })
}
