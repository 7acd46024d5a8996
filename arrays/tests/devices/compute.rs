//! Tests the operations on rows and columns on every device, including one whose memory the host
//! cannot read.

use std::sync::Arc;

use crate::common::{Fixture, field_of, samples};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    LargeStringArray, ListArray, StringArray, TimestampMillisecondArray, TimestampSecondArray,
    new_null_array,
};
use arrow_schema::DataType;
use crossdock_arrays::filter::{Decimal, Literal};
use crossdock_arrays::{
    CastMode, DeviceArray, DeviceBatch, Level, RowIndices, cast_values, dictionary_encode,
    elements_and_offsets, fill_null, filter_rows, first_difference, first_null, lists_of_fixed_size,
    null_mask, validate,
};
use crossdock_memory::{Device, Stream};
use crossdock_test_support::devices;

/// Calls `test` with each device, and with a function that copies an array to it.
fn on_every_device(test: impl Fn(&dyn Fn(ArrayRef) -> DeviceArray, &Stream)) {
    for device in devices().iter().copied() {
        let fixture = Fixture::new();
        let stream = &fixture.memory.default_stream(device).unwrap();
        let put = |array: ArrayRef| moved(&fixture, &array, device, stream);
        test(&put, stream);
    }
}

fn moved(fixture: &Fixture, array: &ArrayRef, device: Device, stream: &Stream) -> DeviceArray {
    let batch = fixture.batch(std::slice::from_ref(array)).move_to(stream, device).unwrap();
    batch.column(0).unwrap().clone()
}

fn batch_of(array: &DeviceArray) -> DeviceBatch {
    let field = arrow_schema::Field::new("", array.data_type().clone(), true);
    let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
    DeviceBatch::try_new(schema, array.len(), vec![array.clone()]).unwrap()
}

/// Fails unless the array is valid, is on the stream's device, and has the expected values.
fn expect(array: &DeviceArray, expected: ArrayRef, stream: &Stream) {
    assert!(array.is_empty() || array.device() == stream.device());
    validate(&batch_of(array), Level::Full, stream).unwrap();
    let fixture = Fixture::new();
    let expected = fixture.import(&expected, &field_of(0, &expected));
    assert_eq!(first_difference(&batch_of(array), &batch_of(&expected), stream).unwrap(), None);
}

#[test]
fn takes_rows_of_every_type() {
    on_every_device(|put, stream| {
        let rows: Vec<i32> = vec![3, 0, 3, 1];
        let indices = put(Arc::new(Int32Array::from(rows.clone())));
        for array in samples::all() {
            let source = put(array);
            if source.len() < 4 {
                continue;
            }
            let source = source.slice(source.len() - 4, 4).unwrap();
            let indices = RowIndices::new(&indices, source.len(), stream).unwrap();
            let taken = indices.take(&source).unwrap_or_else(|e| panic!("{}: {e}", source.data_type()));
            validate(&batch_of(&taken), Level::Full, stream).unwrap();
            for (i, row) in rows.iter().enumerate() {
                let one = |array: &DeviceArray, i: usize| batch_of(array).slice(i, 1).unwrap();
                let difference = first_difference(&one(&source, *row as usize), &one(&taken, i), stream);
                assert_eq!(difference.unwrap(), None, "{}", source.data_type());
            }
        }
    });
}

#[test]
fn null_indices_give_nulls_and_wrong_ones_are_errors() {
    on_every_device(|put, stream| {
        let texts = put(Arc::new(StringArray::from(vec![Some("a"), None, Some("ccc")])));
        let indices = put(Arc::new(Int8Array::from(vec![Some(2), None, Some(1), Some(0)])));
        let taken = RowIndices::new(&indices, 3, stream).unwrap().take(&texts).unwrap();
        expect(&taken, Arc::new(StringArray::from(vec![Some("ccc"), None, None, Some("a")])), stream);
        let error = RowIndices::new(&indices, 2, stream).map(|_| ()).unwrap_err();
        assert_eq!((error.row(), error.message()), (Some(0), "an index is out of range for 2 rows"));
    });
}

#[test]
fn filters_rows_by_booleans() {
    on_every_device(|put, stream| {
        let numbers = batch_of(&put(Arc::new(Int64Array::from_iter_values(0..5))));
        let mask = BooleanArray::from(vec![Some(true), None, Some(false), Some(true), Some(true)]);
        let mask = put(Arc::new(mask));
        let kept = filter_rows(&numbers, &mask, stream).unwrap().unwrap();
        expect(kept.column(0).unwrap(), Arc::new(Int64Array::from(vec![0, 3, 4])), stream);
        let none = put(Arc::new(BooleanArray::from(vec![false; 5])));
        assert!(filter_rows(&numbers, &none, stream).unwrap().is_none());
        assert!(filter_rows(&numbers, &mask.slice(0, 2).unwrap(), stream).is_err());
    });
}

