//! Creates tables that have columns of every type.

use std::sync::Arc;

use arrow_array::builder::*;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Fields, Metadata, Schema, TimeUnit, UnionFields};
use half::f16;

fn primitive<T: ArrowPrimitiveType>(rows: usize, nulls: bool, f: impl Fn(usize) -> T::Native) -> ArrayRef {
    let values = (0..rows).map(|i| (!nulls || i % 5 != 3).then(|| f(i)));
    Arc::new(PrimitiveArray::<T>::from_iter(values))
}

fn text(i: usize) -> String {
    "é".repeat(i % 13) + &i.to_string()
}

fn texts(rows: usize, nulls: bool) -> impl Iterator<Item = Option<String>> {
    (0..rows).map(move |i| (!nulls || i % 7 != 2).then(|| text(i)))
}

fn validity(rows: usize, nulls: bool, every: usize) -> Option<NullBuffer> {
    nulls.then(|| NullBuffer::from_iter((0..rows).map(|i| i % every != 1)))
}

fn item(array: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", array.data_type().clone(), true))
}

/// A table with one column of every type and `rows` rows.
pub fn everything(rows: usize, nulls: bool) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let mut add =
        |array: ArrayRef| columns.push((format!("{}: {}", columns.len(), array.data_type()), array));
    add(Arc::new(NullArray::new(rows)));
    add(Arc::new(BooleanArray::from_iter((0..rows).map(|i| (!nulls || i % 3 != 0).then_some(i % 2 == 0)))));
    add(primitive::<Int8Type>(rows, nulls, |i| i as i8));
    add(primitive::<Int16Type>(rows, nulls, |i| i as i16 - 500));
    add(primitive::<Int32Type>(rows, nulls, |i| i as i32 * -7));
    add(primitive::<Int64Type>(rows, nulls, |i| i as i64 * 1_000_000_007));
    add(primitive::<UInt8Type>(rows, nulls, |i| i as u8));
    add(primitive::<UInt64Type>(rows, nulls, |i| u64::MAX - i as u64));
    add(primitive::<Float16Type>(rows, nulls, |i| f16::from_f32(i as f32 / 4.0)));
    add(primitive::<Float32Type>(rows, nulls, |i| i as f32 / 3.0));
    add(primitive::<Float64Type>(rows, nulls, |i| i as f64 / 7.0));
    add(primitive::<Decimal32Type>(rows, nulls, |i| i as i32));
    add(primitive::<Decimal64Type>(rows, nulls, |i| i as i64));
    add(primitive::<Decimal128Type>(rows, nulls, |i| i as i128 * 99));
    add(primitive::<Decimal256Type>(rows, nulls, |i| i256::from_i128(i as i128)));
    add(primitive::<Date32Type>(rows, nulls, |i| i as i32));
    add(primitive::<Date64Type>(rows, nulls, |i| i as i64 * 86_400_000));
    add(primitive::<Time32SecondType>(rows, nulls, |i| i as i32));
    add(primitive::<Time64NanosecondType>(rows, nulls, |i| i as i64));
    let zoned = (0..rows as i64).map(|i| Some(i * 1_000));
    add(Arc::new(TimestampMicrosecondArray::from_iter(zoned).with_timezone("Europe/Berlin")));
    add(primitive::<TimestampNanosecondType>(rows, nulls, |i| i as i64));
    add(primitive::<DurationMillisecondType>(rows, nulls, |i| i as i64));
    add(primitive::<IntervalYearMonthType>(rows, nulls, |i| i as i32));
    add(primitive::<IntervalDayTimeType>(rows, nulls, |i| IntervalDayTime::new(i as i32, 5)));
    add(primitive::<IntervalMonthDayNanoType>(rows, nulls, |i| IntervalMonthDayNano::new(i as i32, 5, 9)));
    add(Arc::new(StringArray::from_iter(texts(rows, nulls))));
    add(Arc::new(LargeStringArray::from_iter(texts(rows, nulls))));
    add(Arc::new(StringViewArray::from_iter(texts(rows, nulls))));
    add(Arc::new(BinaryArray::from_iter(texts(rows, nulls).map(|t| t.map(String::into_bytes)))));
    add(Arc::new(LargeBinaryArray::from_iter(texts(rows, nulls).map(|t| t.map(String::into_bytes)))));
    add(Arc::new(BinaryViewArray::from_iter(texts(rows, nulls).map(|t| t.map(String::into_bytes)))));
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for i in 0..rows {
        if nulls && i % 4 == 1 { fixed.append_null() } else { fixed.append_value([i as u8, 1, 2]).unwrap() }
    }
    add(Arc::new(fixed.finish()));
    let strings: ArrayRef = Arc::new(StringArray::from_iter(texts(rows * 3, nulls)));
    let lengths = || (0..rows).map(|i| (i * 5) % 4 % 3);
    let total: usize = lengths().sum();
    let child = strings.slice(0, total);
    add(Arc::new(ListArray::new(
        item(&child),
        OffsetBuffer::from_lengths(lengths()),
        child.clone(),
        validity(rows, nulls, 6),
    )));
    add(Arc::new(LargeListArray::new(
        item(&child),
        OffsetBuffer::from_lengths(lengths()),
        child.clone(),
        validity(rows, nulls, 4),
    )));
    let sizes: Vec<i32> = lengths().map(|n| n as i32).collect();
    // The lists are stored in reverse order, so that the offsets are not ascending.
    let starts: Vec<i32> = (0..rows).map(|i| sizes[i + 1..].iter().sum()).collect();
    add(Arc::new(ListViewArray::new(
        item(&child),
        starts.clone().into(),
        sizes.clone().into(),
        child.clone(),
        validity(rows, nulls, 3),
    )));
    let wide = |list: &[i32]| list.iter().map(|n| i64::from(*n)).collect::<ScalarBuffer<i64>>();
    add(Arc::new(LargeListViewArray::new(
        item(&child),
        wide(&starts),
        wide(&sizes),
        child,
        validity(rows, nulls, 3),
    )));
    let numbers = primitive::<Int32Type>(rows * 2, nulls, |i| i as i32);
    add(Arc::new(FixedSizeListArray::new(item(&numbers), 2, numbers.clone(), validity(rows, nulls, 5))));
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int32, true).with_metadata(Metadata::new().with("unit", "metres")),
        Field::new("t", DataType::Utf8, true),
    ]);
    let parts = vec![numbers.slice(0, rows), strings.slice(0, rows)];
    let structs: ArrayRef =
        Arc::new(StructArray::new(fields.clone(), parts.clone(), validity(rows, nulls, 8)));
    add(structs.clone());
    let entries = StructArray::new(
        Fields::from(vec![
            Field::new("keys", DataType::Int32, false),
            Field::new("values", DataType::Utf8, true),
        ]),
        vec![primitive::<Int32Type>(total, false, |i| i as i32), strings.slice(0, total)],
        None,
    );
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    add(Arc::new(MapArray::new(
        entry,
        OffsetBuffer::from_lengths(lengths()),
        entries,
        validity(rows, nulls, 9),
        false,
    )));
    let members = UnionFields::try_new([3, 7], fields.iter().cloned()).unwrap();
    let ids: ScalarBuffer<i8> = (0..rows).map(|i| if i % 3 == 0 { 3 } else { 7 }).collect();
    add(Arc::new(UnionArray::try_new(members.clone(), ids.clone(), None, parts).unwrap()));
    let offsets: ScalarBuffer<i32> =
        (0..rows as i32).map(|i| if i % 3 == 0 { i / 3 } else { i - i / 3 - 1 }).collect();
    let dense = vec![numbers.slice(0, rows), strings.slice(0, rows)];
    add(Arc::new(UnionArray::try_new(members, ids, Some(offsets), dense).unwrap()));
    add(dictionary(rows, nulls, 0));
    let runs = rows.div_ceil(4);
    let ends: Int32Array = (1..=runs).map(|r| (r * 4).min(rows) as i32).collect();
    add(Arc::new(RunArray::try_new(&ends, &StringArray::from_iter(texts(runs, nulls))).unwrap()));
    add(primitive::<TimestampSecondType>(rows, nulls, |i| i as i64));
    let fields: Vec<Field> =
        columns.iter().map(|(name, a)| Field::new(name, a.data_type().clone(), true)).collect();
    let schema =
        Schema::new_with_metadata(fields, Metadata::new().with("b", "2").with("a", "1").with("empty", ""));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).unwrap()
}

