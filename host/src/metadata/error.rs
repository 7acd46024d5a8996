//! Errors of reading metadata.

use crossdock_plugin_api::abi;

/// The reason why a file has no readable metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum MetadataError {
    #[error("the file is not an ELF shared library")]
    NotElf,
    #[error("the ELF file is malformed: {0}")]
    Damaged(String),
    #[error("the file was built for another machine: expected {expected}, got {got}")]
    WrongMachine { expected: String, got: String },
    #[error("the file is not a Crossdock plugin: it exports no data symbol '{}'", abi::META_SYMBOL)]
    NotAPlugin,
    #[error("the metadata is malformed: {0}")]
    Bad(String),
    /// The file was built for another ABI version (major and minor), so the rest of the metadata
    /// cannot be read.
    #[error("the file was built for ABI {0}.{1}")]
    OtherAbi(u32, u32),
}
