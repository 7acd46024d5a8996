//! A linked-in plugin in Rust, with five formats:
//!
//! - `mini`: the bytes `MINI`, then `i32` values, in batches of four;
//! - `mini-capsules`: device arrays in capsules;
//! - `mini-of-host`: the bytes `HOST` and the same values, only in host memory;
//! - `mini-padded`: the bytes `PADD` and the same values, in batches with two more rows of padding,
//!   whose number of rows is on the device;
//! - `mini-odd`, read only: the bytes `ODD!`; no rows, and columns that some formats reject.
//!
//! Writing the value -666 fails. Writing the value -667 panics, and so does writing capsules of a
//! column named "panic". Reading a batch of one value from capsules returns no batch. If the first
//! value of a padded batch is -668, its number of rows is 99.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{
    BatchStream, BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Exporter, Format, Host as HostHandle,
    Importer, Input, Options, Owned, Plugin, PluginDescription, ReadRequest, Result, Sink, Source, Verdict,
    abi, entry,
};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock_arrays::{
    DeviceArray, DeviceBatch, IntType, PendingBatch, batch_schema, export_batch, export_pending,
    export_schema, import_batch, import_schema, import_schema_ref,
};
use crossdock_memory::{Memory, Stream};

/// The number of batches in this process that were written with their number of rows on the device.
pub static COUNTERS_WRITTEN: AtomicIsize = AtomicIsize::new(0);

/// The number of instances in this process.
pub static ALIVE: AtomicIsize = AtomicIsize::new(0);

static ENTRY: abi::PluginEntry = entry::<Mini>();
static SECOND_ENTRY: abi::PluginEntry = entry::<Mini>();

/// The plugin.
pub fn linked() -> LinkedPlugin {
    LinkedPlugin::new(&ENTRY, about("mini").meta())
}

/// The same plugin with another name.
pub fn linked_as_second() -> LinkedPlugin {
    LinkedPlugin::new(&SECOND_ENTRY, about("second").meta())
}

fn about(name: &'static str) -> PluginDescription {
    PluginDescription {
        name,
        version: "0.1.0",
        description: "i32 values",
        licence: "Apache-2.0",
        interfaces: "crossdock.importer/1 crossdock.exporter/1",
        formats: "mini mini-capsules",
        encodings: "",
        requires: "",
        api_range: abi::API_RANGE,
    }
}

/// A host with only this plugin.
pub fn host() -> crossdock::Host {
    crossdock::Host::builder()
        .search(Search::nowhere().linked(linked()))
        .backend(crossdock::memory::Backend::builder().untouchable(true).build())
        .build()
        .unwrap()
}

/// The content of a file with these values.
pub fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().fold(b"MINI".to_vec(), |mut bytes, value| {
        bytes.extend(value.to_le_bytes());
        bytes
    })
}

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int32, false)]))
}

struct Mini {
    memory: Memory,
    read: Vec<Format>,
    written: Vec<Format>,
}

impl Plugin for Mini {
    fn create(host: HostHandle) -> Result<Self> {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        let mini = Format {
            bytes: true,
            magics: vec![(0, b"MINI".to_vec())],
            extensions: vec![".mini".into()],
            ..Format::new("mini", "i32 values")
        };
        let capsules = Format {
            capsules: vec!["arrow_schema".into(), "arrow_device_array".into()],
            ..Format::new("mini-capsules", "i32 values in memory")
        };
        let of_host = Format {
            bytes: true,
            magics: vec![(0, b"HOST".to_vec())],
            extensions: vec![".minih".into()],
            device_types: vec![abi::DEVICE_CPU],
            ..Format::new("mini-of-host", "i32 values, from and to host memory")
        };
        let padded = Format {
            bytes: true,
            magics: vec![(0, b"PADD".to_vec())],
            extensions: vec![".minip".into()],
            device_rows: true,
            ..Format::new("mini-padded", "i32 values and padding")
        };
        let odd =
            Format { bytes: true, magics: vec![(0, b"ODD!".to_vec())], ..Format::new("mini-odd", "columns") };
        let written = vec![mini, capsules, of_host, padded];
        let read = written.iter().cloned().chain([odd]).collect();
        Ok(Self { memory: Memory::from_host(&host)?, read, written })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }

