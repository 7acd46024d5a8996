//! Writes schemas.

use arrow_ipc::{DictionaryEncodingBuilder, FieldBuilder, KeyValueBuilder, SchemaBuilder};
use arrow_schema::{DataType, Metadata};
use crossdock_arrays::metadata;
use crossdock_plugin_api::{Error, Result};
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};

use super::schema::{Column, Kind, Schema};
use super::types_write;

type Pairs<'a> = WIPOffset<Vector<'a, ForwardsUOffset<arrow_ipc::KeyValue<'a>>>>;

/// Writes a schema.
pub fn write<'a>(b: &mut FlatBufferBuilder<'a>, schema: &Schema) -> Result<WIPOffset<arrow_ipc::Schema<'a>>> {
    let fields = schema.columns.iter().map(|column| write_field(b, column)).collect::<Result<Vec<_>>>()?;
    let fields = b.create_vector(&fields);
    let metadata = write_map(b, schema.arrow.metadata());
    let mut builder = SchemaBuilder::new(b);
    builder.add_endianness(arrow_ipc::Endianness::Little);
    builder.add_fields(fields);
    if let Some(metadata) = metadata {
        builder.add_custom_metadata(metadata);
    }
    Ok(builder.finish())
}

/// Writes the pairs of a map, which may be arbitrary bytes. Returns `None` for an empty map.
pub fn write_map<'a>(b: &mut FlatBufferBuilder<'a>, map: &Metadata) -> Option<Pairs<'a>> {
    // The metadata of a dictionary's values stays under its key, because Arrow IPC has no other
    // place for it.
    let pairs: Vec<_> = metadata::pairs(map)
        .iter()
        .map(|(key, value)| {
            // `create_byte_string` is used because it accepts bytes that are not UTF-8.
            let key = WIPOffset::new(b.create_byte_string(key).value());
            let value = WIPOffset::new(b.create_byte_string(value).value());
            let mut pair = KeyValueBuilder::new(b);
            pair.add_key(key);
            pair.add_value(value);
            pair.finish()
        })
        .collect();
    (!pairs.is_empty()).then(|| b.create_vector(&pairs))
}

fn write_field<'a>(
    b: &mut FlatBufferBuilder<'a>,
    column: &Column,
) -> Result<WIPOffset<arrow_ipc::Field<'a>>> {
    let field = &column.field;
    let (children, dictionary, stored) = match (&column.kind, field.data_type()) {
        (Kind::Plain { children }, data_type) => (children, None, data_type),
        (Kind::Dictionary { id, values }, DataType::Dictionary(index, stored)) => {
            let Kind::Plain { children } = &values.kind else {
                return Err(Error::internal("a dictionary's values are dictionary-encoded"));
            };
            (children, Some(write_encoding(b, *id, index, field.dict_is_ordered() == Some(true))?), &**stored)
        }
        (Kind::Dictionary { .. }, other) => {
            return Err(Error::internal(format!("a dictionary column has type {other}")));
        }
    };
    let children = children.iter().map(|child| write_field(b, child)).collect::<Result<Vec<_>>>()?;
    let children = b.create_vector(&children);
    let name = b.create_string(field.name());
    let metadata = write_map(b, field.metadata());
    let (kind, type_) = types_write::write(b, stored);
    let mut builder = FieldBuilder::new(b);
    builder.add_name(name);
    builder.add_nullable(field.is_nullable());
    builder.add_type_type(kind);
    builder.add_type_(type_);
    builder.add_children(children);
    if let Some(dictionary) = dictionary {
        builder.add_dictionary(dictionary);
    }
    if let Some(metadata) = metadata {
        builder.add_custom_metadata(metadata);
    }
    Ok(builder.finish())
}

fn write_encoding<'a>(
    b: &mut FlatBufferBuilder<'a>,
    id: i64,
    index: &DataType,
    ordered: bool,
) -> Result<WIPOffset<arrow_ipc::DictionaryEncoding<'a>>> {
    let index = types_write::int(b, index).ok_or_else(|| {
        Error::invalid_argument(format!("dictionary indices of type {index}, expected an integer type"))
    })?;
    let mut builder = DictionaryEncodingBuilder::new(b);
    builder.add_id(id);
    builder.add_indexType(index);
    builder.add_isOrdered(ordered);
    Ok(builder.finish())
}
