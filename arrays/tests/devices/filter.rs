//! Tests the comparison of values and the filtering of rows on every device.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::types::{Int8Type, Int16Type};
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array, DictionaryArray,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, LargeStringArray, ListArray, RunArray, StringArray, StringViewArray, StructArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field};
use crossdock_arrays::filter::{Comparison, Decimal, Literal, Operator, Predicate, filter};
use crossdock_arrays::{DeviceBatch, Level, first_difference, validate};
use crossdock_memory::{Device, Stream};
use crossdock_test_support::devices;

const N: usize = 11;

/// The rows that are kept: scattered, adjacent, one, none and all.
const KEPT: [&[usize]; 5] =
    [&[0, 2, 3, 6, 9, 10], &[4, 5, 6, 7], &[10], &[], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]];

/// The predicate `column == 1`.
fn is_one(column: usize) -> Predicate {
    let one = Literal::Decimal(1.into());
    let comparison = Comparison::new(&DataType::Int32, Operator::Equal, &one).unwrap();
    Predicate { path: vec![column], comparison }
}

/// The rows of a batch of one column and a column of marks.
fn assert_kept(batch: &DeviceBatch, rows: &[usize], stream: &Stream, what: &str) {
    let filtered = filter(batch, &[is_one(1)], stream).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(filtered.is_none(), rows.is_empty(), "{what}");
    let Some(filtered) = filtered else { return };
    assert_eq!((filtered.len(), filtered.device()), (rows.len(), batch.device()), "{what}");
    validate(&filtered, Level::Full, stream).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (i, row) in rows.iter().enumerate() {
        let (kept, original) = (filtered.slice(i, 1).unwrap(), batch.slice(*row, 1).unwrap());
        assert_eq!(first_difference(&original, &kept, stream).unwrap(), None, "{what}: row {row}");
    }
}

/// A struct, a list and a list of fixed size whose values are those of an array.
fn nested(array: &ArrayRef) -> [ArrayRef; 3] {
    let field = Arc::new(Field::new("item", array.data_type().clone(), true));
    let nulls = || Some(NullBuffer::from_iter((0..N).map(|i| i % 5 != 3)));
    let in_struct = StructArray::new(vec![field.clone()].into(), vec![array.clone()], nulls());
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![1, 1, 2, 4, 5, 5, 7, 8, 9, 10, 11, 11]));
    let list = ListArray::new(field.clone(), offsets, array.clone(), nulls());
    let fixed = FixedSizeListArray::new(field, 1, array.clone(), nulls());
    [Arc::new(in_struct), Arc::new(list), Arc::new(fixed)]
}

#[test]
fn filters_rows_of_every_type() {
    for device in devices().iter().copied() {
        let fixture = Fixture::new();
        let stream = fixture.host.stream(device);
        let plain = samples::all();
        let nested: Vec<ArrayRef> = plain.iter().flat_map(nested).collect();
        for array in plain.iter().chain(&nested) {
            for rows in KEPT {
                let marks: ArrayRef =
                    Arc::new(Int32Array::from_iter_values((0..N).map(|i| i32::from(rows.contains(&i)))));
                let batch = fixture.batch(&[array.clone(), marks]).move_to(&stream, device).unwrap();
                let what = format!("{} on {device}, {rows:?}", array.data_type());
                assert_kept(&batch, rows, &stream, &what);
                let (part, within): (_, Vec<usize>) = (
                    batch.slice(3, 7).unwrap(),
                    rows.iter().filter(|row| (3..10).contains(*row)).map(|row| row - 3).collect(),
                );
                assert_kept(&part, &within, &stream, &format!("{what}, a slice"));
            }
        }
        fixture.host.assert_nothing_leaked();
    }
}

/// The rows of an array that fulfil a comparison, according to the number column beside it.
fn rows_where(
    fixture: &Fixture,
    array: &ArrayRef,
    operator: Operator,
    literal: &Literal,
    device: Device,
) -> Vec<i64> {
    let stream = fixture.host.stream(device);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..array.len() as i64));
    let batch = fixture.batch(&[array.clone(), numbers]).move_to(&stream, device).unwrap();
    let comparison = Comparison::new(array.data_type(), operator, literal).unwrap();
    let predicate = Predicate { path: vec![0], comparison };
    let Some(kept) = filter(&batch, &[predicate], &stream).unwrap() else { return Vec::new() };
    let numbers = kept.select(&[1]).unwrap().move_to(&stream, Device::CPU).unwrap();
    stream.synchronize().unwrap();
    let field = Field::new("n", DataType::Int64, true);
    let numbers = fixture.export(numbers.column(0).unwrap(), &field);
    numbers.as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
}

