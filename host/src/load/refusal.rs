//! Why a candidate is not loaded: each reason has a name that stays the same, and a sentence that says who, what,
//! expected, got.

use crossdock_plugin_api::abi;

use crate::metadata::MetadataError;

/// A candidate that was refused, and why.
#[derive(Debug, thiserror::Error)]
#[error("plugin '{who}' refused ({}): {reason}", reason.id())]
pub struct Refused {
    /// The candidate's path, or the name of a linked-in plugin.
    pub who: String,
    /// Why.
    pub reason: Refusal,
}

/// Reasons to refuse a candidate.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refusal {
    #[error("there is no such file")]
    Missing,
    #[error("expected a regular file, got {got}")]
    NotAFile { got: &'static str },
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error(
        "expected it to be owned by root or by user {user}, got owner {owner}: whoever owns it can change it"
    )]
    Owner { user: u32, owner: u32 },
    #[error("expected a file that only its owner may write, got mode {mode:03o}: remove it with chmod go-w")]
    Writable { mode: u32 },
    #[error(
        "expected a directory in which only owners replace their files, got mode {mode:03o} of '{directory}': take it from the world with chmod o-w"
    )]
    DirectoryMode { directory: String, mode: u32 },
    #[error(transparent)]
    Metadata(MetadataError),
    #[error("built for ABI {}.{}, expected {}.{}: get the plugin's build for this host", got.0, got.1, abi::ABI_MAJOR, abi::ABI_MINOR)]
    AbiVersion { got: (u32, u32) },
    #[error("it asks for ABI versions {range}, this host has {host}")]
    AbiRange { range: semver::VersionReq, host: semver::Version },
    #[error("its build has other struct sizes: {0}")]
    StructSizes(String),
    #[error(
        "the file was changed after this process loaded it: restart the process to load what it holds now"
    )]
    Changed,
    #[error("the dynamic loader could not load it: {0}")]
    Dlopen(String),
    #[error("it exports no data symbol '{}'", abi::ENTRY_SYMBOL)]
    NoEntry,
    #[error("its entry is unusable: {0}")]
    BadEntry(String),
    #[error("it failed to make an instance: {0}")]
    Create(crossdock_plugin_api::Error),
    #[error("another plugin is called '{name}' too, and '{by}' comes first")]
    Shadowed { name: String, by: String },
}

impl Refusal {
    /// The reason's name, for programs: it stays the same from version to version.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotAFile { .. } => "not-a-file",
            Self::Unreadable(_) => "unreadable",
            Self::Owner { .. } => "owner",
            Self::Writable { .. } => "writable",
            Self::DirectoryMode { .. } => "directory-mode",
            Self::Metadata(MetadataError::NotElf) => "not-elf",
            Self::Metadata(MetadataError::Damaged(_)) => "damaged",
            Self::Metadata(MetadataError::WrongMachine { .. }) => "wrong-machine",
            Self::Metadata(MetadataError::NotAPlugin) => "not-a-plugin",
            Self::Metadata(MetadataError::Bad(_)) => "bad-metadata",
            Self::AbiVersion { .. } => "abi-version",
            Self::AbiRange { .. } => "abi-range",
            Self::StructSizes(_) => "struct-sizes",
            Self::Changed => "changed",
            Self::Dlopen(_) => "dlopen",
            Self::NoEntry => "no-entry",
            Self::BadEntry(_) => "bad-entry",
            Self::Create(_) => "create",
            Self::Shadowed { .. } => "shadowed",
        }
    }

    /// The refusal of `who` for this reason.
    pub fn of(self, who: impl Into<String>) -> Refused {
        Refused { who: who.into(), reason: self }
    }
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        Refusal::Metadata(error)
    }
}
