//! Tests the checks of arrays that do not read contents, such as the numbers of buffers and of
//! nulls.

use crate::common::{Fixture, c_array, samples};
use arrow_array::{Array, ArrayRef, Int32Array, StringViewArray};
use arrow_schema::DataType;
use crossdock_arrays::{DeviceArray, on_cpu};
use crossdock_memory::Buffer;
use crossdock_plugin_api::abi;
use std::sync::Arc;

fn buffer(fixture: &Fixture, bytes: usize) -> Option<Buffer> {
    let filled = fixture.memory.alloc_with(&fixture.cpu, bytes, |to| {
        to.fill(0);
        Ok(())
    });
    Some(filled.unwrap().freeze(&fixture.cpu).unwrap())
}

/// Creates an array of `len` values of a type without children.
fn try_array(
    data_type: DataType,
    len: usize,
    nulls: Option<usize>,
    buffers: Vec<Option<Buffer>>,
) -> Result<DeviceArray, String> {
    DeviceArray::try_new(data_type, len, 0, nulls, buffers, Vec::new(), None).map_err(|e| e.message().into())
}

#[test]
fn only_view_arrays_may_have_more_than_two_buffers() {
    let fixture = Fixture::new();
    let some = |n: usize| (0..n).map(|_| buffer(&fixture, 64)).collect::<Vec<_>>();
    for n in 0..5 {
        let ints = try_array(DataType::Int32, 2, None, some(n));
        assert_eq!(ints.is_ok(), n == 2, "{n} buffers: {ints:?}");
        let views = try_array(DataType::Utf8View, 2, None, some(n));
        assert_eq!(views.is_ok(), n >= 2, "{n} buffers: {views:?}");
    }
    let error = try_array(DataType::Int32, 2, None, some(3)).unwrap_err();
    assert_eq!(error, "an array of type int32: the array has 3 buffers, expected 2");
    let error = try_array(DataType::Utf8View, 2, None, some(1)).unwrap_err();
    assert_eq!(error, "an array of type string_view: the array has 1 buffers, expected 2");
}

#[test]
fn rejects_short_or_missing_values_buffer() {
    let fixture = Fixture::new();
    let ints = |len, bytes| try_array(DataType::Int32, len, None, vec![None, buffer(&fixture, bytes)]);
    ints(4, 16).unwrap();
    let error = ints(4, 15).unwrap_err();
    assert_eq!(error, "an array of type int32: the values buffer has 15 bytes, expected at least 16");
    let missing = |len| try_array(DataType::Int32, len, None, vec![None, None]);
    missing(0).unwrap();
    assert_eq!(missing(1).unwrap_err(), "an array of type int32: the values buffer is missing");
}

#[test]
fn rejects_null_count_above_length_or_without_bitmap() {
    let fixture = Fixture::new();
    let ints = |len, nulls, bitmap: bool| {
        let bits = if bitmap { buffer(&fixture, 64) } else { None };
        let array = try_array(DataType::Int32, len, nulls, vec![bits, buffer(&fixture, 64)]);
        array.map(|array| array.null_count())
    };
    let wrong = |what: &str| Err(format!("an array of type int32: {what}"));
    assert_eq!(ints(3, Some(0), true), Ok(Some(0)));
    assert_eq!(ints(3, Some(2), true), Ok(Some(2)));
    assert_eq!(ints(3, Some(3), true), Ok(Some(3)));
    assert_eq!(ints(3, None, true), Ok(None));
    assert_eq!(ints(3, Some(4), true), wrong("the null count is 4, expected at most the length 3"));
    assert_eq!(ints(3, Some(0), false), Ok(Some(0)));
    assert_eq!(ints(3, None, false), Ok(Some(0)));
    assert_eq!(ints(3, Some(1), false), wrong("the null count is 1, but the array has no validity bitmap"));
    // If there are no values, the null count becomes 0, whatever count is declared.
    assert_eq!(ints(0, None, true), Ok(Some(0)));
    assert_eq!(ints(0, Some(2), true), Ok(Some(0)));
    assert_eq!(ints(0, Some(2), false), Ok(Some(0)));
}

#[test]
fn null_count_is_length_for_null_arrays_and_zero_for_run_end_arrays() {
    for declared in [None, Some(0), Some(3), Some(9)] {
        assert_eq!(try_array(DataType::Null, 3, declared, Vec::new()).unwrap().null_count(), Some(3));
    }
    let fixture = Fixture::new();
    let runs: ArrayRef = samples::all().pop().unwrap();
    assert!(matches!(runs.data_type(), DataType::RunEndEncoded(..)));
    let runs = fixture.batch(&[runs]).column(0).unwrap().clone();
    let again = |nulls| {
        let children = runs.children().to_vec();
        let array = DeviceArray::try_new(runs.data_type().clone(), 11, 0, nulls, Vec::new(), children, None);
        array.map(|array| array.null_count()).map_err(|e| e.message().to_owned())
    };
    assert_eq!(again(Some(0)), Ok(Some(0)));
    assert_eq!(again(None), Ok(Some(0)));
    let error = again(Some(1)).unwrap_err();
    assert!(error.ends_with("the null count is 1, expected 0: the type has no validity bitmap"), "{error}");
}

/// In a union, the first buffer contains type ids, whereas other types have the bitmap at this
/// index.
#[test]
fn union_type_ids_are_not_read_as_bitmap() {
    let fixture = Fixture::new();
    let unions: Vec<ArrayRef> =
        samples::all().into_iter().filter(|a| matches!(a.data_type(), DataType::Union(..))).collect();
    assert_eq!(unions.len(), 2);
    for union in unions {
        let whole = fixture.batch(&[union]).column(0).unwrap().clone();
        let again = |nulls| {
            let (buffers, children) = (whole.buffers().to_vec(), whole.children().to_vec());
            let array =
                DeviceArray::try_new(whole.data_type().clone(), 11, 0, nulls, buffers, children, None);
            array.map(|array| array.null_count()).map_err(|e| e.message().to_owned())
        };
        assert_eq!(again(None), Ok(Some(0)), "an unknown count becomes 0");
        assert_eq!(again(Some(0)), Ok(Some(0)));
        let error = again(Some(1)).unwrap_err();
        assert!(
            error.ends_with("the null count is 1, expected 0: the type has no validity bitmap"),
            "{error}"
        );
    }
}

#[test]
fn recount_nulls_ignores_declared_count() {
    let fixture = Fixture::new();
    let bits = fixture.memory.alloc_with(&fixture.cpu, 1, |to| {
        to.fill(0b0101);
        Ok(())
    });
    let bits = Some(bits.unwrap().freeze(&fixture.cpu).unwrap());
    let array = try_array(DataType::Int32, 4, Some(1), vec![bits, buffer(&fixture, 16)]).unwrap();
    assert_eq!((array.count_nulls(&fixture.cpu), array.recount_nulls(&fixture.cpu)), (Ok(1), Ok(2)));
}

#[test]
fn on_cpu_sets_cpu_device() {
    let array = on_cpu(c_array(&Int32Array::from(vec![1, 2])));
    assert_eq!((array.device_type, array.device_id, array.array.length), (abi::DEVICE_CPU, -1, 2));
}

#[test]
fn inline_views_have_no_data_buffers() {
    let fixture = Fixture::new();
    let short: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
    assert!(short.to_data().buffers().len() == 1);
    let array = fixture.batch(&[short]).column(0).unwrap().clone();
    assert_eq!((array.len(), array.buffers().len()), (2, 2));
}