fn holds(operator: Operator, order: Option<Ordering>) -> bool {
    match operator {
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Checks each operator. `orders` are the results of the comparison of each value with the literal:
/// `None` for a null, `Some(None)` for NaN.
fn check(array: ArrayRef, literal: &Literal, orders: &[Option<Option<Ordering>>]) {
    for device in devices().iter().copied() {
        let fixture = Fixture::new();
        for operator in Operator::ALL {
            let fulfils = |i: &usize| orders[*i].is_some_and(|order| holds(operator, order));
            let expected: Vec<i64> = (0..array.len()).filter(fulfils).map(|i| i as i64).collect();
            let actual = rows_where(&fixture, &array, operator, literal, device);
            let what = format!("{} {} {literal:?} on {device}", array.data_type(), operator.symbol());
            assert_eq!(actual, expected, "{what}");
            let slice = array.slice(1, array.len() - 1);
            let expected: Vec<i64> = expected.iter().filter(|i| **i > 0).map(|i| i - 1).collect();
            assert_eq!(rows_where(&fixture, &slice, operator, literal, device), expected, "{what}, a slice");
        }
        fixture.host.assert_nothing_leaked();
    }
}

const LESS: Option<Option<Ordering>> = Some(Some(Ordering::Less));
const EQUAL: Option<Option<Ordering>> = Some(Some(Ordering::Equal));
const GREATER: Option<Option<Ordering>> = Some(Some(Ordering::Greater));
const NAN: Option<Option<Ordering>> = Some(None);

fn number(text: &str) -> Literal {
    Literal::Decimal(Decimal::parse(text).unwrap())
}

#[test]
fn compares_integers_exactly_with_every_number() {
    let small: ArrayRef = Arc::new(Int8Array::from(vec![Some(-128), Some(2), None, Some(3), Some(127)]));
    check(small.clone(), &number("2"), &[LESS, EQUAL, None, GREATER, GREATER]);
    check(small.clone(), &number("2.5"), &[LESS, LESS, None, GREATER, GREATER]);
    check(small.clone(), &Literal::Float(-127.5), &[LESS, GREATER, None, GREATER, GREATER]);
    check(small.clone(), &number("127.5"), &[LESS, LESS, None, LESS, LESS]);
    check(small.clone(), &number("1e60"), &[LESS, LESS, None, LESS, LESS]);
    check(small.clone(), &number("-129"), &[GREATER, GREATER, None, GREATER, GREATER]);
    check(small, &Literal::Float(f64::NEG_INFINITY), &[GREATER, GREATER, None, GREATER, GREATER]);
    let large: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1 << 53, (1 << 53) + 1, u64::MAX]));
    check(large.clone(), &Literal::Float(9_007_199_254_740_992.0), &[LESS, EQUAL, GREATER, GREATER]);
    check(large.clone(), &number("-1"), &[GREATER; 4]);
    check(large, &number("18446744073709551615"), &[LESS, LESS, LESS, EQUAL]);
}

#[test]
fn compares_floats_exactly_with_every_number() {
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![
        Some(0.1),
        Some(f32::NAN),
        None,
        Some(-0.0),
        Some(f32::INFINITY),
        Some(f32::NEG_INFINITY),
    ]));
    // The float of 4 bytes next to 0.1 is greater than 0.1.
    check(floats.clone(), &Literal::Float(0.1), &[GREATER, NAN, None, LESS, GREATER, LESS]);
    let nearest = Literal::Float(f64::from(0.1f32));
    check(floats.clone(), &nearest, &[EQUAL, NAN, None, LESS, GREATER, LESS]);
    check(floats.clone(), &number("0"), &[GREATER, NAN, None, EQUAL, GREATER, LESS]);
    check(floats.clone(), &number("1e39"), &[LESS, NAN, None, LESS, GREATER, LESS]);
    check(floats.clone(), &Literal::Float(f64::INFINITY), &[LESS, NAN, None, LESS, EQUAL, LESS]);
    check(floats, &number("-1e39"), &[GREATER, NAN, None, GREATER, GREATER, LESS]);
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![0.1, 2f64.powi(53), 2f64.powi(53) + 2.0]));
    check(doubles.clone(), &number("0.1"), &[GREATER, GREATER, GREATER]);
    check(doubles, &number("9007199254740993"), &[LESS, LESS, GREATER]);
}

#[test]
fn compares_decimals_times_and_booleans() {
    let values = vec![Some(-1), Some(1234), None, Some(i128::MAX)];
    let decimals: ArrayRef = Arc::new(Decimal128Array::from(values).with_precision_and_scale(38, 2).unwrap());
    check(decimals.clone(), &number("12.34"), &[LESS, EQUAL, None, GREATER]);
    check(decimals.clone(), &number("12.345"), &[LESS, LESS, None, GREATER]);
    check(decimals, &Literal::Float(-0.01), &[GREATER, GREATER, None, GREATER]);
    let values = vec![i256::MINUS_ONE, i256::from_parts(5, 1), i256::from_parts(4, 1)];
    let wide: ArrayRef = Arc::new(Decimal256Array::from(values).with_precision_and_scale(76, 0).unwrap());
    // 2^128 + 5.
    check(wide, &number("340282366920938463463374607431768211461"), &[LESS, EQUAL, LESS]);
    let zone = TimestampMicrosecondArray::from(vec![0, 1, 1_000_000]).with_timezone("Europe/Paris");
    let half = Literal::Timestamp { ns: 1_500, has_zone: true };
    check(Arc::new(zone), &half, &[LESS, LESS, GREATER]);
    let plain: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1, 86_400_000_000]));
    check(plain, &Literal::Date(1), &[LESS, EQUAL]);
    let truths: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
    check(truths.clone(), &Literal::Bool(true), &[EQUAL, None, LESS]);
    check(truths, &Literal::Bool(false), &[GREATER, None, EQUAL]);
}

