//! Imports and exports through the plugin's entry. The external producer and consumer is arrow-rs.
#![allow(clippy::unwrap_used, clippy::panic)]

mod external;

use std::sync::Arc;

use arrow_array::{Array, BooleanArray};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field};
use crossdock_arrow_c_device::ArrowCDevice;
use crossdock_plugin_api::{
    BatchStreamHandle, CallSettings, Capsule, Device, Input, Instance, Options, Owned, ReadRequest, Validate,
    Verdict, abi, entry,
};
use crossdock_test_support::{TestHost, devices};
use external::{array_capsule, batch_of, device_capsule, schema_capsule};

static ENTRY: abi::PluginEntry = entry::<ArrowCDevice>();
const FORMATS: [&str; 4] = ["arrow-c-device", "arrow-c-device-stream", "arrow-c-data", "arrow-c-stream"];

fn instance(host: &TestHost) -> Instance {
    // SAFETY: the entry is statically linked and therefore never unloaded, and every test drops its
    // instance before its host.
    unsafe { Instance::create(&ENTRY, host.raw()) }.unwrap()
}

fn call(device: Device) -> CallSettings {
    CallSettings { validate: Validate::Full, ..CallSettings::new(device) }
}

fn table() -> Vec<RecordBatch> {
    let batch = |from: i32, n: i32| {
        let inner: ArrayRef =
            Arc::new(Int64Array::from_iter((from..from + n).map(|i| (i % 5 != 0).then_some(i.into()))));
        let field = Arc::new(Field::new("inner", DataType::Int64, true));
        let nested = StructArray::from(vec![(field, inner)]);
        let words = StringArray::from_iter(
            (from..from + n).map(|i| (i % 3 != 0).then(|| "x".repeat(i as usize % 7))),
        );
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("number", Arc::new(Int32Array::from_iter_values(from..from + n))),
            ("word", Arc::new(words)),
            ("flag", Arc::new(BooleanArray::from_iter((from..from + n).map(|i| Some(i % 2 == 0))))),
            ("nested", Arc::new(nested)),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
    };
    vec![batch(0, 100), batch(100, 30).slice(3, 20), batch(130, 0)]
}

fn device_capsules(batches: &[RecordBatch]) -> Vec<Capsule> {
    batches.iter().flat_map(|b| [schema_capsule(b), device_capsule(b)]).collect()
}

fn open(
    instance: &Instance,
    settings: &CallSettings,
    format: &str,
    capsules: Vec<Capsule>,
) -> crossdock_plugin_api::Result<BatchStreamHandle> {
    let input = Input::Capsules(capsules.into());
    instance.importer().unwrap().open(settings, input, &ReadRequest::new(format))
}

/// Exports all batches of the stream as `format` on device `to`.
fn export(
    instance: &Instance,
    stream: &mut BatchStreamHandle,
    format: &str,
    from: Device,
    to: Device,
) -> Vec<Capsule> {
    let schema = stream.schema().unwrap();
    let exporter = instance.exporter().unwrap();
    let mut writer = exporter.begin(&call(to), format, &schema, &Options::new(), None).unwrap();
    let mut capsules = Vec::new();
    while let Some(batch) = stream.next(&call(from)).unwrap() {
        capsules.extend(writer.write(&call(to), batch).unwrap());
    }
    capsules.extend(writer.finish(&call(to)).unwrap());
    capsules
}

