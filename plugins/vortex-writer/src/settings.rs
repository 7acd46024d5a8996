//! The options of the format.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use crossdock_plugin_api::{Error, Options, Result};

/// The names and the descriptions of the options.
pub const OPTIONS: [(&str, &str); 4] = [
    ("compression", "default (the default), compact (smaller and slower, with Zstandard and Pcodec) or none"),
    (
        "zone_rows",
        "the number of rows for which the file stores the least and greatest values, 8192 by default",
    ),
    (
        "chunk_rows",
        "the number of rows of a chunk, whose values are compressed together, 2097152 by default; \
         large chunks are smaller and faster to read completely, small chunks are faster to read in \
         part",
    ),
    (
        "chunk_bytes",
        "the size of a chunk of all columns before it is compressed, 268435456 by default; wide rows \
         have chunks of fewer rows",
    ),
];

/// The permitted numbers of rows of a zone.
const ZONE_ROWS: RangeInclusive<u64> = 1..=1 << 24;
/// The permitted numbers of rows of a chunk.
const CHUNK_ROWS: RangeInclusive<u64> = 1..=1 << 30;
/// The permitted sizes of chunks.
const CHUNK_BYTES: RangeInclusive<u64> = 1..=1 << 40;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub compression: Compression,
    /// The number of rows for which the crate computes statistics. Chunks have multiples of it.
    pub zone_rows: NonZeroUsize,
    /// The maximum number of rows of a chunk, unless a zone has more.
    pub chunk_rows: usize,
    /// The size of the values of all columns that the crate keeps uncompressed until a chunk is
    /// full.
    pub chunk_bytes: u64,
}

impl Settings {
    /// Reads the options.
    ///
    /// # Errors
    /// Invalid argument if a value is unknown or out of range.
    pub fn from_options(options: &Options) -> Result<Self> {
        let number = |key: &str, default: u64, permitted: RangeInclusive<u64>| match options.get(key) {
            None => Ok(default),
            Some(text) => {
                let number = text.parse().ok().filter(|number| permitted.contains(number));
                number.ok_or_else(|| {
                    let (least, greatest) = permitted.into_inner();
                    Error::invalid_argument(format!(
                        "the option {key} is '{text}', expected a number from {least} to {greatest}"
                    ))
                })
            }
        };
        let rows = |key, default, permitted| {
            number(key, default, permitted).map(|rows| usize::try_from(rows).unwrap_or(usize::MAX))
        };
        Ok(Self {
            compression: Compression::from_options(options)?,
            zone_rows: NonZeroUsize::new(rows("zone_rows", 8192, ZONE_ROWS)?).unwrap_or(NonZeroUsize::MIN),
            chunk_rows: rows("chunk_rows", 1 << 21, CHUNK_ROWS)?,
            chunk_bytes: number("chunk_bytes", 1 << 28, CHUNK_BYTES)?,
        })
    }

    /// The number of rows of a chunk, a multiple of a zone's, if a row has `row_bytes` bytes.
    pub fn rows_of_chunk(&self, row_bytes: u64) -> NonZeroUsize {
        let rows = usize::try_from(self.chunk_bytes / row_bytes.max(1)).unwrap_or(usize::MAX);
        let zones = rows.min(self.chunk_rows) / self.zone_rows;
        self.zone_rows.saturating_mul(NonZeroUsize::new(zones).unwrap_or(NonZeroUsize::MIN))
    }
}

/// How columns are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// The encodings that the crate's compressor chooses by default.
    Default,
    /// The compressor's preset with Zstandard and Pcodec.
    Compact,
    /// The values as they are in memory.
    None,
}

impl Compression {
    /// Reads the option `compression`.
    ///
    /// # Errors
    /// Invalid argument if the value is unknown.
    fn from_options(options: &Options) -> Result<Self> {
        match options.get("compression") {
            None | Some("default") => Ok(Self::Default),
            Some("compact") => Ok(Self::Compact),
            Some("none") => Ok(Self::None),
            Some(other) => Err(Error::invalid_argument(format!(
                "unknown compression '{other}', expected default, compact or none"
            ))),
        }
    }

    /// What an export does with a column, for a plan.
    pub fn description(self) -> &'static str {
        match self {
            Self::Default => "compressed with the encodings that Vortex chooses",
            Self::Compact => "compressed with Zstandard, Pcodec and the encodings that Vortex chooses",
            Self::None => "written in Vortex's canonical encoding of the type",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_multiples_of_a_zone_and_limited_in_rows_and_bytes() {
        let rows = |zone_rows, chunk_rows, chunk_bytes, row_bytes| {
            let zone_rows = NonZeroUsize::new(zone_rows).unwrap();
            let settings = Settings { compression: Compression::None, zone_rows, chunk_rows, chunk_bytes };
            settings.rows_of_chunk(row_bytes).get()
        };
        assert_eq!(rows(8192, 1 << 21, 1 << 28, 60), 1 << 21);
        assert_eq!(rows(8192, 1 << 21, 1 << 28, 1024), 1 << 18);
        assert_eq!(rows(8192, 1 << 21, 1 << 28, 0), 1 << 21);
        assert_eq!(rows(8192, 10_000, 1 << 28, 8), 8192);
        assert_eq!(rows(8192, 1, 1, 8), 8192, "at least one zone");
        assert_eq!(rows(8192, 1 << 21, 1 << 28, u64::MAX), 8192);
    }
}
