//! The statistics of a row group, in Arrow's statistics schema.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Float64Array, Int32Array, Int64Array, MapArray,
    StringArray, StructArray, UInt64Array, UnionArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, UnionFields};
use crossdock_arrays::{DeviceBatch, export_batch};
use crossdock_arrow::to_device_array;
use crossdock_memory::Memory;
use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

use crate::columns::flat_leaves;
use crate::error::text_of;
use crate::footer::Footer;
use crate::prune::{Bound, bounds};

/// A value of the union.
enum Value {
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The statistics of a column, or of the rows.
struct Entry {
    /// The number of the column in the depth-first order of the schema; `None` for the rows.
    column: Option<i32>,
    values: Vec<(&'static str, Value)>,
}

/// The statistics of row group `index`: the number of rows, and, as far as the file has them, the
/// numbers of nulls and the least and greatest values. Values of times and decimals are left out.
///
/// # Errors
/// Internal if the statistics have no valid form.
pub fn of_row_group(footer: &Footer, index: usize, memory: &Memory) -> Result<Owned<abi::Batch>> {
    let group = footer.row_group(index)?;
    let rows = Value::Int(group.num_rows());
    let mut entries = vec![Entry { column: None, values: vec![("ARROW:row_count:exact", rows)] }];
    for (column, leaf) in flat_leaves(footer) {
        let mut values = Vec::new();
        let statistics = group.columns().get(leaf.index).and_then(|chunk| chunk.statistics());
        if let Some(nulls) = statistics.and_then(|statistics| statistics.null_count_opt()) {
            values.push(("ARROW:null_count:exact", Value::Int(i64::try_from(nulls).unwrap_or(i64::MAX))));
        }
        if let Some((min, max)) = bounds(footer, group, &leaf) {
            let names = |is_exact, exact, approximate| if is_exact { exact } else { approximate };
            let min = min.and_then(|Bound { value, is_exact }| {
                let name = names(is_exact, "ARROW:min_value:exact", "ARROW:min_value:approximate");
                Some((name, of_type(leaf.field.data_type(), value)?))
            });
            let max = max.and_then(|Bound { value, is_exact }| {
                let name = names(is_exact, "ARROW:max_value:exact", "ARROW:max_value:approximate");
                Some((name, of_type(leaf.field.data_type(), value)?))
            });
            values.extend(min.into_iter().chain(max));
        }
        if !values.is_empty() {
            entries.push(Entry { column: Some(column), values });
        }
    }
    let columns = columns(&entries).map_err(|error| Error::internal(text_of(&error)))?;
    let field =
        |(array, name): (&ArrayRef, &str)| Field::new(name, array.data_type().clone(), name == "column");
    let fields: Vec<FieldRef> =
        columns.iter().zip(["column", "statistics"]).map(field).map(Arc::new).collect();
    let arrays = columns.iter().zip(&fields).map(|(array, field)| to_device_array(array, field, memory));
    let arrays = arrays.collect::<Result<_>>()?;
    let batch = DeviceBatch::try_new(Arc::new(Schema::new(fields)), entries.len(), arrays)?;
    export_batch(&batch, true, &memory.default_stream(Device::CPU)?)
}

/// The value in the type of the union for a column of a type. `None` for other types.
fn of_type(data_type: &DataType, value: crate::prune::Value) -> Option<Value> {
    use crate::prune::Value as Stored;
    let data_type = match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    Some(match (data_type, value) {
        (other, Stored::Int(value)) if other.is_signed_integer() => Value::Int(value.try_into().ok()?),
        (other, Stored::Int(value)) if other.is_unsigned_integer() => Value::Unsigned(value.try_into().ok()?),
        (_, Stored::Float(value)) => Value::Float(value),
        (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, Stored::Bytes(bytes)) => {
            Value::Text(String::from_utf8(bytes).ok()?)
        }
        (_, Stored::Bytes(bytes)) => Value::Bytes(bytes),
        _ => return None,
    })
}

/// The columns `column` and `statistics`.
fn columns(entries: &[Entry]) -> std::result::Result<Vec<ArrayRef>, ArrowError> {
    let all: Vec<_> = entries.iter().flat_map(|entry| &entry.values).collect();
    let (mut ints, mut unsigned, mut floats) = (Vec::new(), Vec::new(), Vec::new());
    let (mut texts, mut binaries) = (Vec::new(), Vec::new());
    let (mut ids, mut offsets) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
    for (_, value) in &all {
        let (id, position) = match value {
            Value::Int(value) => (0, push(&mut ints, *value)),
            Value::Unsigned(value) => (1, push(&mut unsigned, *value)),
            Value::Float(value) => (2, push(&mut floats, *value)),
            Value::Text(value) => (3, push(&mut texts, value.as_str())),
            Value::Bytes(value) => (4, push(&mut binaries, value.as_slice())),
        };
        ids.push(id);
        offsets.push(i32::try_from(position).unwrap_or(i32::MAX));
    }
    let children: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ints)),
        Arc::new(UInt64Array::from(unsigned)),
        Arc::new(Float64Array::from(floats)),
        Arc::new(StringArray::from(texts)),
        Arc::new(BinaryArray::from(binaries)),
    ];
    let names = ["int64", "uint64", "float64", "string", "binary"];
    let fields = children
        .iter()
        .zip(names)
        .zip(0..)
        .map(|((child, name), id)| (id, Arc::new(Field::new(name, child.data_type().clone(), false))));
    let fields: UnionFields = fields.collect();
    let values = UnionArray::try_new(fields, ScalarBuffer::from(ids), Some(offsets.into()), children)?;
    let keys: DictionaryArray<Int32Type> = all.iter().map(|(name, _)| *name).collect();
    let entry_fields = vec![
        Field::new("key", keys.data_type().clone(), false),
        Field::new("items", values.data_type().clone(), false),
    ];
    let pairs = StructArray::try_new(entry_fields.into(), vec![Arc::new(keys), Arc::new(values)], None)?;
    let entry = Arc::new(Field::new("entries", pairs.data_type().clone(), false));
    let lengths = OffsetBuffer::from_lengths(entries.iter().map(|entry| entry.values.len()));
    let maps = MapArray::try_new(entry, lengths, pairs, None, false)?;
    let numbers: Int32Array = entries.iter().map(|entry| entry.column).collect();
    Ok(vec![Arc::new(numbers), Arc::new(maps)])
}

/// Adds a value, and returns its position.
fn push<T>(values: &mut Vec<T>, value: T) -> usize {
    values.push(value);
    values.len() - 1
}
