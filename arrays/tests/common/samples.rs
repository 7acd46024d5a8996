//! Sample arrays of every Arrow type, with nulls if the type allows them.

use std::sync::Arc;

use arrow_array::builder::*;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{
    ArrowNativeType, IntervalDayTime, IntervalMonthDayNano, NullBuffer, OffsetBuffer, ScalarBuffer, i256,
};
use arrow_schema::{DataType, Field, Fields, UnionFields};

fn prim<T: ArrowPrimitiveType>(values: [Option<T::Native>; 11]) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter(values))
}

fn ints<T: ArrowPrimitiveType>() -> ArrayRef {
    prim::<T>(std::array::from_fn(|i| (i % 4 != 2).then(|| T::Native::usize_as(i * 3))))
}

fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, true))
}

fn nulls() -> Option<NullBuffer> {
    Some(NullBuffer::from_iter((0..11).map(|i| i % 5 != 1)))
}

const TEXT: [Option<&str>; 11] = [
    Some("first"),
    None,
    Some(""),
    Some("größer"),
    Some("a value of more than twelve bytes"),
    Some("日本語"),
    None,
    Some("x"),
    Some("another value that is long enough"),
    Some("y"),
    Some("last"),
];

/// Arrays of 11 lists. The children have 26 values.
fn lists() -> Vec<ArrayRef> {
    let values: ArrayRef = Arc::new(Int32Array::from_iter((0..26).map(|i| (i % 7 != 3).then_some(i))));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter((0..26).map(|i| (i % 6 != 2).then(|| "z".repeat(i)))));
    let lengths = [2, 0, 3, 1, 4, 0, 5, 2, 3, 1, 5];
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let large = OffsetBuffer::<i64>::from_lengths(lengths);
    let starts = ScalarBuffer::from(vec![20, 0, 3, 1, 4, 9, 5, 2, 3, 25, 0]);
    let sizes = ScalarBuffer::from(lengths.map(|n| n as i32).to_vec());
    let wide =
        |buffer: &ScalarBuffer<i32>| buffer.iter().map(|n| i64::from(*n)).collect::<ScalarBuffer<i64>>();
    let view = item(values.data_type().clone());
    vec![
        Arc::new(ListArray::new(item(text.data_type().clone()), offsets.clone(), text.clone(), nulls())),
        Arc::new(LargeListArray::new(item(values.data_type().clone()), large, values.clone(), nulls())),
        Arc::new(ListViewArray::new(view.clone(), starts.clone(), sizes.clone(), values.clone(), nulls())),
        Arc::new(LargeListViewArray::new(view, wide(&starts), wide(&sizes), values.clone(), nulls())),
        Arc::new(FixedSizeListArray::new(item(DataType::Int32), 2, values.slice(2, 22), nulls())),
        Arc::new(FixedSizeListArray::new(item(DataType::Utf8), 2, text.slice(0, 22), None)),
        map(&offsets, text, values),
    ]
}

fn map(offsets: &OffsetBuffer<i32>, text: ArrayRef, values: ArrayRef) -> ArrayRef {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..26).map(|i| format!("key {i}"))));
    let fields = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Int32, true),
    ]);
    drop(text);
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    Arc::new(MapArray::new(field, offsets.clone(), entries, nulls(), true))
}

fn unions() -> Vec<ArrayRef> {
    let fields = UnionFields::try_new(
        [5, 2],
        [Field::new("number", DataType::Int64, true), Field::new("text", DataType::Utf8, true)],
    )
    .unwrap();
    let ids = ScalarBuffer::from(vec![5i8, 2, 5, 5, 2, 2, 5, 2, 5, 5, 2]);
    let numbers: ArrayRef = ints::<Int64Type>();
    let text: ArrayRef = Arc::new(StringArray::from(TEXT.to_vec()));
    let children = vec![numbers, text];
    let offsets = ScalarBuffer::from(vec![0, 0, 1, 2, 1, 2, 3, 3, 4, 5, 4]);
    vec![
        Arc::new(UnionArray::try_new(fields.clone(), ids.clone(), None, children.clone()).unwrap()),
        Arc::new(UnionArray::try_new(fields, ids, Some(offsets), children).unwrap()),
    ]
}

fn dictionaries() -> Vec<ArrayRef> {
    fn of<K: ArrowDictionaryKeyType>() -> ArrayRef {
        let keys = (0..11).map(|i| (i % 4 != 1).then(|| K::Native::usize_as(i % 3)));
        let values: ArrayRef = Arc::new(StringArray::from(vec![Some("red"), None, Some("green and blue")]));
        Arc::new(DictionaryArray::<K>::new(keys.collect(), values))
    }
    vec![
        of::<Int8Type>(),
        of::<Int16Type>(),
        of::<Int32Type>(),
        of::<Int64Type>(),
        of::<UInt8Type>(),
        of::<UInt16Type>(),
        of::<UInt32Type>(),
        of::<UInt64Type>(),
    ]
}

