//! What is seen of an array without a look at its contents: how many buffers and nulls it may have.

use crate::common::{Dock, c_array, samples};
use arrow_array::{Array, ArrayRef, Int32Array, StringViewArray};
use arrow_schema::DataType;
use crossdock_arrays::{DeviceArray, on_cpu};
use crossdock_memory::Buffer;
use crossdock_plugin_api::abi;
use std::sync::Arc;

fn buffer(dock: &Dock, bytes: usize) -> Option<Buffer> {
    let filled = dock.memory.alloc_with(&dock.cpu, bytes, |to| {
        to.fill(0);
        Ok(())
    });
    Some(filled.unwrap().freeze(&dock.cpu).unwrap())
}

/// `len` values of a type without children.
fn made(
    data_type: DataType,
    len: usize,
    nulls: Option<usize>,
    buffers: Vec<Option<Buffer>>,
) -> Result<DeviceArray, String> {
    DeviceArray::try_new(data_type, len, 0, nulls, buffers, Vec::new(), None).map_err(|e| e.message().into())
}

#[test]
fn only_views_may_have_more_buffers_than_their_type_says_and_nothing_fewer() {
    let dock = Dock::new();
    let some = |n: usize| (0..n).map(|_| buffer(&dock, 64)).collect::<Vec<_>>();
    for n in 0..5 {
        let ints = made(DataType::Int32, 2, None, some(n));
        assert_eq!(ints.is_ok(), n == 2, "{n} buffers: {ints:?}");
        let views = made(DataType::Utf8View, 2, None, some(n));
        assert_eq!(views.is_ok(), n >= 2, "{n} buffers: {views:?}");
    }
    let error = made(DataType::Int32, 2, None, some(3)).unwrap_err();
    assert_eq!(error, "an array of type Int32: it has 3 buffers, expected 2");
    let error = made(DataType::Utf8View, 2, None, some(1)).unwrap_err();
    assert_eq!(error, "an array of type Utf8View: it has 1 buffers, expected 2");
}

#[test]
fn buffers_are_as_long_as_their_values_need_and_missing_only_where_there_are_none() {
    let dock = Dock::new();
    let ints = |len, bytes| made(DataType::Int32, len, None, vec![None, buffer(&dock, bytes)]);
    ints(4, 16).unwrap();
    let error = ints(4, 15).unwrap_err();
    assert_eq!(error, "an array of type Int32: its values buffer has 15 bytes, expected at least 16");
    let missing = |len| made(DataType::Int32, len, None, vec![None, None]);
    missing(0).unwrap();
    assert_eq!(missing(1).unwrap_err(), "an array of type Int32: its values buffer is missing");
}

#[test]
fn nulls_are_no_more_than_values_and_have_a_bitmap() {
    let dock = Dock::new();
    let ints = |len, nulls, bitmap: bool| {
        let bits = if bitmap { buffer(&dock, 64) } else { None };
        let array = made(DataType::Int32, len, nulls, vec![bits, buffer(&dock, 64)]);
        array.map(|array| array.null_count())
    };
    let wrong = |what: &str| Err(format!("an array of type Int32: {what}"));
    assert_eq!(ints(3, Some(0), true), Ok(Some(0)));
    assert_eq!(ints(3, Some(2), true), Ok(Some(2)));
    assert_eq!(ints(3, Some(3), true), Ok(Some(3)));
    assert_eq!(ints(3, None, true), Ok(None));
    assert_eq!(ints(3, Some(4), true), wrong("4 nulls among 3 values"));
    assert_eq!(ints(3, Some(0), false), Ok(Some(0)));
    assert_eq!(ints(3, None, false), Ok(Some(0)));
    assert_eq!(ints(3, Some(1), false), wrong("1 nulls, but no validity bitmap"));
    // Of no values none is null, whatever was said.
    assert_eq!(ints(0, None, true), Ok(Some(0)));
    assert_eq!(ints(0, Some(2), true), Ok(Some(0)));
    assert_eq!(ints(0, Some(2), false), Ok(Some(0)));
}

#[test]
fn of_nulls_every_value_is_one_and_runs_have_none_of_their_own() {
    for said in [None, Some(0), Some(3), Some(9)] {
        assert_eq!(made(DataType::Null, 3, said, Vec::new()).unwrap().null_count(), Some(3));
    }
    let dock = Dock::new();
    let runs: ArrayRef = samples::all().pop().unwrap();
    assert!(matches!(runs.data_type(), DataType::RunEndEncoded(..)));
    let runs = dock.batch(&[runs]).column(0).unwrap().clone();
    let again = |nulls| {
        let children = runs.children().to_vec();
        let array = DeviceArray::try_new(runs.data_type().clone(), 11, 0, nulls, Vec::new(), children, None);
        array.map(|array| array.null_count()).map_err(|e| e.message().to_owned())
    };
    assert_eq!(again(Some(0)), Ok(Some(0)));
    assert_eq!(again(None), Ok(Some(0)));
    let error = again(Some(1)).unwrap_err();
    assert!(error.ends_with("1 nulls, expected 0: the type has no validity bitmap"), "{error}");
}

/// A type that has no bitmap has its first buffer in that place.
#[test]
fn the_type_ids_of_a_union_are_no_bitmap() {
    let dock = Dock::new();
    let unions: Vec<ArrayRef> =
        samples::all().into_iter().filter(|a| matches!(a.data_type(), DataType::Union(..))).collect();
    assert_eq!(unions.len(), 2);
    for union in unions {
        let whole = dock.batch(&[union]).column(0).unwrap().clone();
        let again = |nulls| {
            let (buffers, children) = (whole.buffers().to_vec(), whole.children().to_vec());
            let array =
                DeviceArray::try_new(whole.data_type().clone(), 11, 0, nulls, buffers, children, None);
            array.map(|array| array.null_count()).map_err(|e| e.message().to_owned())
        };
        assert_eq!(again(None), Ok(Some(0)), "unknown is none");
        assert_eq!(again(Some(0)), Ok(Some(0)));
        let error = again(Some(1)).unwrap_err();
        assert!(error.ends_with("1 nulls, expected 0: the type has no validity bitmap"), "{error}");
    }
}

#[test]
fn nulls_are_counted_again_whatever_was_told_of_them() {
    let dock = Dock::new();
    let bits = dock.memory.alloc_with(&dock.cpu, 1, |to| {
        to.fill(0b0101);
        Ok(())
    });
    let bits = Some(bits.unwrap().freeze(&dock.cpu).unwrap());
    let array = made(DataType::Int32, 4, Some(1), vec![bits, buffer(&dock, 16)]).unwrap();
    assert_eq!((array.count_nulls(&dock.cpu), array.recount_nulls(&dock.cpu)), (Ok(1), Ok(2)));
}

#[test]
fn an_array_of_the_host_is_on_the_cpu() {
    let array = on_cpu(c_array(&Int32Array::from(vec![1, 2])));
    assert_eq!((array.device_type, array.device_id, array.array.length), (abi::DEVICE_CPU, -1, 2));
}

#[test]
fn views_without_buffers_of_text_have_the_views_alone() {
    let dock = Dock::new();
    let short: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
    assert!(short.to_data().buffers().len() == 1);
    let array = dock.batch(&[short]).column(0).unwrap().clone();
    assert_eq!((array.len(), array.buffers().len()), (2, 2));
}
