//! Tests that tables are equal after a round trip through each format, on every device.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use arrow_schema::SchemaRef;
use crossdock_arrays::{
    DeviceBatch, export_batch, export_schema, first_difference, import_batch, import_schema,
};
use crossdock_memory::{Device, Result};
use crossdock_plugin_api::{
    ByteSink, ByteSource, CallSettings, Input, Options, Plugin, ReadRequest, Selection, Sink, Source,
    Validate,
};
use crossdock_tensors::{NPY, NPZ, SAFETENSORS, Tensors};
use crossdock_test_support::{TestHost, devices};

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
        let source = Source::new(Arc::new(Bytes { bytes: bytes.to_vec(), is_mapped }));
        let request = ReadRequest::new(format).with_selection(selection);
        let importer = self.plugin.importer().unwrap();
        let mut stream = settings.enter(|call| importer.open(call, Input::Source(source), &request))?;
        let schema: SchemaRef = Arc::new(import_schema(&stream.schema()?)?);
        let mut batches = Vec::new();
        while let Some(batch) = settings.enter(|call| stream.next(call))? {
            batches.push(import_batch(batch, &schema, &self.host.memory())?);
        }
        Ok((schema, batches))
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

#[test]
fn tables_round_trip_through_every_format() {
    let rig = Rig::new();
    let everything = Selection::default();
    let (schema, expected) = rig.read(&tensors(), (SAFETENSORS, false), Device::CPU, &everything).unwrap();
    assert_eq!((expected.len(), expected[0].len()), (1, 5));
    for &device in devices() {
        let (_, batches) = rig.read(&tensors(), (SAFETENSORS, true), device, &everything).unwrap();
        assert_eq!(batches[0].device(), device);
        rig.assert_equal(&batches[0], &expected[0]);
        let deflate = Options::new().with("compression", "deflate");
        for (format, options) in [(SAFETENSORS, Options::new()), (NPZ, Options::new()), (NPZ, deflate)] {
            let bytes = rig.write((&schema, &batches), format, &options).unwrap();
            for is_mapped in [false, true] {
                let (again, got) = rig.read(&bytes, (format, is_mapped), device, &everything).unwrap();
                assert_eq!(again, schema);
                rig.assert_equal(&got[0], &expected[0]);
            }
        }
    }
    drop(expected);
    rig.host.assert_nothing_leaked();
}

#[test]
fn requested_rows_and_columns_are_those_of_the_whole_table() {
    let rig = Rig::new();
    let (schema, whole) =
        rig.read(&tensors(), (SAFETENSORS, true), Device::CPU, &Selection::default()).unwrap();
    let deflate = Options::new().with("compression", "deflate");
    let npz = rig.write((&schema, &whole), NPZ, &deflate).unwrap();
    let selection = Selection {
        columns: Some(vec![vec!["c".to_owned()], vec!["b".to_owned()]]),
        rows: Some(vec![1..2, 3..u64::MAX]),
        ..Selection::default()
    };
    for &device in devices() {
        for (format, bytes) in [(SAFETENSORS, tensors()), (NPZ, npz.clone())] {
            let (schema, batches) = rig.read(&bytes, (format, true), device, &selection).unwrap();
            assert_eq!(schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>(), ["b", "c"]);
            let expected = whole[0].select(&[1, 2]).unwrap();
            rig.assert_equal(&batches[0], &expected.slice(1, 1).unwrap());
            rig.assert_equal(&batches[1], &expected.slice(3, 2).unwrap());
            assert_eq!(batches.len(), 2);
        }
    }
    drop(whole);
    rig.host.assert_nothing_leaked();
}

#[test]
fn batches_are_joined_to_one_array() {
    let rig = Rig::new();
    let (schema, whole) =
        rig.read(&tensors(), (SAFETENSORS, true), Device::CPU, &Selection::default()).unwrap();
    let only = whole[0].select(&[2]).unwrap();
    let parts: Vec<_> = [(0, 2), (2, 0), (2, 3)].iter().map(|(at, n)| only.slice(*at, *n).unwrap()).collect();
    let bytes = rig.write((only.schema(), &parts), NPY, &Options::new()).unwrap();
    let (_, got) = rig.read(&bytes, (NPY, true), Device::CPU, &Selection::default()).unwrap();
    rig.assert_equal(&got[0].clone().with_schema(only.schema().clone()).unwrap(), &only);
    let error = rig.write((&schema, &whole), NPY, &Options::new()).unwrap_err();
    assert!(error.message().contains("the table has 5 columns"), "{error}");
}
