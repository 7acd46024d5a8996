//! The common beginning of all formats of this crate.
//!
//! A value begins with a magic number (8 bytes), the version (4 bytes, little-endian), the length
//! of the writer's release (1 byte) and the writer's release. These fields have the same format in
//! all versions. The rest is the value in the format of postcard.

use crossdock_plugin_api::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The release that writes the values.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// A format.
pub(crate) struct Format {
    /// The first bytes.
    pub magic: [u8; 8],
    /// Readers reject all other versions.
    pub version: u32,
    /// What a value describes, for messages.
    pub of: &'static str,
}

impl Format {
    /// Returns the bytes of a value.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn write<T: Serialize>(&self, value: &T) -> Result<Vec<u8>> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.push(RELEASE.len() as u8);
        bytes.extend(RELEASE.as_bytes());
        postcard::to_extend(value, bytes)
            .map_err(|error| Error::internal(format!("cannot write the header of {}: {error}", self.of)))
    }

    /// Parses a value.
    ///
    /// # Errors
    /// - bad data: the bytes are not exactly one value
    /// - unsupported: the value has another version
    pub fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        let Self { magic, version: expected, of } = self;
        let not_a_header = || {
            let begin = String::from_utf8_lossy(magic);
            Error::bad_data(format!(
                "{} bytes that are not the header of {of}: expected bytes that begin with \"{}\"",
                bytes.len(),
                begin.trim_end_matches('\0')
            ))
        };
        let (version, rest) =
            bytes.strip_prefix(magic).and_then(<[u8]>::split_first_chunk).ok_or_else(not_a_header)?;
        let (len, rest) = rest.split_first().ok_or_else(not_a_header)?;
        let (release, rest) = rest.split_at_checked(usize::from(*len)).ok_or_else(not_a_header)?;
        let (version, release) = (u32::from_le_bytes(*version), release.escape_ascii());
        if version != *expected {
            return Err(Error::unsupported(format!(
                "{of} of version {version}, written by Crossdock {release}: Crossdock {RELEASE} reads version \
                 {expected}; use the same release in both processes"
            )));
        }
        match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(Error::bad_data(format!("{} bytes follow the header of {of}", rest.len()))),
            Err(error) => Err(Error::bad_data(format!("the header of {of} is damaged: {error}"))),
        }
    }
}
