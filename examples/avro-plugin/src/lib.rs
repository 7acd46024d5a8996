//! Reads and writes Avro object container files with the crate `arrow-avro`.

use std::sync::Arc;

use arrow_avro::compression::CompressionCodec;
use arrow_avro::reader::ReaderBuilder;
use arrow_avro::writer::format::AvroOcfFormat;
use arrow_avro::writer::{AvroWriter, WriterBuilder};
use crossdock_arrow::arrow_array::{RecordBatch, RecordBatchReader};
use crossdock_arrow::arrow_schema::{Field, Schema, SchemaRef};
use crossdock_arrow::plugin_api::{Error, Format, OptionInfo, Options, ReadRequest};
use crossdock_arrow::{ArrowFormat, ArrowPlugin, BoxError, SinkWriter, SourceReader, WriteBatches};

/// The number of rows of a batch if the caller has no preference.
const BATCH_ROWS: usize = 65_536;

#[derive(Default)]
pub struct Avro;

impl ArrowFormat for Avro {
    fn format(&self) -> Format {
        Format {
            magics: vec![(0, b"Obj\x01".to_vec())],
            extensions: vec![".avro".into()],
            ..Format::new("avro", "Avro object container files: tables with types that Avro has")
        }
    }

    fn write_options(&self) -> Vec<OptionInfo> {
        let description = "the codec of the blocks: none, deflate (the default), snappy, zstd, bzip2 or xz";
        vec![OptionInfo { key: "compression".into(), description: description.into() }]
    }

    fn read(
        &self,
        input: SourceReader,
        request: &ReadRequest<'_>,
    ) -> Result<Box<dyn RecordBatchReader + Send>, BoxError> {
        let batch_rows = match request.selection.batch_rows {
            0 => BATCH_ROWS,
            rows => usize::try_from(rows)?,
        };
        Ok(Box::new(ReaderBuilder::new().with_batch_size(batch_rows).build(input)?))
    }

    fn write(
        &self,
        output: SinkWriter,
        schema: &SchemaRef,
        options: &Options,
    ) -> Result<Box<dyn WriteBatches>, BoxError> {
        let codec = match options.get("compression") {
            Some("none") => None,
            None | Some("deflate") => Some(CompressionCodec::Deflate),
            Some("snappy") => Some(CompressionCodec::Snappy),
            Some("zstd") => Some(CompressionCodec::ZStandard),
            Some("bzip2") => Some(CompressionCodec::Bzip2),
            Some("xz") => Some(CompressionCodec::Xz),
            Some(other) => {
                let expected = "none, deflate, snappy, zstd, bzip2 or xz";
                return Err(
                    Error::invalid_argument(format!("compression '{other}', expected {expected}")).into()
                );
            }
        };
        let builder = WriterBuilder::new(Schema::clone(schema)).with_compression(codec);
        Ok(Box::new(Writer(builder.build::<_, AvroOcfFormat>(output)?)))
    }

    fn problem(&self, field: &Field) -> Option<String> {
        // The crate rejects some types when a writer is created, and others with the first batch.
        let batch = RecordBatch::new_empty(Arc::new(Schema::new(vec![field.clone()])));
        let builder = WriterBuilder::new(Schema::clone(&batch.schema()));
        let writer = builder.build::<_, AvroOcfFormat>(std::io::sink());
        writer.and_then(|mut writer| writer.write(&batch)).err().map(|error| error.to_string())
    }
}

struct Writer(AvroWriter<SinkWriter>);

impl WriteBatches for Writer {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), BoxError> {
        Ok(self.0.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), BoxError> {
        Ok(self.0.finish()?)
    }
}

crossdock_arrow::plugin_api::crossdock_plugin!(
    ArrowPlugin<Avro>,
    name: "avro",
    description: "Reads and writes Avro files",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "avro",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1",
);
