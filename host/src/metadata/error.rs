//! Errors of reading metadata.

use crossdock_plugin_api::abi;

/// The reason why a file has no readable metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum MetadataError {
    #[error("not an ELF shared library")]
    NotElf,
    #[error("malformed ELF file: {0}")]
    Damaged(String),
    #[error("built for another machine: expected {expected}, got {got}")]
    WrongMachine { expected: String, got: String },
    #[error("not a Crossdock plugin: the file exports no data symbol '{}'", abi::META_SYMBOL)]
    NotAPlugin,
    #[error("the metadata is malformed: {0}")]
    Bad(String),
    /// The file was built for another ABI version (major and minor), so the rest of the metadata
    /// cannot be read.
    #[error("built for ABI {0}.{1}")]
    OtherAbi(u32, u32),
}
