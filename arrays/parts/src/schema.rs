//! Schemas as bytes.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::import_schema;
use crossdock_plugin_api::encoded::blob::schema;
use crossdock_plugin_api::{Owned, Result, abi};

/// Serializes a schema.
///
/// # Errors
/// The schema is released or nests too deep.
pub fn write_schema(of: &abi::ArrowSchema) -> Result<Vec<u8>> {
    // SAFETY: `schema::write` requires a schema that follows the C Data Interface. All callers pass
    // a schema that the host or a plugin exported through crossdock.h, which has the same
    // requirement.
    unsafe { schema::write(of) }
}

/// Parses a schema.
///
/// # Errors
/// The bytes are not exactly one schema, or contain an unknown type.
pub fn read_schema(bytes: &[u8]) -> Result<(Owned<abi::ArrowSchema>, SchemaRef)> {
    let raw = schema::read(bytes)?;
    let schema = Arc::new(import_schema(&raw)?);
    Ok((raw, schema))
}