    fn exporter(&self) -> Option<&dyn Exporter> {
        Some(self)
    }
}

impl Drop for Mini {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Mini {
    fn stream(&self, call: &Call<'_>, format: &str) -> Result<Stream> {
        if format == "mini-of-host" {
            return self.memory.default_stream(Device::CPU);
        }
        // SAFETY: the call's stream is valid during the call.
        unsafe { Stream::from_call(&self.memory, call.device(), call.stream()) }
    }
}

impl Importer for Mini {
    fn formats(&self) -> &[Format] {
        &self.read
    }

    fn open(&self, call: &Call<'_>, input: Input, request: &ReadRequest<'_>) -> Result<Box<dyn BatchStream>> {
        let ReadRequest { format, options, .. } = *request;
        options.only("mini", &[])?;
        match input {
            Input::Source(_) if format == "mini-odd" => Ok(Box::new(Odd)),
            Input::Source(source) => Ok(Box::new(Values {
                memory: self.memory.clone(),
                stream: self.stream(call, format)?,
                source,
                offset: 4,
                is_padded: format == "mini-padded",
            })),
            Input::Capsules(capsules) => {
                let mut capsules = capsules.into_iter();
                let (Some(schema), Some(array)) = (capsules.next(), capsules.next()) else {
                    return Err(Error::invalid_argument("expected two capsules"));
                };
                let (schema, array) = (schema.take()?, array.take()?);
                Ok(Box::new(One { schema, array: Some(array) }))
            }
        }
    }
}

struct Values {
    memory: Memory,
    stream: Stream,
    source: Source,
    offset: u64,
    is_padded: bool,
}

impl BatchStream for Values {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&schema())
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        let mut bytes = [0; 16];
        let n = self.source.read_at(self.offset, &mut bytes)?;
        if n == 0 {
            return Ok(None);
        }
        if n % 4 != 0 {
            return Err(Error::bad_data(format!("a value of {} bytes, expected 4", n % 4)));
        }
        self.offset += n as u64;
        call.progress(self.offset, self.source.len().unwrap_or(0));
        let capacity = if self.is_padded { n + 8 } else { n };
        let buffer = self.memory.alloc_with(&self.stream, capacity, |to| {
            to.fill(0x7f);
            to[..n].copy_from_slice(&bytes[..n]);
            Ok(())
        })?;
        let buffers = vec![None, Some(buffer.freeze(&self.stream)?)];
        let (len, int32) = (capacity / 4, DataType::Int32);
        let array = DeviceArray::try_new(int32, len, 0, Some(0), buffers, Vec::new(), None)?;
        let batch = DeviceBatch::try_new(schema(), len, vec![array])?;
        if !self.is_padded {
            return export_batch(&batch, false, &self.stream).map(Some);
        }
        let rows = if bytes[..4] == (-668i32).to_le_bytes() { 99 } else { n as i32 / 4 };
        let counter = self.memory.alloc_with(&self.stream, 4, |to| {
            to.copy_from_slice(&rows.to_ne_bytes());
            Ok(())
        })?;
        let int32 = IntType { width_bytes: 4, signed: true };
        let counter = counter.freeze(&self.stream)?;
        let pending = PendingBatch::try_new(batch, &counter, int32, &self.stream)?;
        export_pending(&pending, &self.stream, false).map(Some)
    }
}

/// A table without rows and with three columns: one of an unsupported type, one of a supported
/// type, and one whose export to capsules panics.
struct Odd;

impl BatchStream for Odd {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        let field = |name, data_type| Field::new(name, data_type, false);
        let (text, panic) = (field("text", DataType::Utf8), field("panic", DataType::Int32));
        export_schema(&Schema::new(vec![text, field("v", DataType::Int32), panic]))
    }

    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        Ok(None)
    }
}

