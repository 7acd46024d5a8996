//! Reads the metadata that a file's writer added to the table.
//!
//! The postscript has a list of keys and the places of their values. The values become the metadata
//! of the schema.

use arrow_schema::Metadata;
use crossdock_memory::{Result, StoredSource};
use crossdock_plugin_api::Error;
use crossdock_vortex_types::flatbuffer::Table;

use crate::place::Place;

/// The limits of the file format.
const MAX_KEYS: usize = 16;
const MAX_KEY_BYTES: usize = 64;
/// The maximum size of a value. It bounds the memory that a malformed file can request.
const MAX_VALUE_BYTES: usize = 16 << 20;

/// Reads slot `n` of the postscript. Calls `warn` with the reason if a value is left out, because
/// it cannot be the metadata of a schema.
///
/// # Errors
/// Bad data if the keys violate the limits of the format, or if a value is outside of the file.
pub fn read(
    postscript: Table<'_, '_>,
    n: usize,
    file: &StoredSource,
    warn: &mut dyn FnMut(&str),
) -> Result<Metadata> {
    let tables = postscript.tables(n)?;
    if tables.len() > MAX_KEYS {
        return Err(Error::bad_data(format!("there are {} keys, expected at most {MAX_KEYS}", tables.len())));
    }
    let mut pairs: Vec<(String, Option<String>)> = Vec::new();
    for table in tables {
        let table = table?;
        let key = table.text(0)?;
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(Error::bad_data(format!(
                "a key has {} bytes, expected 1 to {MAX_KEY_BYTES}",
                key.len()
            )));
        }
        if pairs.iter().any(|(known, _)| known == key) {
            return Err(Error::bad_data(format!("the key '{}' occurs twice", key.escape_debug())));
        }
        let value =
            value(table, file).map_err(|error| error.context(format_args!("'{}'", key.escape_debug())))?;
        if let Err(why) = &value {
            warn(&format!("the metadata '{}' is left out: {why}", key.escape_debug()));
        }
        pairs.push((key.to_owned(), value.ok()));
    }
    Ok(pairs.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}

/// The value of a key, or the reason why it cannot be the metadata of a schema.
fn value(table: Table<'_, '_>, file: &StoredSource) -> Result<std::result::Result<String, String>> {
    let place = Place::read(table.table(1, "the place of the value")?, file)?;
    if place.bytes > MAX_VALUE_BYTES {
        return Ok(Err(format!("it has {} bytes, expected at most {MAX_VALUE_BYTES}", place.bytes)));
    }
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Ok(text.to_owned())),
        Err(error) => Ok(Err(format!("it is not UTF-8: {error}"))),
    };
    place.with(file, text)
}
