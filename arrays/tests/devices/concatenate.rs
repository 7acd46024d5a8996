//! Tests concatenation of batches of every Arrow type on every device.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::types::{Int8Type, Int16Type};
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, DictionaryArray, Int16Array, Int32Array, ListViewArray,
    RunArray, StringArray, UnionArray,
};
use arrow_schema::{DataType, Field, UnionMode};
use crossdock_arrays::{DeviceBatch, Level, first_difference, validate};
use crossdock_memory::{Device, Stream};
use crossdock_plugin_api::Code;
use crossdock_test_support::devices;

/// Offsets and lengths of the slices of arrays of 11 rows. The slices begin at and within bytes of
/// bitmaps, and some are empty or have one row.
const PARTS: [(usize, usize); 6] = [(1, 3), (4, 0), (0, 9), (10, 1), (2, 8), (0, 11)];

/// Whether a type cannot be concatenated on a device.
fn is_rejected(data_type: &DataType, device: Device) -> bool {
    use DataType::*;
    let below = |field: &arrow_schema::FieldRef| is_rejected(field.data_type(), device);
    match data_type {
        Union(_, UnionMode::Dense) => device != Device::CPU,
        Union(fields, UnionMode::Sparse) => fields.iter().any(|(_, field)| below(field)),
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => below(field),
        ListView(field) | LargeListView(field) | RunEndEncoded(_, field) => below(field),
        Struct(fields) => fields.iter().any(below),
        _ => false,
    }
}

fn parts(batch: &DeviceBatch) -> Vec<DeviceBatch> {
    PARTS.iter().map(|(offset, len)| batch.slice(*offset, *len).unwrap()).collect()
}

fn assert_concatenated(parts: &[DeviceBatch], whole: &DeviceBatch, stream: &Stream, what: &DataType) {
    assert_eq!(whole.len(), parts.iter().map(DeviceBatch::len).sum::<usize>());
    validate(whole, Level::Full, stream).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut from = 0;
    for part in parts {
        let piece = whole.slice(from, part.len()).unwrap();
        assert_eq!(first_difference(part, &piece, stream).unwrap(), None, "{what} {from}");
        from += part.len();
    }
}

#[test]
fn concatenates_slices_of_every_type() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        for device in devices().iter().copied() {
            let stream = fixture.host.stream(device);
            let batch = fixture.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let parts = parts(&batch);
            let whole = DeviceBatch::concatenate(&parts, &stream);
            if is_rejected(array.data_type(), device) {
                let error = whole.unwrap_err();
                assert_eq!(error.code(), Code::UNSUPPORTED, "{error}");
                assert!(error.message().contains("column 'a'"), "{error}");
                continue;
            }
            let whole = whole.unwrap_or_else(|e| panic!("{} on {device}: {e}", array.data_type()));
            assert!(whole.buffer_bytes() == 0 || whole.device() == device, "{}", array.data_type());
            assert_concatenated(&parts, &whole, &stream, array.data_type());
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn concatenates_results_of_concatenation() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        if is_rejected(array.data_type(), Device::CPU) {
            continue;
        }
        let once =
            DeviceBatch::concatenate(&parts(&fixture.batch(std::slice::from_ref(array))), &fixture.cpu)
                .unwrap();
        let twice = DeviceBatch::concatenate(&[once.clone(), once.clone()], &fixture.cpu).unwrap();
        assert_concatenated(&[once.clone(), once], &twice, &fixture.cpu, array.data_type());
    }
}

