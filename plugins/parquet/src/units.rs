//! Types that Parquet stores in another unit. Parquet has no seconds, and dates are days.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date64Type, Time32MillisecondType, Time32SecondType, TimestampMillisecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use crossdock_plugin_api::{Error, Result};

const MILLISECONDS_PER_SECOND: i32 = 1000;
pub const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// The schema that is stored: seconds are milliseconds.
pub fn stored_schema(schema: &Schema) -> Schema {
    let fields = stored_fields(schema.fields());
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn stored_fields(fields: &Fields) -> Fields {
    fields.iter().map(stored_field).collect()
}

fn stored_field(field: &FieldRef) -> FieldRef {
    match stored_type(field.data_type()) {
        stored if stored == *field.data_type() => field.clone(),
        stored => Arc::new(Field::clone(field).with_data_type(stored)),
    }
}

fn stored_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(_) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Struct(fields) => DataType::Struct(stored_fields(fields)),
        DataType::List(item) => DataType::List(stored_field(item)),
        DataType::LargeList(item) => DataType::LargeList(stored_field(item)),
        DataType::ListView(item) => DataType::ListView(stored_field(item)),
        DataType::LargeListView(item) => DataType::LargeListView(stored_field(item)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(stored_field(item), *n),
        DataType::Map(entries, sorted) => DataType::Map(stored_field(entries), *sorted),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(stored_type(values)))
        }
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(ends.clone(), stored_field(values)),
        _ => data_type.clone(),
    }
}

/// Whether values of a type are converted or checked before they are stored.
fn is_converted(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, _) | DataType::Time32(TimeUnit::Second) => true,
        DataType::Date64 => true,
        DataType::Struct(fields) => fields.iter().any(|field| is_converted(field.data_type())),
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::ListView(child)
        | DataType::LargeListView(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _)
        | DataType::RunEndEncoded(_, child) => is_converted(child.data_type()),
        DataType::Dictionary(_, values) => is_converted(values),
        _ => false,
    }
}

/// Whether a column is converted or checked before it is stored.
pub fn has_converted_columns(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| is_converted(field.data_type()))
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
        stored_array(column).map_err(why)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(stored.clone(), columns).map_err(|error| Error::internal(error.to_string()))
}

fn stored_array(array: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    if !is_converted(array.data_type()) {
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
        // The crate parquet converts dates to days, without checks.
        DataType::Date64 => {
            let dates = array.as_primitive::<Date64Type>();
            let is_day = |value: i64| {
                value % MILLISECONDS_PER_DAY == 0 && i32::try_from(value / MILLISECONDS_PER_DAY).is_ok()
            };
            match dates.iter().flatten().find(|value| !is_day(*value)) {
                None => Ok(array.clone()),
                Some(value) => Err(ArrowError::CastError(format!(
                    "the date {value} ms is not a number of days of 32 bits, as Parquet stores it: \
                     cast the column to timestamps"
                ))),
            }
        }
        data_type => {
            let data = array.to_data();
            let children = data
                .child_data()
                .iter()
                .map(|child| stored_array(&make_array(child.clone())).map(|child| child.to_data()));
            let children = children.collect::<std::result::Result<Vec<_>, _>>()?;
            let stored = data.into_builder().data_type(stored_type(data_type)).child_data(children);
            Ok(make_array(stored.build()?))
        }
    }
}