fn runs() -> Vec<ArrayRef> {
    fn of<R: RunEndIndexType>() -> ArrayRef {
        let ends = PrimitiveArray::<R>::from_iter_values([3, 4, 9, 11].map(R::Native::usize_as));
        Arc::new(
            RunArray::try_new(&ends, &StringArray::from(vec![Some("one"), None, Some("two"), Some("three")]))
                .unwrap(),
        )
    }
    vec![of::<Int16Type>(), of::<Int32Type>(), of::<Int64Type>()]
}

fn decimals() -> Vec<ArrayRef> {
    let big = i256::from_i128(i128::MAX);
    vec![
        Arc::new(Decimal32Array::from(vec![Some(-5); 11]).with_precision_and_scale(7, 2).unwrap()),
        Arc::new(Decimal64Array::from(vec![Some(1 << 40); 11]).with_precision_and_scale(16, -2).unwrap()),
        Arc::new(Decimal128Array::from(vec![Some(-12345); 11]).with_precision_and_scale(38, 10).unwrap()),
        Arc::new(Decimal256Array::from(vec![Some(big); 11]).with_precision_and_scale(76, 0).unwrap()),
    ]
}

fn binaries() -> Vec<ArrayRef> {
    let bytes = || TEXT.iter().map(|text| text.map(str::as_bytes));
    let mut blocks = StringViewBuilder::new().with_fixed_block_size(48);
    TEXT.iter().for_each(|text| blocks.append_option(*text));
    let fixed = (0..11u8).map(|i| (i % 3 != 1).then_some([i; 5]));
    vec![
        Arc::new(StringArray::from(TEXT.to_vec())),
        Arc::new(LargeStringArray::from(TEXT.to_vec())),
        Arc::new(StringViewArray::from_iter(TEXT)),
        Arc::new(blocks.finish()),
        Arc::new(StringViewArray::from_iter(TEXT.map(|text| text.map(|text| text.get(..1).unwrap_or(""))))),
        Arc::new(BinaryArray::from_iter(bytes())),
        Arc::new(LargeBinaryArray::from_iter(bytes())),
        Arc::new(BinaryViewArray::from_iter(bytes())),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 5).unwrap()),
        Arc::new(FixedSizeBinaryArray::new(0, arrow_buffer::Buffer::default(), nulls())),
    ]
}

fn times() -> Vec<ArrayRef> {
    vec![
        ints::<Date32Type>(),
        ints::<Date64Type>(),
        ints::<Time32SecondType>(),
        ints::<Time32MillisecondType>(),
        ints::<Time64MicrosecondType>(),
        ints::<Time64NanosecondType>(),
        ints::<TimestampSecondType>(),
        ints::<TimestampMillisecondType>(),
        ints::<TimestampMicrosecondType>(),
        ints::<TimestampNanosecondType>(),
        Arc::new(
            TimestampMicrosecondArray::from(vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
                .with_timezone("Europe/Vienna"),
        ),
        ints::<DurationSecondType>(),
        ints::<DurationMillisecondType>(),
        ints::<DurationMicrosecondType>(),
        ints::<DurationNanosecondType>(),
        ints::<IntervalYearMonthType>(),
        prim::<IntervalDayTimeType>(std::array::from_fn(|i| {
            (i != 4).then(|| IntervalDayTime::new(i as i32, -3))
        })),
        prim::<IntervalMonthDayNanoType>(std::array::from_fn(|i| {
            (i != 4).then(|| IntervalMonthDayNano::new(1, -2, i as i64))
        })),
    ]
}

/// Arrays of 11 values of every type.
pub fn all() -> Vec<ArrayRef> {
    let f16 = |i: usize| (i != 3).then(|| <Float16Type as ArrowPrimitiveType>::Native::usize_as(i));
    let mut all: Vec<ArrayRef> = vec![
        Arc::new(NullArray::new(11)),
        Arc::new(BooleanArray::from_iter((0..11).map(|i| (i % 3 != 1).then_some(i % 2 == 0)))),
        ints::<Int8Type>(),
        ints::<Int16Type>(),
        ints::<Int32Type>(),
        ints::<Int64Type>(),
        ints::<UInt8Type>(),
        ints::<UInt16Type>(),
        ints::<UInt32Type>(),
        ints::<UInt64Type>(),
        Arc::new(Float16Array::from_iter((0..11).map(f16))),
        ints::<Float32Type>(),
        ints::<Float64Type>(),
    ];
    let fields =
        Fields::from(vec![Field::new("n", DataType::Int16, true), Field::new("t", DataType::Utf8View, true)]);
    let columns: Vec<ArrayRef> = vec![ints::<Int16Type>(), Arc::new(StringViewArray::from_iter(TEXT))];
    all.push(Arc::new(StructArray::new(fields.clone(), columns.clone(), nulls())));
    all.push(Arc::new(StructArray::new(fields, columns, None)));
    for more in [times(), decimals(), binaries(), lists(), unions(), dictionaries(), runs()] {
        all.extend(more);
    }
    all
}