#[test]
fn returns_single_batch_unchanged_and_rejects_empty_list() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef]);
    let address = |batch: &DeviceBatch| batch.columns()[0].buffers()[1].as_ref().unwrap().address();
    let one = DeviceBatch::concatenate(std::slice::from_ref(&batch), &fixture.cpu).unwrap();
    assert_eq!(address(&one), address(&batch));
    let with_empty =
        DeviceBatch::concatenate(&[batch.slice(0, 0).unwrap(), batch.clone()], &fixture.cpu).unwrap();
    assert_eq!(address(&with_empty), address(&batch));
    let empty = [batch.slice(0, 0).unwrap(), batch.slice(1, 0).unwrap()];
    assert_eq!(DeviceBatch::concatenate(&empty, &fixture.cpu).unwrap().len(), 0);
    assert_eq!(DeviceBatch::concatenate(&[], &fixture.cpu).unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn rejects_batches_of_different_schemas_or_devices() {
    let fixture = Fixture::new();
    let numbers = fixture.batch(&[Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef]);
    let bools = fixture.batch(&[Arc::new(BooleanArray::from(vec![true])) as ArrayRef]);
    let error = DeviceBatch::concatenate(&[numbers.clone(), bools], &fixture.cpu).unwrap_err();
    assert!(error.message().contains("the schema of batch 1 differs"), "{error}");
    let on_device = numbers.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap();
    let error = DeviceBatch::concatenate(&[numbers, on_device], &fixture.cpu).unwrap_err();
    assert!(error.message().contains("expected one device"), "{error}");
}

fn dictionary(values: &[&str], keys: Vec<i8>) -> ArrayRef {
    let values = Arc::new(StringArray::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int8Type>::new(keys.into(), values))
}

#[test]
fn shares_equal_dictionaries_and_unifies_different_dictionaries() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = |array| fixture.batch(&[array]).move_to(&stream, device).unwrap();
        let parts =
            [batch(dictionary(&["a", "b"], vec![0, 1])), batch(dictionary(&["a", "b"], vec![1, 1, 0]))];
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_concatenated(&parts, &whole, &stream, whole.columns()[0].data_type());
        let [first, _] = parts;
        let other = batch(dictionary(&["a", "c"], vec![0, 1]));
        let parts = [first, other];
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_concatenated(&parts, &whole, &stream, whole.columns()[0].data_type());
        assert_eq!(whole.columns()[0].dictionary().unwrap().len(), 3, "each value once");
        assert_eq!(whole.device(), device);
    }
}

