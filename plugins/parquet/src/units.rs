//! Types that Parquet stores in another unit. Parquet has no seconds, and dates are days.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Time32MillisecondType, Time32SecondType, TimestampMillisecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use crossdock_plugin_api::{Error, Result};

const MILLISECONDS_PER_SECOND: i32 = 1000;
pub const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// The schema that is stored: seconds are milliseconds, and `date64` is days.
pub fn stored_schema(schema: &Schema) -> Schema {
    with_types(schema, |data_type| match data_type {
        DataType::Date64 => DataType::Date32,
        other => in_milliseconds(other),
    })
}

/// The schema in the metadata. The crate parquet reads days as `date64` if the metadata states it,
/// but it does not read milliseconds as seconds.
pub fn stated_schema(schema: &Schema) -> Schema {
    with_types(schema, in_milliseconds)
}

fn in_milliseconds(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(_) => DataType::Time32(TimeUnit::Millisecond),
        other => other.clone(),
    }
}

/// A schema with other types of values without children.
fn with_types(schema: &Schema, of: impl Fn(&DataType) -> DataType) -> Schema {
    Schema::new_with_metadata(fields_with(schema.fields(), &of), schema.metadata().clone())
}

fn fields_with(fields: &Fields, of: &impl Fn(&DataType) -> DataType) -> Fields {
    fields.iter().map(|field| field_with(field, of)).collect()
}

fn field_with(field: &FieldRef, of: &impl Fn(&DataType) -> DataType) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(type_with(field.data_type(), of)))
}

fn type_with(data_type: &DataType, of: &impl Fn(&DataType) -> DataType) -> DataType {
    match data_type {
        DataType::Struct(fields) => DataType::Struct(fields_with(fields, of)),
        DataType::List(item) => DataType::List(field_with(item, of)),
        DataType::LargeList(item) => DataType::LargeList(field_with(item, of)),
        DataType::ListView(item) => DataType::ListView(field_with(item, of)),
        DataType::LargeListView(item) => DataType::LargeListView(field_with(item, of)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(field_with(item, of), *n),
        DataType::Map(entries, sorted) => DataType::Map(field_with(entries, of), *sorted),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(type_with(values, of)))
        }
        DataType::RunEndEncoded(ends, values) => {
            DataType::RunEndEncoded(ends.clone(), field_with(values, of))
        }
        other => of(other),
    }
}

/// Rows with the schema that is stored.
///
/// # Errors
/// Unsupported if a value cannot be stored. The error names the column.
pub fn stored_rows(rows: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().zip(stored.fields()).map(|(column, field)| {
        let why = |error: ArrowError| match error {
            ArrowError::CastError(why) => Error::unsupported(format!("column '{}': {why}", field.name())),
            error => Error::internal(format!("column '{}': {error}", field.name())),
        };
        stored_array(column, field.data_type()).map_err(why)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(stored.clone(), columns).map_err(|error| Error::internal(error.to_string()))
}

/// The array with the type that is stored.
fn stored_array(array: &ArrayRef, stored: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    if array.data_type() == stored {
        return Ok(array.clone());
    }
    match array.data_type() {
        DataType::Timestamp(_, zone) => {
            let too_large = |value| {
                ArrowError::CastError(format!(
                    "the timestamp {value} s does not fit into 64 bits in milliseconds, as Parquet stores it: \
                     leave it out, or cast the column to integers"
                ))
            };
            let milliseconds = |value: i64| {
                value.checked_mul(MILLISECONDS_PER_SECOND.into()).ok_or_else(|| too_large(value))
            };
            let seconds = array.as_primitive::<TimestampSecondType>();
            let stored = seconds.try_unary::<_, TimestampMillisecondType, _>(milliseconds)?;
            Ok(Arc::new(stored.with_timezone_opt(zone.clone())))
        }
        DataType::Time32(_) => {
            let too_large = |value| {
                ArrowError::CastError(format!(
                    "the time {value} s does not fit into 32 bits in milliseconds, as Parquet stores it: \
                     times are less than 86400 s"
                ))
            };
            let milliseconds =
                |value: i32| value.checked_mul(MILLISECONDS_PER_SECOND).ok_or_else(|| too_large(value));
            let seconds = array.as_primitive::<Time32SecondType>();
            Ok(Arc::new(seconds.try_unary::<_, Time32MillisecondType, _>(milliseconds)?))
        }
        DataType::Date64 => {
            let wrong = |value| {
                ArrowError::CastError(format!(
                    "the date {value} ms is not a number of days of 32 bits, as Parquet stores it: \
                     cast the column to timestamps"
                ))
            };
            let days = |value: i64| {
                let days = i32::try_from(value / MILLISECONDS_PER_DAY).ok();
                days.filter(|_| value % MILLISECONDS_PER_DAY == 0).ok_or_else(|| wrong(value))
            };
            Ok(Arc::new(array.as_primitive::<Date64Type>().try_unary::<_, Date32Type, _>(days)?))
        }
        _ => {
            let data = array.to_data();
            let children = data.child_data().iter().zip(children_of(stored)).map(|(child, stored)| {
                stored_array(&make_array(child.clone()), stored).map(|child| child.to_data())
            });
            let children = children.collect::<std::result::Result<Vec<_>, _>>()?;
            let data = data.into_builder().data_type(stored.clone()).child_data(children);
            Ok(make_array(data.build()?))
        }
    }
}

/// The types of the arrays in an array of this type.
fn children_of(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Dictionary(_, values) => vec![values],
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::ListView(child)
        | DataType::LargeListView(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => vec![child.data_type()],
        _ => Vec::new(),
    }
}
