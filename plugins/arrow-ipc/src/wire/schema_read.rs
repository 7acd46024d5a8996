//! Reads schemas.

use std::sync::Arc;

use arrow_ipc::Endianness;
use arrow_schema::{DataType, Field, Metadata};
use crossdock_arrays::metadata;
use crossdock_plugin_api::{Error, Result};
use flatbuffers::{ForwardsUOffset, Vector};

use super::schema::{Column, Kind, Schema, check_depth, in_field, values_field};
use super::strings::Strings;
use super::types_read;

const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

/// Canonical extension types whose storage type cannot be a dictionary.
const NON_DICTIONARY_EXTENSIONS: [&str; 7] = [
    "arrow.bool8",
    "arrow.fixed_shape_tensor",
    "arrow.json",
    "arrow.parquet.variant",
    "arrow.timestamp_with_offset",
    "arrow.uuid",
    "arrow.variable_shape_tensor",
];

/// A flatbuffer vector of key-value pairs.
pub type Pairs<'a> = Vector<'a, ForwardsUOffset<arrow_ipc::KeyValue<'a>>>;

/// Reads the schema of a message or of a footer. `strings` are the strings of that flatbuffer.
pub fn read(schema: arrow_ipc::Schema<'_>, strings: &Strings<'_>) -> Result<Schema> {
    match schema.endianness() {
        Endianness::Little => {}
        Endianness::Big => {
            return Err(Error::unsupported(
                "the data is big-endian, expected little-endian: write it again on a little-endian machine",
            ));
        }
        other => {
            return Err(Error::bad_data(format!("the schema's endianness is {}, expected 0 or 1", other.0)));
        }
    }
    let fields = schema.fields().into_iter().flatten();
    let columns = fields
        .enumerate()
        .map(|(i, field)| read_field(field, strings, 0).map_err(|e| located(e, field, i)))
        .collect::<Result<Vec<_>>>()?;
    let fields: Vec<_> = columns.iter().map(|column| column.field.clone()).collect();
    let metadata = read_metadata(schema.custom_metadata(), strings);
    let schema =
        Schema { arrow: Arc::new(arrow_schema::Schema::new_with_metadata(fields, metadata)), columns };
    schema.dictionaries()?;
    Ok(schema)
}

fn located(error: Error, field: arrow_ipc::Field<'_>, i: usize) -> Error {
    match field.name() {
        Some(name) if !name.is_empty() => in_field(error, name),
        _ => error.context(format_args!("field {i}")),
    }
}

/// Reads key-value metadata. `strings` are the strings of the flatbuffer that contains them.
pub fn read_metadata(pairs: Option<Pairs<'_>>, strings: &Strings<'_>) -> Metadata {
    metadata::from_pairs(bytes_of(pairs, strings))
}

/// Reads the metadata of a dictionary's field like [`read_metadata`]. Arrow IPC has no field for
/// the values, so this plugin stores the metadata of the values under a key of the dictionary's
/// field.
///
/// Arrow C++ writes an extension type of the values as if it were the extension type of the
/// dictionary. If no dictionary can have the extension type, it is assigned to the values.
fn read_dictionary_metadata(pairs: Option<Pairs<'_>>, strings: &Strings<'_>) -> Metadata {
    let mut metadata_map = metadata::from_dictionary_pairs(bytes_of(pairs, strings));
    if metadata_map.get(EXTENSION_NAME).is_none_or(|name| !NON_DICTIONARY_EXTENSIONS.contains(&name.as_str()))
    {
        return metadata_map;
    }
    let mut values = metadata::of_dictionary_values(&metadata_map);
    for key in [EXTENSION_NAME, EXTENSION_METADATA] {
        if let Some(value) = metadata_map.remove(key) {
            values.insert(key, value);
        }
    }
    metadata::with_dictionary_values(metadata_map, &values)
}

fn bytes_of<'a>(
    pairs: Option<Pairs<'a>>,
    strings: &'a Strings<'_>,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let bytes = |text: Option<&'a str>| strings.original(text.unwrap_or_default());
    pairs.into_iter().flatten().map(move |pair| (bytes(pair.key()), bytes(pair.value())))
}

fn read_field(field: arrow_ipc::Field<'_>, strings: &Strings<'_>, depth: usize) -> Result<Column> {
    check_depth(depth)?;
    let children = field.children().into_iter().flatten().enumerate();
    let children = children
        .map(|(i, child)| read_field(child, strings, depth + 1).map_err(|e| located(e, child, i)))
        .collect::<Result<Vec<_>>>()?;
    let fields = children.iter().map(|child| child.field.clone()).collect();
    let plain = types_read::read(field, fields, strings)?;
    let name = strings.name(field.name().unwrap_or_default(), "the name")?;
    let new_field = |data_type: DataType| {
        let metadata = match data_type {
            DataType::Dictionary(..) => read_dictionary_metadata(field.custom_metadata(), strings),
            _ => read_metadata(field.custom_metadata(), strings),
        };
        Field::new(name, data_type, field.nullable()).with_metadata(metadata)
    };
    let Some(encoding) = field.dictionary() else {
        return Ok(Column { field: Arc::new(new_field(plain)), kind: Kind::Plain { children } });
    };
    let index = types_read::index_type(encoding)?;
    let encoded = new_field(DataType::Dictionary(Box::new(index), Box::new(plain.clone())));
    let encoded = Arc::new(encoded.with_dict_is_ordered(encoding.isOrdered()));
    let values = Column { field: values_field(&encoded, &plain), kind: Kind::Plain { children } };
    Ok(Column { field: encoded, kind: Kind::Dictionary { id: encoding.id(), values: Box::new(values) } })
}
