//! Tests the fields and memory of exported tensors, and the errors for columns that cannot be
//! tensors.

use std::sync::Arc;

use crate::common::*;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use crossdock_arrays::{DeviceArray, DeviceBatch, export_schema};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{CallSettings, Device, Options, Verdict};
use crossdock_test_support::{DEVICES, TestHost, devices};

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().fold(Options::new(), |options, (key, value)| options.with(*key, *value))
}

fn array(data_type: DataType, len: usize, validity: Option<Buffer>, values: Buffer) -> DeviceArray {
    DeviceArray::try_new(data_type, len, 0, None, vec![validity, Some(values)], vec![], None).unwrap()
}

fn batch(columns: Vec<(&str, DeviceArray)>) -> DeviceBatch {
    let rows = columns[0].1.len();
    let fields: Vec<_> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    DeviceBatch::try_new(Arc::new(Schema::new(fields)), rows, arrays).unwrap()
}

#[test]
fn exports_every_type_and_slice_as_read_only_without_copy() {
    let host = TestHost::new();
    let instance = instance(&host);
    let bytes: Vec<u8> = (0..80).collect();
    for device in devices().iter().copied() {
        let types = [
            (DataType::Int8, 1),
            (DataType::Int16, 2),
            (DataType::Int32, 4),
            (DataType::Int64, 8),
            (DataType::UInt8, 1),
            (DataType::UInt16, 2),
            (DataType::UInt32, 4),
            (DataType::UInt64, 8),
            (DataType::Float16, 2),
            (DataType::Float32, 4),
            (DataType::Float64, 8),
        ];
        for ((data_type, width), dtype) in types.into_iter().zip(DTYPES) {
            for (offset, len) in [(0, 10), (3, 7), (10, 0), (5, 1)] {
                let buffer = bytes_on(&host, device, &bytes[..10 * width]);
                let whole = batch(vec![("x", array(data_type.clone(), 10, None, buffer.clone()))]);
                let part = whole.slice(offset, len).unwrap();
                let tensors = export(&host, &instance, device, &part, "dlpack", &Options::new()).unwrap();
                let tensor = &tensors[0];
                assert_eq!(
                    (tensor.dtype, &tensor.shape[..], tensor.byte_offset),
                    (dtype, &[len as i64][..], 0)
                );
                assert_eq!(tensor.device, device_of(device));
                assert_eq!(tensor.elements(&host, device), bytes[offset * width..][..len * width]);
                if len > 0 {
                    assert_eq!(tensor.address, buffer.address() + (offset * width) as u64);
                    assert_eq!((tensor.versioned, tensor.flags), (true, READ_ONLY));
                }
            }
        }
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn tensor_outlives_batch_instance_and_host() {
    let host = TestHost::new();
    let instance = instance(&host);
    let bytes: Vec<u8> = (0..80).collect();
    let column =
        |from: usize| array(DataType::Int64, 5, None, bytes_on(&host, Device::CPU, &bytes[from..from + 40]));
    let batch = batch(vec![("a", column(0)), ("b", column(40))]);
    let mut tensors = export(&host, &instance, Device::CPU, &batch, "dlpack", &Options::new()).unwrap();
    drop((batch, instance));
    drop(tensors.remove(0));
    assert_eq!(tensors[0].elements(&host, Device::CPU), bytes[40..]);
    let backend = host.backend().clone();
    drop(host);
    assert!(!backend.leaks().is_empty(), "the second tensor keeps its buffer alive");
    drop(tensors);
    assert!(backend.leaks().is_empty());
}

#[test]
fn copies_only_when_requested_or_needed_and_sets_copy_flag() {
    let host = TestHost::new();
    let instance = instance(&host);
    let bytes: Vec<u8> = (0..40).collect();
    for device in devices().iter().copied() {
        let buffer = bytes_on(&host, device, &bytes);
        let numbers = batch(vec![("n", array(DataType::Int64, 5, None, buffer.clone()))]);
        let bits = batch(vec![(
            "b",
            array(DataType::Boolean, 10, None, bytes_on(&host, device, &[0b1010_0110, 0b11])),
        )]);
        let out = |batch: &DeviceBatch, format: &str, pairs: &[(&str, &str)]| {
            export(&host, &instance, device, batch, format, &options(pairs))
                .map(|mut tensors| tensors.remove(0))
                .map_err(|error| error.message().to_string())
        };
        let in_place = out(&numbers, "dlpack", &[("copy", "never")]).unwrap();
        assert_eq!((in_place.address, in_place.flags), (buffer.address(), READ_ONLY));
        let copied = out(&numbers, "dlpack", &[("copy", "always")]).unwrap();
        assert_eq!(copied.flags, IS_COPIED);
        assert_ne!(copied.address, buffer.address());
        assert_eq!(copied.elements(&host, device), bytes);
        // The struct of legacy tensors has no read-only flag.
        let legacy = out(&numbers, "dlpack-legacy", &[]).unwrap();
        assert!(!legacy.versioned && legacy.address != buffer.address());
        assert_eq!(legacy.elements(&host, device), bytes);
        let trusted = out(&numbers, "dlpack-legacy", &[("read-only", "lent")]).unwrap();
        assert!(!trusted.versioned && trusted.address == buffer.address());
        let error = out(&numbers, "dlpack-legacy", &[("copy", "never")]).err().unwrap();
        assert!(error.contains("column 'n'") && error.contains("copy=never"), "{error}");
        let unpacked = out(&bits, "dlpack", &[]).unwrap();
        assert_eq!((unpacked.dtype, unpacked.flags), (BOOL, IS_COPIED));
        assert_eq!(unpacked.elements(&host, device), [0, 1, 1, 0, 0, 1, 0, 1, 1, 1]);
        let error = out(&bits, "dlpack", &[("copy", "never")]).err().unwrap();
        assert!(error.contains("column 'b'") && error.contains("bits become bytes"), "{error}");
    }
    let [from, to] = DEVICES;
    let buffer = bytes_on(&host, from, &bytes);
    let numbers = batch(vec![("n", array(DataType::Int64, 5, None, buffer))]);
    let moved = export(&host, &instance, to, &numbers, "dlpack", &Options::new()).unwrap();
    assert_eq!((moved[0].device, moved[0].flags), (device_of(to), IS_COPIED));
    assert_eq!(moved[0].elements(&host, to), bytes);
    let error = export(&host, &instance, to, &numbers, "dlpack", &options(&[("copy", "never")]));
    let error = error.err().unwrap().message().to_string();
    assert!(["cpu", &to.to_string(), "copy=never"].iter().all(|part| error.contains(part)), "{error}");
    drop((moved, numbers, instance));
    host.assert_nothing_leaked();
}

#[test]
fn bool8_keeps_its_metadata_in_a_round_trip() {
    let host = TestHost::new();
    let instance = instance(&host);
    let buffer = bytes_on(&host, Device::CPU, &[1, 0, 1]);
    let metadata =
        [("ARROW:extension:name", "arrow.bool8"), ("ARROW:extension:metadata", ""), ("unit", "yes")];
    let field = Field::new("b", DataType::Int8, false).with_metadata(
        metadata.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<arrow_schema::Metadata>(),
    );
    let schema = Arc::new(Schema::new(vec![field]));
    let array = array(DataType::Int8, 3, None, buffer.clone());
    let batch = DeviceBatch::try_new(schema.clone(), 3, vec![array]).unwrap();
    let mut tensors = export(&host, &instance, Device::CPU, &batch, "dlpack", &Options::new()).unwrap();
    assert_eq!((tensors[0].dtype, tensors[0].address), (BOOL, buffer.address()));
    drop(tensors.remove(0));
    let spec = Spec::new(&host, Device::CPU, BOOL, &[3], &[1, 0, 1]);
    let (back, _) =
        import(&host, &instance, Device::CPU, vec![spec.capsule()], Some(&schema), &Options::new()).unwrap();
    assert_eq!(&back, schema.as_ref());
    // A column of int8 without the extension type does not accept booleans.
    let plain = Schema::new(vec![Field::new("b", DataType::Int8, false)]);
    let error = import(&host, &instance, Device::CPU, vec![spec.capsule()], Some(&plain), &Options::new())
        .unwrap_err();
    assert!(error.message().contains("a tensor of bool, expected int8"), "{}", error.message());
}

#[test]
fn error_for_unsupported_type_names_column_and_gives_advice() {
    let host = TestHost::new();
    let instance = instance(&host);
    let item = Arc::new(Field::new("item", DataType::Int8, true));
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let cases = [
        (DataType::Utf8, "numbers and booleans only"),
        (DataType::Null, "leave it out"),
        (DataType::Date32, "cast it to an integer"),
        (DataType::Timestamp(TimeUnit::Microsecond, None), "cast it to an integer"),
        (DataType::Decimal128(10, 2), "cast it to float64"),
        (dictionary, "decode it first"),
        (DataType::List(item.clone()), "make it a fixed-size list"),
        (DataType::Struct(vec![item].into()), "leave it out"),
        (DataType::FixedSizeBinary(4), "crossdock.number"),
    ];
    let call = CallSettings::new(Device::CPU);
    let exporter = instance.exporter().unwrap();
    for (data_type, message) in cases {
        let fields =
            vec![Field::new("fine", DataType::Int8, true), Field::new("odd", data_type.clone(), true)];
        let schema = export_schema(&Schema::new(fields)).unwrap();
        let begun = exporter.begin(&call, "dlpack", &schema, &Options::new(), None);
        let error = begun.err().unwrap().message().to_string();
        assert!(error.contains("column 'odd'") && error.contains(message), "{data_type}: {error}");
        let plan = exporter.plan(&call, "dlpack", &schema, Device::CPU, &Options::new()).unwrap();
        assert_eq!((plan[0].verdict, plan[1].verdict), (Verdict::ZeroCopy, Verdict::Unsupported));
        assert_eq!(plan[1].reason, error);
    }
    let nothing = export_schema(&Schema::empty()).unwrap();
    let error = exporter.begin(&call, "dlpack", &nothing, &Options::new(), None).err().unwrap();
    assert!(error.message().contains("the table has no columns"), "{}", error.message());
}

#[test]
fn plan_has_a_verdict_and_a_reason_for_each_column() {
    let host = TestHost::new();
    let instance = instance(&host);
    let fields = vec![Field::new("n", DataType::Int8, true), Field::new("b", DataType::Boolean, true)];
    let schema = export_schema(&Schema::new(fields)).unwrap();
    let plan = |from, options: Options| {
        let call = CallSettings::new(Device::CPU);
        let plan = instance.exporter().unwrap().plan(&call, "dlpack", &schema, from, &options).unwrap();
        plan.into_iter().map(|column| (column.verdict, column.reason)).collect::<Vec<_>>()
    };
    let in_place = (Verdict::ZeroCopy, "the tensor refers to the buffer".to_string());
    let bits = (Verdict::Converted, "bits become bytes".to_string());
    assert_eq!(plan(Device::CPU, Options::new()), [in_place.clone(), bits.clone()]);
    let copied = (Verdict::Copied, format!("from {} to {}", Device::UNTOUCHABLE, Device::CPU));
    assert_eq!(plan(Device::UNTOUCHABLE, Options::new()), [copied, bits]);
    let forbidden = "bits become bytes, but copy=never forbids a copy".to_string();
    let expected = [in_place, (Verdict::Unsupported, forbidden)];
    assert_eq!(plan(Device::CPU, Options::new().with("copy", "never")), expected);
}

#[test]
fn rejects_invalid_fixed_shape_tensor_metadata() {
    let host = TestHost::new();
    let instance = instance(&host);
    let call = CallSettings::new(Device::CPU);
    let item = Arc::new(Field::new("item", DataType::Int8, true));
    for (metadata, message) in [
        ("", "metadata is invalid"),
        ("{}", "missing field `shape`"),
        (r#"{"shape":[2,2]}"#, "does not match a row of 6 values"),
        (r#"{"shape":[18446744073709551615,18446744073709551615]}"#, "does not match a row of 6 values"),
        (r#"{"shape":[-6]}"#, "metadata is invalid"),
        (r#"{"shape":[2,3],"permutation":[0,0]}"#, "not a permutation of 2 dimensions"),
        (r#"{"shape":[2,3],"permutation":[0,1,2]}"#, "not a permutation"),
        (r#"{"shape":[2,3],"permutation":[0,9]}"#, "not a permutation"),
    ] {
        let extension =
            [("ARROW:extension:name", "arrow.fixed_shape_tensor"), ("ARROW:extension:metadata", metadata)];
        let field = Field::new("t", DataType::FixedSizeList(item.clone(), 6), true).with_metadata(
            extension
                .into_iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect::<arrow_schema::Metadata>(),
        );
        let schema = export_schema(&Schema::new(vec![field])).unwrap();
        let begun = instance.exporter().unwrap().begin(&call, "dlpack", &schema, &Options::new(), None);
        let error = begun.err().unwrap().message().to_string();
        assert!(error.contains("column 't'") && error.contains(message), "{metadata}: {error}");
    }
}

#[test]
fn rejects_nulls_within_rows_even_with_masks() {
    let host = TestHost::new();
    let instance = instance(&host);
    for device in devices().iter().copied() {
        let validity = bytes_on(&host, device, &[0b1111_0111]);
        let values = array(DataType::Int8, 6, Some(validity), bytes_on(&host, device, &[1, 2, 3, 4, 5, 6]));
        let item = Arc::new(Field::new("item", DataType::Int8, true));
        let list_type = DataType::FixedSizeList(item, 2);
        let list = DeviceArray::try_new(list_type, 3, 0, Some(0), vec![None], vec![values], None).unwrap();
        let whole = batch(vec![("l", list)]);
        let out = |batch: &DeviceBatch, pairs: &[(&str, &str)]| {
            export(&host, &instance, device, batch, "dlpack", &options(pairs))
        };
        for pairs in [&[][..], &[("nulls", "mask")]] {
            let error = out(&whole, pairs).err().unwrap().message().to_string();
            assert!(error.contains("column 'l': 1 values within its rows are null"), "{error}");
        }
        // A slice that does not include this row has no nulls.
        let tensors = out(&whole.slice(0, 1).unwrap(), &[]).unwrap();
        assert_eq!(tensors[0].elements(&host, device), [1, 2]);
        let tensors = out(&whole.slice(2, 1).unwrap(), &[("nulls", "mask")]).unwrap();
        assert_eq!((tensors[0].shape.clone(), tensors[0].elements(&host, device)), (vec![1, 2], vec![5, 6]));
        assert_eq!(tensors[1].elements(&host, device), [0]);
    }
    drop(instance);
    host.assert_nothing_leaked();
}