/// Creates a dictionary column. The values of the dictionary depend on `first`.
pub fn dictionary(rows: usize, nulls: bool, first: usize) -> ArrayRef {
    let keys = Int8Array::from_iter((0..rows).map(|i| (!nulls || i % 6 != 5).then_some((i * 7 % 10) as i8)));
    let values = StringArray::from_iter((first..first + 10).map(|i| (i % 11 != 4).then(|| text(i))));
    Arc::new(DictionaryArray::new(keys, Arc::new(values)))
}

/// Creates a batch that has one column.
pub fn single(array: ArrayRef) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("column", array.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap()
}

/// Creates a small table for tests that change or remove every byte of a file.
pub fn small() -> Vec<RecordBatch> {
    let batch = |first: usize| {
        let fields = vec![
            Field::new("i", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("d", dictionary(5, true, 0).data_type().clone(), true),
            Field::new("t", DataType::Timestamp(TimeUnit::Second, Some("UTC".into())), true),
        ];
        let columns: Vec<ArrayRef> = vec![
            primitive::<Int32Type>(5, true, |i| (i + first) as i32),
            Arc::new(StringArray::from_iter(texts(5, true))),
            dictionary(5, true, 0),
            Arc::new(TimestampSecondArray::from_iter((0..5).map(Some)).with_timezone("UTC")),
        ];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    };
    vec![batch(0), batch(100)]
}
