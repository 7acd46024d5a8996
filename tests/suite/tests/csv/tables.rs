//! Columns of every type that CSV holds, with nulls and the values at the edges.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type, UInt16Type};
use arrow_array::*;
use arrow_schema::{Field, Schema, TimeUnit};

/// Rows of every column.
pub const ROWS: usize = 9;

/// Texts that are easily read as something else.
pub const TEXTS: [Option<&str>; ROWS] = [
    Some(""),
    None,
    Some("a \"quoted\" word, a comma; a tab\t"),
    Some("two\nlines\r\nand\rmore"),
    Some("NA"),
    Some("\u{feff}marked"),
    Some("  héé 🦀 \u{10ffff} "),
    Some("\""),
    Some("007"),
];

macro_rules! numbers {
    ($array:ident, $native:ty) => {
        Arc::new($array::from(vec![
            Some(0),
            None,
            Some(<$native>::MIN),
            Some(<$native>::MAX),
            Some(1),
            Some(42),
            Some(100),
            None,
            Some(7),
        ])) as ArrayRef
    };
}

macro_rules! floats {
    ($array:ident, $native:ident) => {
        Arc::new($array::from(vec![
            Some(0.0),
            None,
            Some(-0.0),
            Some($native::MAX),
            Some($native::MIN_POSITIVE),
            Some($native::NEG_INFINITY),
            Some(0.1),
            Some(1.0 / 3.0),
            Some(16777217.0),
        ])) as ArrayRef
    };
}

/// A column for each type, called after it.
pub fn columns() -> Vec<(String, ArrayRef)> {
    let dates = [0, 19_000, -1, i32::MIN, i32::MAX, -719_529, 2_932_897, 11_016, 59];
    let moments =
        [0, -1, 1, i64::MIN, i64::MAX, 1_357_034_400_123_456_789, -62_167_219_200, 951_782_400, 86_399];
    let nullable = |i: usize, v: i64| (i != 2).then_some(v);
    let moments = || moments.iter().enumerate().map(|(i, v)| nullable(i, *v)).collect::<Vec<_>>();
    let within =
        |day: i64| [0, 1, 59, 60, 3_600, 43_200, day - 1, day / 2, 7].map(|v| (v != 60).then_some(v));
    let within32 = |day: i64| within(day).map(|v| v.map(|v| v as i32)).to_vec();
    let mut all: Vec<ArrayRef> = vec![
        Arc::new(NullArray::new(ROWS)),
        Arc::new(BooleanArray::from(
            (0..ROWS).map(|i| (i % 4 != 3).then_some(i % 3 == 0)).collect::<Vec<_>>(),
        )),
        numbers!(Int8Array, i8),
        numbers!(Int16Array, i16),
        numbers!(Int32Array, i32),
        numbers!(Int64Array, i64),
        numbers!(UInt8Array, u8),
        numbers!(UInt16Array, u16),
        numbers!(UInt32Array, u32),
        numbers!(UInt64Array, u64),
        floats!(Float32Array, f32),
        floats!(Float64Array, f64),
        Arc::new(StringArray::from(TEXTS.to_vec())),
        Arc::new(LargeStringArray::from(TEXTS.to_vec())),
        Arc::new(Date32Array::from(dates.to_vec())),
        Arc::new(Time32SecondArray::from(within32(86_400))),
        Arc::new(Time32MillisecondArray::from(within32(86_400_000))),
        Arc::new(Time64MicrosecondArray::from(within(86_400_000_000).to_vec())),
        Arc::new(Time64NanosecondArray::from(within(86_400_000_000_000).to_vec())),
    ];
    for zone in [None, Some("UTC"), Some("Europe/Berlin")] {
        all.push(Arc::new(TimestampSecondArray::from(moments()).with_timezone_opt(zone)));
        all.push(Arc::new(TimestampMillisecondArray::from(moments()).with_timezone_opt(zone)));
        all.push(Arc::new(TimestampMicrosecondArray::from(moments()).with_timezone_opt(zone)));
        all.push(Arc::new(TimestampNanosecondArray::from(moments()).with_timezone_opt(zone)));
    }
    all.into_iter().map(|array| (array.data_type().to_string(), array)).collect()
}

/// Dictionaries, each with the column that it stands for.
pub fn dictionaries() -> Vec<(ArrayRef, ArrayRef)> {
    let keys = [Some(2), None, Some(0), Some(1), Some(1), Some(3), Some(0), Some(2), Some(0)];
    let words = StringArray::from(vec![Some("b,c"), None, Some(""), Some("NA")]);
    let numbers = Int64Array::from(vec![Some(-5), None, Some(i64::MAX), Some(0)]);
    let meant = |values: &dyn Array| -> Vec<Option<usize>> {
        keys.map(|key: Option<usize>| key.filter(|key| values.is_valid(*key))).to_vec()
    };
    let words_meant: StringArray =
        meant(&words).into_iter().map(|key| key.map(|key| words.value(key).to_string())).collect();
    let numbers_meant: Int64Array =
        meant(&numbers).into_iter().map(|key| key.map(|key| numbers.value(key))).collect();
    let large = LargeStringArray::from(words.iter().collect::<Vec<_>>());
    let large_meant = LargeStringArray::from(words_meant.iter().collect::<Vec<_>>());
    let keys8: Int8Array = keys.map(|key| key.map(|key| key as i8)).to_vec().into();
    let keys16: UInt16Array = keys.map(|key| key.map(|key| key as u16)).to_vec().into();
    let keys32: Int32Array = keys.map(|key| key.map(|key| key as i32)).to_vec().into();
    vec![
        (Arc::new(DictionaryArray::<Int8Type>::new(keys8, Arc::new(words))), Arc::new(words_meant)),
        (Arc::new(DictionaryArray::<UInt16Type>::new(keys16, Arc::new(large))), Arc::new(large_meant)),
        (Arc::new(DictionaryArray::<Int32Type>::new(keys32, Arc::new(numbers))), Arc::new(numbers_meant)),
    ]
}

/// Named columns as a batch; those without nulls may have none.
pub fn batch(columns: &[(String, ArrayRef)]) -> RecordBatch {
    let field = |(name, array): &(String, ArrayRef)| {
        Field::new(name, array.data_type().clone(), array.logical_null_count() > 0)
    };
    let fields: Vec<_> = columns.iter().map(field).collect();
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// A batch of one column.
pub fn single(name: &str, array: ArrayRef) -> RecordBatch {
    batch(&[(name.to_string(), array)])
}

/// The unit of a type's second, for messages.
pub const UNITS: [TimeUnit; 4] =
    [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
