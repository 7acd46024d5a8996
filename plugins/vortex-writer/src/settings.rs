//! The options of the format.

use crossdock_plugin_api::{Error, Options, Result};

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
    pub fn from_options(options: &Options) -> Result<Self> {
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
