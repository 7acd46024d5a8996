//! A file's footer has key-value metadata of its own, which no batch and no schema carries. It travels among the
//! schema's metadata under a prefix, and goes back into the footer when a file is written.

use std::sync::Arc;

use arrow_schema::{Metadata, Schema, SchemaRef};
use crossdock_plugin_api::{Error, Result};

/// What a footer's key is prefixed with in a schema's metadata.
pub const PREFIX: &str = "crossdock.arrow-ipc.footer:";

/// `schema` with a footer's metadata.
pub fn join(schema: SchemaRef, footer: Vec<(String, String)>) -> Result<SchemaRef> {
    if footer.is_empty() {
        return Ok(schema);
    }
    let mut metadata = schema.metadata().clone();
    for (key, value) in footer {
        let key = format!("{PREFIX}{key}");
        if metadata.get(&key).is_some_and(|old| *old != value) {
            return Err(Error::unsupported(format!(
                "the schema's metadata has a key '{key}' already, so the footer's own cannot be kept"
            )));
        }
        metadata.insert(key, value);
    }
    Ok(Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata)))
}

/// The schema without, and the footer's metadata sorted by key.
pub fn split(schema: SchemaRef) -> (SchemaRef, Vec<(String, String)>) {
    if !schema.metadata().iter().any(|(key, _)| key.starts_with(PREFIX)) {
        return (schema, Vec::new());
    }
    let (mut footer, mut own) = (Vec::new(), Metadata::new());
    for (key, value) in schema.metadata().iter() {
        match key.strip_prefix(PREFIX) {
            Some(key) => footer.push((key.to_string(), value.clone())),
            None => drop(own.insert(key, value)),
        }
    }
    (Arc::new(Schema::new_with_metadata(schema.fields().clone(), own)), footer)
}
