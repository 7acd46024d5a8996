//! Stores the key-value metadata of a file's footer in the metadata of the schema, under keys with
//! a prefix. The writer of a file moves these entries back into the footer.

use std::sync::Arc;

use arrow_schema::{Metadata, Schema, SchemaRef};
use crossdock_plugin_api::{Error, Result};

/// Prefix of the keys in a schema's metadata that belong to the footer.
pub const PREFIX: &str = "crossdock.arrow-ipc.footer:";

/// Adds the footer's metadata to the metadata of the schema.
pub fn join(schema: SchemaRef, footer: Vec<(String, String)>) -> Result<SchemaRef> {
    if footer.is_empty() {
        return Ok(schema);
    }
    let mut metadata = schema.metadata().clone();
    for (key, value) in footer {
        let key = format!("{PREFIX}{key}");
        if metadata.get(&key).is_some_and(|old| *old != value) {
            return Err(Error::unsupported(format!(
                "the footer's metadata cannot be kept: the schema's metadata has a key '{key}' already"
            )));
        }
        metadata.insert(key, value);
    }
    Ok(Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata)))
}

/// Separates the footer's metadata from the schema. Returns the metadata sorted by key.
pub fn split(schema: SchemaRef) -> (SchemaRef, Vec<(String, String)>) {
    if !schema.metadata().iter().any(|(key, _)| key.starts_with(PREFIX)) {
        return (schema, Vec::new());
    }
    let (mut footer, mut schema_metadata) = (Vec::new(), Metadata::new());
    for (key, value) in schema.metadata().iter() {
        match key.strip_prefix(PREFIX) {
            Some(key) => footer.push((key.to_string(), value.clone())),
            None => drop(schema_metadata.insert(key, value)),
        }
    }
    (Arc::new(Schema::new_with_metadata(schema.fields().clone(), schema_metadata)), footer)
}
