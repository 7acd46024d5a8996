//! Columns of every type that CSV can represent, with nulls and extreme values.

use std::sync::Arc;

use arrow_array::*;
use arrow_schema::{Field, Schema};

/// The number of rows of every column.
pub const ROWS: usize = 9;

/// Texts that a reader can confuse with syntax or with other values.
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

/// A column for each type, named after the type.
pub fn columns() -> Vec<(String, ArrayRef)> {
    let all: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(
            (0..ROWS).map(|i| (i % 4 != 3).then_some(i % 3 == 0)).collect::<Vec<_>>(),
        )),
        numbers!(Int8Array, i8),
        numbers!(Int16Array, i16),
        numbers!(Int32Array, i32),
        numbers!(Int64Array, i64),
        floats!(Float64Array, f64),
        Arc::new(StringArray::from(TEXTS.to_vec())),
    ];
    all.into_iter().map(|array| (array.data_type().to_string(), array)).collect()
}

/// A batch of named columns. A column is nullable if it has nulls.
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
