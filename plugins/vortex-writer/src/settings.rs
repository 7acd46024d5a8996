//! The options of the format.

use std::ops::RangeInclusive;

use crossdock_plugin_api::{Error, Options, Result};

/// The names and the descriptions of the options.
pub const OPTIONS: [(&str, &str); 3] = [
    ("compression", "default (the default), compact (smaller and slower, with Zstandard and Pcodec) or none"),
    (
        "zone_rows",
        "the number of rows for which the file stores the least and greatest values, 8192 by default",
    ),
    (
        "chunk_bytes",
        "the size of the values of a column that are compressed together, 1048576 by default; large \
         chunks are smaller and faster to read completely, small chunks are faster to read in part",
    ),
];

/// The permitted numbers of rows of a zone.
const ZONE_ROWS: RangeInclusive<u64> = 1..=1 << 24;
/// The permitted sizes of chunks. The crate counts the bytes of a segment with 32 bits.
const CHUNK_BYTES: RangeInclusive<u64> = 1..=1 << 30;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub compression: Compression,
    /// The number of rows of the crate's smallest unit, for which it computes statistics. Chunks
    /// have multiples of it.
    pub zone_rows: usize,
    /// The size of the values of a column that the crate keeps uncompressed until a chunk is full.
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
        Ok(Self {
            compression: Compression::from_options(options)?,
            zone_rows: usize::try_from(number("zone_rows", 8192, ZONE_ROWS)?).unwrap_or(usize::MAX),
            chunk_bytes: number("chunk_bytes", 1 << 20, CHUNK_BYTES)?,
        })
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