#[test]
fn round_trip_through_every_interface_keeps_table() {
    let host = TestHost::new();
    let instance = instance(&host);
    let table = table();
    for device in devices().iter().copied() {
        for format in FORMATS {
            let mut first =
                open(&instance, &call(device), "arrow-c-device", device_capsules(&table)).unwrap();
            let out = export(&instance, &mut first, format, device, device);
            let mut second = open(&instance, &call(Device::CPU), format, out).unwrap();
            let back = export(&instance, &mut second, "arrow-c-data", Device::CPU, Device::CPU);
            assert_eq!(batch_of(back), table, "{format} on {device}");
        }
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn arrays_on_the_same_device_are_not_copied() {
    let host = TestHost::new();
    let instance = instance(&host);
    let table = &table()[..1];
    // Layout validation copies nothing. Full validation would copy the results of its kernels.
    let layout = CallSettings::new(Device::CPU);
    let mut stream = open(&instance, &layout, "arrow-c-device", device_capsules(table)).unwrap();
    let schema = stream.schema().unwrap();
    let exporter = instance.exporter().unwrap();
    let mut writer = exporter.begin(&layout, "arrow-c-data", &schema, &Options::new(), None).unwrap();
    let batch = stream.next(&layout).unwrap().unwrap();
    let back = batch_of(writer.write(&layout, batch).unwrap());
    let address = |b: &RecordBatch| b.column(0).to_data().buffers()[0].as_ptr();
    assert_eq!(address(&back[0]), address(&table[0]));
    assert_eq!(host.backend().ledger().copied().bytes(), 0);
}

#[test]
fn exported_array_outlives_instance_and_host() {
    let host = TestHost::new();
    let backend = host.backend().clone();
    let instance = instance(&host);
    let table = table();
    // The host allocates the buffers on the test device.
    let mut stream =
        open(&instance, &call(Device::UNTOUCHABLE), "arrow-c-device", device_capsules(&table)).unwrap();
    let capsules = export(&instance, &mut stream, "arrow-c-stream", Device::UNTOUCHABLE, Device::CPU);
    drop(stream);
    drop(instance);
    drop(host);
    assert!(!backend.leaks().is_empty(), "the arrays are alive");
    assert_eq!(external::batches_of_stream(capsules), table);
    assert!(backend.leaks().is_empty(), "{:?}", backend.leaks());
}

#[test]
fn table_without_batches_keeps_its_schema() {
    let host = TestHost::new();
    let instance = instance(&host);
    let schema = table()[0].schema();
    for format in FORMATS {
        let only_schema = vec![schema_capsule(&RecordBatch::new_empty(schema.clone()))];
        let mut stream = open(&instance, &call(Device::CPU), "arrow-c-device", only_schema).unwrap();
        let out = export(&instance, &mut stream, format, Device::CPU, Device::CPU);
        let mut again = open(&instance, &call(Device::CPU), format, out).unwrap();
        assert_eq!(external::schema_of(again.schema().unwrap()), *schema, "{format}");
        assert!(again.next(&call(Device::CPU)).unwrap().is_none());
    }
}

#[test]
fn plan_reports_copies_with_their_devices() {
    let host = TestHost::new();
    let instance = instance(&host);
    let mut stream =
        open(&instance, &call(Device::CPU), "arrow-c-device", device_capsules(&table())).unwrap();
    let schema = stream.schema().unwrap();
    let exporter = instance.exporter().unwrap();
    let plan = |format, from, to| exporter.plan(&call(to), format, &schema, from, &Options::new()).unwrap();
    let same_device = plan("arrow-c-device", Device::UNTOUCHABLE, Device::UNTOUCHABLE);
    assert_eq!(
        same_device.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        ["number", "word", "flag", "nested"]
    );
    assert!(same_device.iter().all(|c| c.verdict == Verdict::ZeroCopy));
    let to_host = plan("arrow-c-data", Device::UNTOUCHABLE, Device::UNTOUCHABLE);
    assert!(to_host.iter().all(|c| c.verdict == Verdict::Copied && c.to == Device::CPU));
}

#[test]
fn option_schema_first_exports_one_schema() {
    let host = TestHost::new();
    let instance = instance(&host);
    let mut stream =
        open(&instance, &call(Device::CPU), "arrow-c-device", device_capsules(&table())).unwrap();
    let schema = stream.schema().unwrap();
    let options = Options::new().with("schema", "first");
    let mut writer = instance
        .exporter()
        .unwrap()
        .begin(&call(Device::CPU), "arrow-c-device", &schema, &options, None)
        .unwrap();
    let mut counts = Vec::new();
    while let Some(batch) = stream.next(&call(Device::CPU)).unwrap() {
        counts.push(writer.write(&call(Device::CPU), batch).unwrap().len());
    }
    assert_eq!(counts, [2, 1, 1]);
    let unknown = Options::new().with("schemas", "first");
    let exporter = instance.exporter().unwrap();
    let error = exporter.begin(&call(Device::CPU), "arrow-c-device", &schema, &unknown, None).err().unwrap();
    assert!(error.message().contains("no option 'schemas'"), "{error}");
}

#[test]
fn rejects_malformed_capsules() {
    let host = TestHost::new();
    let instance = instance(&host);
    let batch = &table()[0];
    let error_of = |format: &str, capsules: Vec<Capsule>| {
        let result = open(&instance, &call(Device::CPU), format, capsules);
        match result {
            Err(error) => error.to_string(),
            Ok(mut stream) => stream.next(&call(Device::CPU)).err().unwrap().to_string(),
        }
    };
    let assert_rejected = |format: &str, capsules: Vec<Capsule>, expected: &str| {
        let message = error_of(format, capsules);
        assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
    };
    assert_rejected("arrow-c-device", vec![device_capsule(batch)], "no schema");
    assert_rejected(
        "arrow-c-device",
        vec![schema_capsule(batch), array_capsule(batch)],
        "expected 'arrow_device_array'",
    );
    assert_rejected(
        "arrow-c-data",
        vec![schema_capsule(batch), device_capsule(batch)],
        "expected 'arrow_array'",
    );
    assert_rejected("arrow-c-stream", vec![], "0 capsules");
    assert_rejected("arrow-c-dream", vec![], "unknown format 'arrow-c-dream'");
    let other = batch.project(&[0]).unwrap();
    assert_rejected(
        "arrow-c-data",
        vec![schema_capsule(batch), schema_capsule(&other)],
        "has 1 columns, expected 4",
    );
    assert_rejected("arrow-c-data", vec![schema_capsule(batch), array_capsule(&other)], "4");
    // SAFETY: a zeroed array counts as released and owns nothing.
    let released = unsafe { Owned::new(abi::ArrowDeviceArray::default()) };
    assert_rejected(
        "arrow-c-device",
        vec![schema_capsule(batch), Capsule::new(released)],
        "consumed already",
    );
    for (change, expected) in external::corruptions() {
        assert_rejected(
            "arrow-c-device",
            vec![schema_capsule(batch), external::corrupted(batch, change)],
            expected,
        );
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn error_contains_message_of_failing_stream() {
    let host = TestHost::new();
    let instance = instance(&host);
    for (fail_schema, expected) in
        [(true, "get_schema failed: connection reset"), (false, "get_next failed: connection reset")]
    {
        let result = open(
            &instance,
            &call(Device::CPU),
            "arrow-c-stream",
            vec![external::failing_stream(fail_schema)],
        );
        let message = match result {
            Err(error) => error.to_string(),
            Ok(mut stream) => stream.next(&call(Device::CPU)).err().unwrap().to_string(),
        };
        assert!(message.contains(expected), "{message}");
    }
    // SAFETY: the struct owns nothing, and `release_stream` only marks it as released.
    let empty = unsafe {
        Owned::new(abi::ArrowArrayStream { release: Some(external::release_stream), ..Default::default() })
    };
    let error =
        open(&instance, &call(Device::CPU), "arrow-c-stream", vec![Capsule::new(empty)]).err().unwrap();
    assert!(error.message().contains("no 'get_schema'"), "{error}");
}
