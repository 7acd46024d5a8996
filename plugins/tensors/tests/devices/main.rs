//! Tests of files of tensors on every device: round trips, copies, and conversions.
#![allow(clippy::unwrap_used)]

mod conversions;
mod copies;
mod round_trips;

use std::sync::{Arc, Mutex};

use arrow_schema::SchemaRef;
use crossdock_arrays::{
    DeviceBatch, export_batch, export_schema, first_difference, import_batch, import_schema,
};
use crossdock_memory::{Device, Result};
use crossdock_plugin_api::{
    BatchStream, ByteSink, ByteSource, CallSettings, Input, Options, Plugin, ReadRequest, Selection, Sink,
    Source, Validate,
};
use crossdock_tensors::Tensors;
use crossdock_test_support::TestHost;

struct Bytes {
    bytes: Vec<u8>,
    is_mapped: bool,
}

impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "test input"
    }
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn map(&self) -> Option<&[u8]> {
        self.is_mapped.then_some(&self.bytes)
    }
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl ByteSink for Written {
    fn name(&self) -> &str {
        "test output"
    }
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }
}

struct Rig {
    host: TestHost,
    plugin: Tensors,
}

impl Rig {
    fn new() -> Self {
        let host = TestHost::new();
        let plugin = Tensors::create(host.host()).unwrap();
        Self { host, plugin }
    }

    fn read(
        &self,
        bytes: &[u8],
        (format, is_mapped): (&str, bool),
        device: Device,
        selection: &Selection,
    ) -> Result<(SchemaRef, Vec<DeviceBatch>)> {
        let settings = CallSettings { validate: Validate::Full, ..CallSettings::new(device) };
        let source = Bytes { bytes: bytes.to_vec(), is_mapped };
        self.read_from(Arc::new(source), format, &settings, selection)
    }

    fn read_from(
        &self,
        source: Arc<dyn ByteSource>,
        format: &str,
        settings: &CallSettings,
        selection: &Selection,
    ) -> Result<(SchemaRef, Vec<DeviceBatch>)> {
        let mut stream = self.open(source, format, settings, selection)?;
        let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
        let mut batches = Vec::new();
        while let Some(batch) = settings.enter(|call| stream.next(call))? {
            batches.push(import_batch(batch, &schema, &self.host.memory())?);
        }
        Ok((schema, batches))
    }

    fn open(
        &self,
        source: Arc<dyn ByteSource>,
        format: &str,
        settings: &CallSettings,
        selection: &Selection,
    ) -> Result<Box<dyn BatchStream>> {
        let request = ReadRequest::new(format).with_selection(selection);
        let importer = self.plugin.importer().unwrap();
        let source = Input::Source(Source::new(source));
        settings.enter(|call| importer.open(call, source, &request))
    }

    fn write(
        &self,
        (schema, batches): (&SchemaRef, &[DeviceBatch]),
        format: &str,
        options: &Options,
    ) -> Result<Vec<u8>> {
        let written = Written::default();
        let settings = CallSettings::new(Device::CPU);
        let exporter = self.plugin.exporter().unwrap();
        let sink = Some(Sink::new(Box::new(written.clone())));
        let exported = export_schema(schema)?;
        let mut writer = settings.enter(|call| exporter.begin(call, format, &exported, options, sink))?;
        for batch in batches {
            let exported = export_batch(batch, false, &self.host.stream(batch.device()))?;
            settings.enter(|call| writer.write(call, exported))?;
        }
        settings.enter(|call| writer.finish(call))?;
        drop(writer);
        let bytes = written.0.lock().unwrap().clone();
        Ok(bytes)
    }

    fn assert_equal(&self, got: &DeviceBatch, expected: &DeviceBatch) {
        let on_cpu =
            |batch: &DeviceBatch| batch.move_to(&self.host.stream(batch.device()), Device::CPU).unwrap();
        let difference =
            first_difference(&on_cpu(got), &on_cpu(expected), &self.host.stream(Device::CPU)).unwrap();
        assert!(difference.is_none(), "{difference:?}");
    }
}

/// A safetensors file whose tensors have 5 rows. The data of `b` is not aligned.
fn tensors() -> Vec<u8> {
    let header = r#"{"a":{"dtype":"U8","shape":[5,3],"data_offsets":[0,15]},
        "b":{"dtype":"F64","shape":[5],"data_offsets":[15,55]},"c":{"dtype":"I16","shape":[5,2,1],"data_offsets":[55,75]},
        "d":{"dtype":"BOOL","shape":[5],"data_offsets":[75,80]},"e":{"dtype":"F32","shape":[5,0],"data_offsets":[80,80]}}"#;
    let mut data: Vec<u8> = (0..80).map(|i| i * 3 + 1).collect();
    data[75..].copy_from_slice(&[0, 1, 1, 0, 1]);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

/// A safetensors file whose tensors have `n` rows of 24, 2 and 1 bytes. All data is aligned.
fn aligned_tensors(n: usize) -> Vec<u8> {
    let header = format!(
        r#"{{"a":{{"dtype":"F64","shape":[{n},3],"data_offsets":[0,{}]}},"b":{{"dtype":"I16","shape":[{n}],
        "data_offsets":[{},{}]}},"c":{{"dtype":"U8","shape":[{n}],"data_offsets":[{},{}]}}}}"#,
        n * 24,
        n * 24,
        n * 26,
        n * 26,
        n * 27
    );
    let header = format!("{header:<width$}", width = header.len().next_multiple_of(64) + 56);
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Numbers of 6 bits can be compressed by a quarter.
        (state >> 26) as u8
    };
    let data: Vec<u8> = (0..n * 27).map(next).collect();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}