#[test]
fn compares_text_and_bytes_of_every_layout() {
    let long = "a longer value than a view holds";
    let values = [Some("b"), Some(""), None, Some(long), Some("bb"), Some("é")];
    for (literal, orders) in [
        ("b", [EQUAL, LESS, None, LESS, GREATER, GREATER]),
        (long, [GREATER, LESS, None, EQUAL, GREATER, GREATER]),
        ("", [GREATER, EQUAL, None, GREATER, GREATER, GREATER]),
    ] {
        let text = Literal::Text(literal.to_owned());
        let bytes = Literal::Bytes(literal.as_bytes().to_vec());
        check(Arc::new(StringArray::from_iter(values)), &text, &orders);
        check(Arc::new(LargeStringArray::from_iter(values)), &text, &orders);
        check(Arc::new(StringViewArray::from_iter(values)), &text, &orders);
        check(Arc::new(BinaryArray::from_iter(values)), &bytes, &orders);
        check(Arc::new(BinaryViewArray::from_iter(values)), &bytes, &orders);
        let keys = Int8Array::from(vec![Some(3), Some(0), None, Some(2), Some(1)]);
        let words = StringArray::from(vec![Some("b"), Some(long), None, Some("")]);
        let of = |key: usize| orders[[0, 3, 2, 1][key]];
        let dictionary = DictionaryArray::<Int8Type>::new(keys, Arc::new(words.clone()));
        check(Arc::new(dictionary), &text, &[of(3), of(0), None, None, of(1)]);
        let ends = Int16Array::from(vec![1, 3, 4, 6]);
        let runs = RunArray::<Int16Type>::try_new(&ends, &words).unwrap();
        check(Arc::new(runs), &text, &[of(0), of(1), of(1), None, of(3), of(3)]);
    }
    let fixed = FixedSizeBinaryArray::try_from_iter([b"ab", b"ac", b"aa"].into_iter()).unwrap();
    check(Arc::new(fixed.clone()), &Literal::Bytes(b"ab".to_vec()), &[EQUAL, GREATER, LESS]);
    check(Arc::new(fixed), &Literal::Bytes(b"abc".to_vec()), &[LESS, GREATER, LESS]);
}

#[test]
fn rows_must_fulfil_all_predicates_and_be_valid_in_each_parent() {
    for device in devices().iter().copied() {
        let fixture = Fixture::new();
        let stream = fixture.host.stream(device);
        let field: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(1), None, Some(1), Some(5)]));
        let fields = vec![Field::new("x", DataType::Int32, true)];
        let valid = NullBuffer::from(vec![true, false, true, true, true]);
        let parent: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![field], Some(valid)));
        let other: ArrayRef = Arc::new(Int32Array::from(vec![1, 1, 1, 2, 1]));
        let batch = fixture.batch(&[parent, other]).move_to(&stream, device).unwrap();
        let nested = Predicate { path: vec![0, 0], ..is_one(0) };
        let kept = filter(&batch, &[nested, is_one(1)], &stream).unwrap().unwrap();
        assert_eq!(kept.len(), 1);
        let expected = batch.slice(0, 1).unwrap();
        assert_eq!(first_difference(&expected, &kept, &stream).unwrap(), None, "on {device}");
    }
}

#[test]
fn literals_of_other_types_are_refused() {
    let timestamp = |has_zone| Literal::Timestamp { ns: 0, has_zone };
    let zone = DataType::Timestamp(arrow_schema::TimeUnit::Second, Some("UTC".into()));
    for (data_type, literal, expected) in [
        (DataType::Int32, Literal::Text("1".into()), "a number"),
        (DataType::Int32, Literal::Bool(true), "a number"),
        (DataType::Int32, Literal::Float(f64::NAN), "NaN"),
        (DataType::Float64, Literal::Float(f64::NAN), "NaN"),
        (DataType::Utf8, number("1"), "a string"),
        (DataType::Utf8, Literal::Bytes(vec![1]), "a string"),
        (DataType::Binary, Literal::Text("a".into()), "bytes"),
        (DataType::Boolean, number("1"), "a boolean"),
        (DataType::Date32, number("1"), "a date"),
        (zone, timestamp(false), "with a time zone"),
        (DataType::Timestamp(arrow_schema::TimeUnit::Second, None), timestamp(true), "without a time zone"),
        (DataType::Null, number("1"), "cannot be compared"),
        (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), number("1"), "a string"),
    ] {
        let error = Comparison::new(&data_type, Operator::Less, &literal).unwrap_err();
        assert!(error.message().contains(expected), "{data_type} < {literal}: {error}");
    }
}