#[test]
fn unifies_dictionaries_of_every_value_type() {
    let fixture = Fixture::new();
    for values in &samples::all() {
        // The parts have null keys, keys of the first and of the last value, and dictionaries that
        // share some of their values.
        let encoded = |from: usize, len: usize| -> ArrayRef {
            let last = i16::try_from(len - 1).unwrap();
            let keys = Int16Array::from(vec![Some(0), None, Some(last), Some(0), Some(1)]);
            Arc::new(DictionaryArray::<Int16Type>::try_new(keys, values.slice(from, len)).unwrap())
        };
        for device in devices().iter().copied() {
            let stream = fixture.host.stream(device);
            let batch = |array| fixture.batch(&[array]).move_to(&stream, device).unwrap();
            let (first, second) = (batch(encoded(0, 7)), batch(encoded(3, 8)));
            let parts = [first.clone(), second.slice(1, 4).unwrap(), first.slice(2, 1).unwrap()];
            let whole = DeviceBatch::concatenate(&parts, &stream);
            let whole = whole.unwrap_or_else(|e| panic!("{} on {device}: {e}", values.data_type()));
            assert_concatenated(&parts, &whole, &stream, values.data_type());
            assert!(whole.columns()[0].dictionary().unwrap().len() <= 11);
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn rejects_ordered_dictionaries_that_would_change_order() {
    let fixture = Fixture::new();
    let batch = |values: &[&str]| {
        let batch = fixture.batch(&[dictionary(values, vec![0, 1])]);
        let field = batch.schema().field(0).clone().with_dict_is_ordered(true);
        batch.with_schema(Arc::new(arrow_schema::Schema::new(vec![field]))).unwrap()
    };
    let (all, some) = (batch(&["low", "mid", "high"]), batch(&["low", "high"]));
    let whole = DeviceBatch::concatenate(&[all.clone(), some.clone()], &fixture.cpu).unwrap();
    assert_eq!(whole.columns()[0].dictionary().unwrap().len(), 3);
    let error = DeviceBatch::concatenate(&[some, all], &fixture.cpu).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("column 'a'") && error.message().contains("ordered"), "{error}");
}

#[test]
fn rejects_more_values_than_keys_can_address() {
    let fixture = Fixture::new();
    let part = |from: i32| {
        let values: Vec<String> = (from..from + 100).map(|i| i.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        fixture.batch(&[dictionary(&values, vec![0, 99])])
    };
    let error = DeviceBatch::concatenate(&[part(0), part(100)], &fixture.cpu).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("column 'a'") && error.message().contains("wider keys"), "{error}");
}

#[test]
fn concatenated_views_refer_to_their_own_data() {
    let fixture = Fixture::new();
    let views = |text: &str| -> ArrayRef {
        Arc::new(BinaryViewArray::from_iter_values(
            (0..3).map(|i| format!("{i} {text} that is not in place")),
        ))
    };
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let parts = ["one", "two", "three"].map(|text| fixture.batch(&[views(text)]));
        let parts = parts.map(|part| part.move_to(&stream, device).unwrap());
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_concatenated(&parts, &whole, &stream, &DataType::BinaryView);
    }
}

fn list_views(first: i32) -> ArrayRef {
    let values = Arc::new(Int32Array::from_iter_values(first..first + 4));
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    Arc::new(ListViewArray::new(item, vec![2, 0, 1].into(), vec![2, 1, 0].into(), values, None))
}

fn dense_unions(first: i32) -> ArrayRef {
    let fields = [(7, Field::new("n", DataType::Int32, true)), (3, Field::new("s", DataType::Utf8, true))];
    let fields = fields.map(|(id, field)| (id, Arc::new(field))).into_iter().collect();
    let numbers = Arc::new(Int32Array::from_iter_values(first..first + 3));
    let texts = Arc::new(StringArray::from(vec![format!("one {first}"), format!("two {first}")]));
    let (ids, offsets) = (vec![7, 3, 7, 3].into(), vec![2, 0, 0, 1].into());
    Arc::new(UnionArray::try_new(fields, ids, Some(offsets), vec![numbers, texts]).unwrap())
}

#[test]
fn concatenated_list_views_and_dense_unions_refer_to_their_own_values() {
    let fixture = Fixture::new();
    for (device, of) in
        [list_views, dense_unions].into_iter().flat_map(|of| devices().iter().map(move |d| (*d, of)))
    {
        let stream = fixture.host.stream(device);
        let part = |first| fixture.batch(&[of(first)]).move_to(&stream, device).unwrap();
        let parts = [part(1), part(100).slice(1, 2).unwrap(), part(7).slice(0, 0).unwrap(), part(1000)];
        let data_type = parts[0].columns()[0].data_type().clone();
        if is_rejected(&data_type, device) {
            assert_eq!(DeviceBatch::concatenate(&parts, &stream).unwrap_err().code(), Code::UNSUPPORTED);
            continue;
        }
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_concatenated(&parts, &whole, &stream, &data_type);
    }
}

fn runs(ends: &[i16]) -> ArrayRef {
    let values: Vec<i32> = (0..ends.len() as i32).collect();
    Arc::new(RunArray::try_new(&Int16Array::from(ends.to_vec()), &Int32Array::from(values)).unwrap())
}

#[test]
fn concatenated_slices_keep_only_runs_that_contain_their_rows() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = fixture.batch(&[runs(&[2, 5, 6, 10])]).move_to(&stream, device).unwrap();
        // The slices contain a part of one run, several runs, the last run end, the first row, no
        // rows, and the last row.
        let parts: Vec<_> = [(3, 1), (1, 5), (5, 5), (0, 1), (7, 0), (9, 1)]
            .iter()
            .map(|(offset, len)| batch.slice(*offset, *len).unwrap())
            .collect();
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_concatenated(&parts, &whole, &stream, batch.columns()[0].data_type());
        // Each slice keeps only the runs that contain its rows.
        assert_eq!(whole.columns()[0].children()[0].len(), 1 + 3 + 2 + 1 + 1);
    }
}

#[test]
fn rejects_more_rows_than_run_ends_can_count() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&[runs(&[20_000])]);
    let error = DeviceBatch::concatenate(&[batch.clone(), batch], &fixture.cpu).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(
        error.message().contains("has the length 40000, but 16-bit run ends reach only to 32767"),
        "{error}"
    );
}
