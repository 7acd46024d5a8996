//! Crossdock plugins around crates of arrow-rs, without `unsafe` code.
//!
//! An author implements [`ArrowFormat`] with the reader and the writer of an existing crate.
//! [`ArrowPlugin`] is then a plugin, which passes record batches to and from the host without a
//! copy, and converts errors and panics.
//!
//! ```
//! use std::io::{self, BufRead, Write};
//! use std::sync::Arc;
//!
//! use crossdock_arrow::arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
//! use crossdock_arrow::arrow_array::{RecordBatchReader, cast::AsArray, types::Int64Type};
//! use crossdock_arrow::arrow_schema::{DataType, Field, SchemaRef};
//! use crossdock_arrow::plugin_api::{Format, Options, ReadRequest};
//! use crossdock_arrow::{ArrowFormat, BoxError, SinkWriter, SourceReader, WriteBatches};
//!
//! /// One number per line.
//! #[derive(Default)]
//! struct Numbers;
//!
//! impl ArrowFormat for Numbers {
//!     fn format(&self) -> Format {
//!         let extensions = vec![".numbers".into()];
//!         Format { extensions, ..Format::new("numbers", "one number per line") }
//!     }
//!
//!     fn read(
//!         &self,
//!         input: SourceReader,
//!         _: &ReadRequest<'_>,
//!     ) -> Result<Box<dyn RecordBatchReader + Send>, BoxError> {
//!         let parse =
//!             |line: io::Result<String>| -> Result<i64, BoxError> { Ok(line?.trim().parse()?) };
//!         let numbers = input.lines().map(parse).collect::<Result<Vec<i64>, BoxError>>()?;
//!         let column: ArrayRef = Arc::new(Int64Array::from(numbers));
//!         let batch = RecordBatch::try_from_iter([("number", column)])?;
//!         let schema = batch.schema();
//!         Ok(Box::new(RecordBatchIterator::new([Ok(batch)], schema)))
//!     }
//!
//!     fn write(
//!         &self,
//!         output: SinkWriter,
//!         _: &SchemaRef,
//!         _: &Options,
//!     ) -> Result<Box<dyn WriteBatches>, BoxError> {
//!         Ok(Box::new(Writer(output)))
//!     }
//!
//!     fn problem(&self, field: &Field) -> Option<String> {
//!         (field.data_type() != &DataType::Int64).then(|| "expected integers of 64 bits".into())
//!     }
//! }
//!
//! struct Writer(SinkWriter);
//!
//! impl WriteBatches for Writer {
//!     fn write(&mut self, batch: &RecordBatch) -> Result<(), BoxError> {
//!         for number in batch.column(0).as_primitive::<Int64Type>().values() {
//!             writeln!(self.0, "{number}")?;
//!         }
//!         Ok(())
//!     }
//!
//!     fn finish(self: Box<Self>) -> Result<(), BoxError> {
//!         Ok(())
//!     }
//! }
//!
//! // In the library of the plugin:
//! crossdock_arrow::plugin_api::crossdock_plugin!(
//!     crossdock_arrow::ArrowPlugin<Numbers>,
//!     name: "numbers",
//!     description: "Reads and writes one number per line",
//!     interfaces: "crossdock.importer/1 crossdock.exporter/1",
//!     formats: "numbers",
//!     requires: "crossdock.host.memory/1 crossdock.host.kernels/1",
//! );
//! ```
//!
//! Other parts are useful alone: [`to_host`], [`from_host`] and [`to_device_array`] pass record
//! batches and arrays, [`SourceReader`] and [`SinkWriter`] are a source and a sink as
//! [`std::io::Read`], [`std::io::Seek`] and [`std::io::Write`], and [`other_arrow`] converts record
//! batches of another major version of arrow-rs.

mod error;
mod exchange;
mod io;
mod other_version;
mod plugin;

pub use arrow_array;
pub use arrow_schema;
pub use crossdock_plugin_api as plugin_api;

pub use error::BoxError;
pub use exchange::{from_host, to_device_array, to_host};
pub use io::{SinkWriter, SourceReader};
pub use plugin::{ArrowFormat, ArrowPlugin, WriteBatches};