#[test]
fn fills_nulls_of_slices() {
    on_every_device(|put, stream| {
        let seven = Literal::Decimal(Decimal::from(7));
        let numbers = put(Arc::new(Int16Array::from(vec![Some(1), None, None, Some(4)])));
        let filled = fill_null(&numbers.slice(1, 3).unwrap(), &seven, stream).unwrap();
        expect(&filled, Arc::new(Int16Array::from(vec![7, 7, 4])), stream);
        let mask = null_mask(&numbers.slice(1, 3).unwrap(), stream).unwrap();
        expect(&mask, Arc::new(BooleanArray::from(vec![true, true, false])), stream);
        assert_eq!(first_null(&numbers, stream).unwrap(), Some(1));
        assert_eq!(first_null(&numbers.slice(3, 1).unwrap(), stream).unwrap(), None);
        assert_eq!(first_null(&put(new_null_array(&DataType::Null, 2)), stream).unwrap(), Some(0));
        let texts = put(Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("")])));
        let text = Literal::Text("a longer text than others".into());
        let filled = fill_null(&texts, &text, stream).unwrap();
        let expected = LargeStringArray::from(vec!["a", "a longer text than others", ""]);
        expect(&filled, Arc::new(expected), stream);
        assert!(fill_null(&texts, &seven, stream).is_err());
    });
}

#[test]
fn casts_report_the_first_wrong_row() {
    on_every_device(|put, stream| {
        let numbers = put(Arc::new(Int64Array::from(vec![Some(1), None, Some(300), Some(-1)])));
        let cast = |array: &DeviceArray, to, mode| cast_values(array, &to, mode, stream);
        let error = cast(&numbers, DataType::UInt8, CastMode::Safe).unwrap_err();
        assert_eq!(error.row(), Some(2), "{error}");
        let small = cast(&numbers, DataType::Int16, CastMode::Safe).unwrap();
        expect(&small, Arc::new(Int16Array::from(vec![Some(1), None, Some(300), Some(-1)])), stream);
        let floats = put(Arc::new(Float64Array::from(vec![1.0, 2.5])));
        assert_eq!(cast(&floats, DataType::Int32, CastMode::Safe).unwrap_err().row(), Some(1));
        let truncated = cast(&floats, DataType::Int32, CastMode::Unsafe).unwrap();
        expect(&truncated, Arc::new(Int32Array::from(vec![1, 2])), stream);
        let times = put(Arc::new(TimestampSecondArray::from(vec![Some(i64::MAX / 1000), None])));
        let ms = DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, None);
        let expected = TimestampMillisecondArray::from(vec![Some(i64::MAX / 1000 * 1000), None]);
        expect(&cast(&times, ms.clone(), CastMode::Safe).unwrap(), Arc::new(expected), stream);
        let late = put(Arc::new(TimestampSecondArray::from(vec![None, Some(i64::MAX)])));
        assert_eq!(cast(&late, ms, CastMode::Safe).unwrap_err().row(), Some(1));
    });
}

#[test]
fn dictionaries_have_each_value_once() {
    on_every_device(|put, stream| {
        let texts = vec![Some("b"), None, Some("a"), Some("b"), Some(""), Some("a")];
        let encoded = dictionary_encode(&put(Arc::new(StringArray::from(texts.clone()))), stream).unwrap();
        assert_eq!(encoded.dictionary().unwrap().len(), 3);
        let expected: DictionaryArray<Int32Type> = texts.into_iter().collect();
        expect(&encoded, Arc::new(expected), stream);
    });
}

#[test]
fn lists_of_equal_length_become_lists_of_fixed_size() {
    on_every_device(|put, stream| {
        let lists = |rows: &[&[i32]]| {
            let rows = rows.iter().map(|row| Some(row.iter().map(|n| Some(*n))));
            put(Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows)))
        };
        let equal = lists(&[&[9], &[1, 2], &[3, 4]]).slice(1, 2).unwrap();
        let fixed = lists_of_fixed_size(&equal, stream).unwrap();
        let elements = fixed.children().first().unwrap();
        expect(elements, Arc::new(Int32Array::from(vec![1, 2, 3, 4])), stream);
        let unequal = lists(&[&[1, 2], &[3, 4], &[5]]);
        assert_eq!(lists_of_fixed_size(&unequal, stream).unwrap_err().row(), Some(2));
        let (elements, offsets) = elements_and_offsets(&unequal.slice(1, 2).unwrap(), stream).unwrap();
        expect(&elements, Arc::new(Int32Array::from(vec![3, 4, 5])), stream);
        expect(&offsets, Arc::new(Int32Array::from(vec![0, 2, 3])), stream);
        assert_eq!(elements.len(), 3);
    });
}