struct One {
    schema: Owned<abi::ArrowSchema>,
    array: Option<Owned<abi::ArrowDeviceArray>>,
}

impl BatchStream for One {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&import_schema(&self.schema)?)
    }

    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let batch = self.array.take().filter(|array| array.array.length != 1).map(|array| {
            let mut raw = abi::Batch::new();
            raw.array = array.into_raw();
            // SAFETY: the array came from an `Owned`; the batch has no schema to own.
            unsafe { Owned::new(raw) }
        });
        Ok(batch)
    }
}

impl Exporter for Mini {
    fn formats(&self) -> &[Format] {
        &self.written
    }

    fn plan(
        &self,
        call: &Call<'_>,
        _format: &str,
        schema: &abi::ArrowSchema,
        _from: Device,
        _options: &Options,
    ) -> Result<Vec<ColumnPlan>> {
        // SAFETY: the caller's schema is valid during the call.
        let schema = unsafe { import_schema_ref(schema) }?;
        let column = |field: &Arc<Field>| ColumnPlan {
            name: field.name().clone(),
            verdict: if field.data_type() == &DataType::Int32 {
                Verdict::Converted
            } else {
                Verdict::Unsupported
            },
            to: call.device(),
            reason: "written out".into(),
        };
        Ok(schema.fields().iter().map(column).collect())
    }

    fn begin(
        &self,
        call: &Call<'_>,
        format: &str,
        schema: &abi::ArrowSchema,
        options: &Options,
        sink: Option<Sink>,
    ) -> Result<Box<dyn BatchWriter>> {
        options.only("mini", &[])?;
        // SAFETY: the caller's schema is valid during the call.
        let schema = Arc::new(unsafe { import_schema_ref(schema) }?);
        if sink.is_some() && schema.fields().iter().any(|field| field.data_type() != &DataType::Int32) {
            return Err(Error::unsupported("mini holds one Int32 column"));
        }
        let mut writer =
            MiniWriter { memory: self.memory.clone(), stream: self.stream(call, format)?, schema, sink };
        if let Some(sink) = &mut writer.sink {
            sink.write(match format {
                "mini-of-host" => b"HOST",
                "mini-padded" => b"PADD",
                _ => b"MINI",
            })?;
        }
        Ok(Box::new(writer))
    }
}

struct MiniWriter {
    memory: Memory,
    stream: Stream,
    schema: SchemaRef,
    sink: Option<Sink>,
}

impl BatchWriter for MiniWriter {
    fn write(&mut self, _call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        assert!(batch_schema(&batch)?.is_none());
        let Some(sink) = &mut self.sink else {
            assert!(self.schema.fields().iter().all(|field| field.name() != "panic"), "a column named panic");
            let mut raw = batch.into_raw();
            // SAFETY: `raw` came from an `Owned` and is not used afterwards; it has no schema to
            // release.
            let array = unsafe { Owned::take(&mut raw.array) };
            return Ok(vec![Capsule::new(export_schema(&self.schema)?), Capsule::new(array)]);
        };
        COUNTERS_WRITTEN.fetch_add(isize::from(!batch.n_rows_device.is_null()), Ordering::SeqCst);
        let batch = import_batch(batch, &self.schema, &self.memory)?;
        for column in batch.columns() {
            let Some(buffer) = column.buffers()[1].clone().filter(|_| !column.is_empty()) else { continue };
            let bytes = buffer.slice(column.offset() * 4, column.len() * 4)?;
            let bytes = bytes.host_view(&self.stream)?;
            for value in bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])) {
                match value {
                    -666 => return Err(Error::bad_data("value -666 cannot be written")),
                    -667 => panic!("value -667"),
                    _ => {}
                }
            }
            sink.write(&bytes)?;
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        Ok(Vec::new())
    }
}
