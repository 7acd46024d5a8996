//! Places of metadata in a file.

use crossdock_memory::{Result, StoredSource};
use crossdock_plugin_api::Error;
use crossdock_vortex_types::flatbuffer::Table;

/// The maximum size of the metadata of a file. It bounds the memory that a malformed file can
/// request.
const MAX_METADATA_BYTES: u64 = 1 << 30;

/// The place of a flatbuffer, or of metadata of the user, in the file.
pub struct Place {
    offset: u64,
    pub bytes: usize,
}

impl Place {
    pub fn read(table: Table<'_, '_>, file: &StoredSource) -> Result<Self> {
        if has_scheme(table, 3)? || table.has(4)? {
            return Err(Error::unsupported("the metadata is compressed or encrypted"));
        }
        let (offset, bytes) = (table.u64(0)?, u64::from(table.u32(1)?));
        file.check(offset, bytes)?;
        if bytes > MAX_METADATA_BYTES {
            return Err(Error::unsupported(format!(
                "the metadata has {bytes} bytes, expected at most {MAX_METADATA_BYTES}"
            )));
        }
        Ok(Self { offset, bytes: bytes as usize })
    }

    pub fn with<T>(&self, file: &StoredSource, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        file.with(self.offset, self.bytes, f)
    }
}

/// Whether slot `n` has a compression other than none.
fn has_scheme(table: Table<'_, '_>, n: usize) -> Result<bool> {
    Ok(table.has(n)? && table.table(n, "the compression")?.u8(0)? != 0)
}
