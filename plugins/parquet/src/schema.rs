//! Arrow's schema of a file.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use crossdock_plugin_api::Result;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;

use crate::error::{of_reader, reading};

/// The zone of timestamps that Parquet's schema calls adjusted to UTC.
const UTC: &str = "UTC";

/// Arrow's schema of a file, and why the one in the metadata is not used, if it is not.
///
/// # Errors
/// Bad data if Parquet's schema has no types of Arrow.
pub fn schema_of(metadata: &Arc<ParquetMetaData>) -> Result<(SchemaRef, Option<String>)> {
    let read = |options: ArrowReaderOptions| {
        let arrow = reading(|| {
            ArrowReaderMetadata::try_new(metadata.clone(), options).map_err(|error| of_reader(&error))
        });
        arrow.map(|arrow| arrow.schema().clone()).map_err(|error| error.context("the schema"))
    };
    match read(ArrowReaderOptions::new()) {
        Ok(schema) => {
            let stated = stated_schema(metadata);
            let stated = stated.as_ref().map(|schema| schema.fields());
            let fields = read_fields(schema.fields(), stated);
            Ok((Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())), None))
        }
        Err(error) => {
            let schema = read(ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
            Ok((schema, Some(error.message().to_owned())))
        }
    }
}

/// The schema of Arrow in the metadata.
fn stated_schema(metadata: &ParquetMetaData) -> Option<Schema> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let text = pairs.iter().find(|pair| pair.key == ARROW_SCHEMA_META_KEY)?.value.as_ref()?;
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    // Before the message, newer writers put a marker and the length of the message.
    let message = bytes.strip_prefix(&[0xFF; 4]).and_then(|bytes| bytes.get(4..)).unwrap_or(&bytes);
    let schema = reading(|| {
        let message = arrow_ipc::root_as_message(message).ok();
        Ok(message.and_then(|message| arrow_ipc::convert::try_fb_to_schema(message.header_as_schema()?).ok()))
    });
    schema.ok().flatten()
}

/// The fields with which columns are read. `derived` are those of the crate parquet, and `stated`
/// those in the metadata.
fn read_fields(derived: &Fields, stated: Option<&Fields>) -> Fields {
    let stated = |i: usize, field: &Field| stated?.get(i).filter(|stated| stated.name() == field.name());
    derived.iter().enumerate().map(|(i, field)| read_field(field, stated(i, field))).collect()
}

fn read_field(derived: &FieldRef, stated: Option<&FieldRef>) -> FieldRef {
    let read = read_as(derived.data_type(), stated.map(|field| field.data_type()));
    Arc::new(Field::clone(derived).with_data_type(read))
}

fn read_as(derived: &DataType, stated: Option<&DataType>) -> DataType {
    let child = || match stated? {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => Some(field),
        _ => None,
    };
    match (derived, stated) {
        (_, Some(DataType::Dictionary(_, values))) if !matches!(derived, DataType::Dictionary(..)) => {
            read_as(derived, Some(values))
        }
        (DataType::Dictionary(_, values), _) if !has_dictionaries(values) => values.as_ref().clone(),
        // The crate keeps the zone only if the stated unit is the stored one. Parquet has no
        // seconds, and its first versions have no nanoseconds.
        (DataType::Timestamp(unit, Some(zone)), Some(DataType::Timestamp(_, Some(stated))))
            if &**zone == UTC =>
        {
            DataType::Timestamp(*unit, Some(stated.clone()))
        }
        (DataType::Struct(fields), _) => {
            let stated = match stated {
                Some(DataType::Struct(stated)) => Some(stated),
                _ => None,
            };
            DataType::Struct(read_fields(fields, stated))
        }
        (DataType::List(field), _) => DataType::List(read_field(field, child())),
        (DataType::LargeList(field), _) => DataType::LargeList(read_field(field, child())),
        (DataType::FixedSizeList(field, n), _) => DataType::FixedSizeList(read_field(field, child()), *n),
        (DataType::ListView(field), _) => DataType::ListView(read_field(field, child())),
        (DataType::LargeListView(field), _) => DataType::LargeListView(read_field(field, child())),
        (DataType::Map(field, sorted), _) => DataType::Map(read_field(field, child()), *sorted),
        _ => derived.clone(),
    }
}

/// Whether the crate parquet reads dictionaries of these values. It derives others, too, and fails
/// to read them.
fn has_dictionaries(values: &DataType) -> bool {
    match values {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        DataType::FixedSizeBinary(_) => true,
        DataType::Timestamp(..) | DataType::Duration(_) => true,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => true,
        DataType::Float32 | DataType::Float64 => true,
        values => values.is_integer(),
    }
}
