//! Batches put together, of every Arrow type, on every device.

use std::sync::Arc;

use crate::common::{Dock, samples};
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

/// Slices of 11 rows: whole bytes and parts of them, nothing, one row.
const PARTS: [(usize, usize); 6] = [(1, 3), (4, 0), (0, 9), (10, 1), (2, 8), (0, 11)];

/// Whether a type is refused on a device.
fn is_refused(data_type: &DataType, device: Device) -> bool {
    use DataType::*;
    let below = |field: &arrow_schema::FieldRef| is_refused(field.data_type(), device);
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

fn assert_is_all_of(parts: &[DeviceBatch], whole: &DeviceBatch, stream: &Stream, what: &DataType) {
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
fn slices_of_every_type_put_together_are_one_after_the_other() {
    let dock = Dock::new();
    for array in &samples::all() {
        for device in devices().iter().copied() {
            let stream = dock.host.stream(device);
            let batch = dock.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let parts = parts(&batch);
            let whole = DeviceBatch::concatenate(&parts, &stream);
            if is_refused(array.data_type(), device) {
                let error = whole.unwrap_err();
                assert_eq!(error.code(), Code::UNSUPPORTED, "{error}");
                assert!(error.message().contains("column 'a'"), "{error}");
                continue;
            }
            let whole = whole.unwrap_or_else(|e| panic!("{} on {device}: {e}", array.data_type()));
            assert!(whole.bytes() == 0 || whole.device() == device, "{}", array.data_type());
            assert_is_all_of(&parts, &whole, &stream, array.data_type());
        }
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn what_was_put_together_can_be_put_together_again() {
    let dock = Dock::new();
    for array in &samples::all() {
        if is_refused(array.data_type(), Device::CPU) {
            continue;
        }
        let once =
            DeviceBatch::concatenate(&parts(&dock.batch(std::slice::from_ref(array))), &dock.cpu).unwrap();
        let twice = DeviceBatch::concatenate(&[once.clone(), once.clone()], &dock.cpu).unwrap();
        assert_is_all_of(&[once.clone(), once], &twice, &dock.cpu, array.data_type());
    }
}

#[test]
fn one_batch_is_itself_and_none_is_an_error() {
    let dock = Dock::new();
    let batch = dock.batch(&[Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef]);
    let address = |batch: &DeviceBatch| batch.columns()[0].buffers()[1].as_ref().unwrap().address();
    let one = DeviceBatch::concatenate(std::slice::from_ref(&batch), &dock.cpu).unwrap();
    assert_eq!(address(&one), address(&batch));
    let with_empty =
        DeviceBatch::concatenate(&[batch.slice(0, 0).unwrap(), batch.clone()], &dock.cpu).unwrap();
    assert_eq!(address(&with_empty), address(&batch));
    let empty = [batch.slice(0, 0).unwrap(), batch.slice(1, 0).unwrap()];
    assert_eq!(DeviceBatch::concatenate(&empty, &dock.cpu).unwrap().len(), 0);
    assert_eq!(DeviceBatch::concatenate(&[], &dock.cpu).unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn batches_of_another_schema_and_on_another_device_are_refused() {
    let dock = Dock::new();
    let numbers = dock.batch(&[Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef]);
    let bools = dock.batch(&[Arc::new(BooleanArray::from(vec![true])) as ArrayRef]);
    let error = DeviceBatch::concatenate(&[numbers.clone(), bools], &dock.cpu).unwrap_err();
    assert!(error.message().contains("batch 1 is of another schema"), "{error}");
    let there = numbers.move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap();
    let error = DeviceBatch::concatenate(&[numbers, there], &dock.cpu).unwrap_err();
    assert!(error.message().contains("expected one device"), "{error}");
}

fn dictionary(values: &[&str], keys: Vec<i8>) -> ArrayRef {
    let values = Arc::new(StringArray::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int8Type>::new(keys.into(), values))
}

#[test]
fn equal_dictionaries_are_one_and_different_ones_are_unified() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let batch = |array| dock.batch(&[array]).move_to(&stream, device).unwrap();
        let parts =
            [batch(dictionary(&["a", "b"], vec![0, 1])), batch(dictionary(&["a", "b"], vec![1, 1, 0]))];
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_is_all_of(&parts, &whole, &stream, whole.columns()[0].data_type());
        let [first, _] = parts;
        let other = batch(dictionary(&["a", "c"], vec![0, 1]));
        let parts = [first, other];
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_is_all_of(&parts, &whole, &stream, whole.columns()[0].data_type());
        assert_eq!(whole.columns()[0].dictionary().unwrap().len(), 3, "each value once");
        assert_eq!(whole.device(), device);
    }
}

#[test]
fn dictionaries_of_different_values_of_every_type_are_unified() {
    let dock = Dock::new();
    for values in &samples::all() {
        // Nulls, keys of the first and the last value, and dictionaries that share some values.
        let encoded = |from: usize, len: usize| -> ArrayRef {
            let last = i16::try_from(len - 1).unwrap();
            let keys = Int16Array::from(vec![Some(0), None, Some(last), Some(0), Some(1)]);
            Arc::new(DictionaryArray::<Int16Type>::try_new(keys, values.slice(from, len)).unwrap())
        };
        for device in devices().iter().copied() {
            let stream = dock.host.stream(device);
            let batch = |array| dock.batch(&[array]).move_to(&stream, device).unwrap();
            let (first, second) = (batch(encoded(0, 7)), batch(encoded(3, 8)));
            let parts = [first.clone(), second.slice(1, 4).unwrap(), first.slice(2, 1).unwrap()];
            let whole = DeviceBatch::concatenate(&parts, &stream);
            let whole = whole.unwrap_or_else(|e| panic!("{} on {device}: {e}", values.data_type()));
            assert_is_all_of(&parts, &whole, &stream, values.data_type());
            assert!(whole.columns()[0].dictionary().unwrap().len() <= 11);
        }
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn ordered_dictionaries_keep_their_order_or_are_refused() {
    let dock = Dock::new();
    let batch = |values: &[&str]| {
        let batch = dock.batch(&[dictionary(values, vec![0, 1])]);
        let field = batch.schema().field(0).clone().with_dict_is_ordered(true);
        batch.with_schema(Arc::new(arrow_schema::Schema::new(vec![field]))).unwrap()
    };
    let (all, some) = (batch(&["low", "mid", "high"]), batch(&["low", "high"]));
    let whole = DeviceBatch::concatenate(&[all.clone(), some.clone()], &dock.cpu).unwrap();
    assert_eq!(whole.columns()[0].dictionary().unwrap().len(), 3);
    let error = DeviceBatch::concatenate(&[some, all], &dock.cpu).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("column 'a'") && error.message().contains("ordered"), "{error}");
}

#[test]
fn more_values_than_keys_can_tell_apart_are_refused() {
    let dock = Dock::new();
    let part = |from: i32| {
        let values: Vec<String> = (from..from + 100).map(|i| i.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        dock.batch(&[dictionary(&values, vec![0, 99])])
    };
    let error = DeviceBatch::concatenate(&[part(0), part(100)], &dock.cpu).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("column 'a'") && error.message().contains("wider keys"), "{error}");
}

#[test]
fn views_go_on_pointing_at_their_own_data() {
    let dock = Dock::new();
    let views = |text: &str| -> ArrayRef {
        Arc::new(BinaryViewArray::from_iter_values(
            (0..3).map(|i| format!("{i} {text} that is not in place")),
        ))
    };
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let parts = ["one", "two", "three"].map(|text| dock.batch(&[views(text)]));
        let parts = parts.map(|part| part.move_to(&stream, device).unwrap());
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_is_all_of(&parts, &whole, &stream, &DataType::BinaryView);
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
fn rows_go_on_pointing_at_their_own_values() {
    let dock = Dock::new();
    for (device, of) in
        [list_views, dense_unions].into_iter().flat_map(|of| devices().iter().map(move |d| (*d, of)))
    {
        let stream = dock.host.stream(device);
        let part = |first| dock.batch(&[of(first)]).move_to(&stream, device).unwrap();
        let parts = [part(1), part(100).slice(1, 2).unwrap(), part(7).slice(0, 0).unwrap(), part(1000)];
        let data_type = parts[0].columns()[0].data_type().clone();
        if is_refused(&data_type, device) {
            assert_eq!(DeviceBatch::concatenate(&parts, &stream).unwrap_err().code(), Code::UNSUPPORTED);
            continue;
        }
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_is_all_of(&parts, &whole, &stream, &data_type);
    }
}

fn runs(ends: &[i16]) -> ArrayRef {
    let values: Vec<i32> = (0..ends.len() as i32).collect();
    Arc::new(RunArray::try_new(&Int16Array::from(ends.to_vec()), &Int32Array::from(values)).unwrap())
}

#[test]
fn runs_are_cut_where_their_slices_begin_and_end() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let batch = dock.batch(&[runs(&[2, 5, 6, 10])]).move_to(&stream, device).unwrap();
        // Within one run, over several, to the last end, before the first run's, and nothing.
        let parts: Vec<_> = [(3, 1), (1, 5), (5, 5), (0, 1), (7, 0), (9, 1)]
            .iter()
            .map(|(offset, len)| batch.slice(*offset, *len).unwrap())
            .collect();
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_is_all_of(&parts, &whole, &stream, batch.columns()[0].data_type());
        // One run for each that a part has rows in.
        assert_eq!(whole.columns()[0].children()[0].len(), 1 + 3 + 2 + 1 + 1);
    }
}

#[test]
fn more_rows_than_run_ends_reach_are_refused_in_words() {
    let dock = Dock::new();
    let batch = dock.batch(&[runs(&[20_000])]);
    let error = DeviceBatch::concatenate(&[batch.clone(), batch], &dock.cpu).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("40000 long, and 16-bit run ends reach to 32767"), "{error}");
}
