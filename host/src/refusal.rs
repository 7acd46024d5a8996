//! Why a candidate is not loaded: each reason has a name that stays the same, and a sentence that says who, what,
//! expected, got.

use std::path::PathBuf;

use crossdock_plugin_api::abi;

use crate::metadata::MetadataError;

/// What stands in a reason's place where a plugin was not refused, and cannot be had all the same.
pub const FAILED: &str = "failed";

/// Every process has these or may: the C library and the loader, what compilers add of their own, and the CUDA driver.
pub(crate) const SYSTEM_LIBRARIES: [&str; 15] = [
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libresolv.so.2",
    "libutil.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libatomic.so.1",
    "libgomp.so.1",
    "libcuda.so.1",
];

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
        "expected '{directory}' to be owned by root or by user {user}, got owner {owner}: whoever owns it can replace what is in it"
    )]
    DirectoryOwner { directory: String, user: u32, owner: u32 },
    #[error(
        "expected the link '{link}' to be owned by root or by user {user}, got owner {owner}: whoever owns it can have it lead elsewhere"
    )]
    LinkOwner { link: String, user: u32, owner: u32 },
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
    #[error("it lies in '{}', expected it below one of the policy's `folders`: {folders}", got.display())]
    Folder { got: PathBuf, folders: String },
    #[error("it cannot be copied to where nobody changes it: {0}")]
    Copy(std::io::Error),
    #[error("the policy's `allow` does not name '{name}'{hash}: if it is to run, add it there")]
    NotAllowed { name: String, hash: String },
    #[error("the policy asks for a signature, and there is none: expected it in '{}'", .0.display())]
    Unsigned(PathBuf),
    #[error("its signature '{}' does not count: {why}", file.display())]
    Signature { file: PathBuf, why: String },
    #[error("the policy's lock '{}' has no plugin '{name}': crossdock lock writes it anew", lock.display())]
    NotLocked { name: String, lock: PathBuf },
    #[error(
        "the policy's lock '{}' has '{name}' with the SHA-256 hash {hashes}: if the file is to be another, crossdock lock \
         writes the lock anew", lock.display()
    )]
    LockHash { name: String, lock: PathBuf, hashes: String },
    #[error(
        "it needs {0}, expected libraries of the system ({known}) or of the policy's `libraries`",
        known = SYSTEM_LIBRARIES.join(", ")
    )]
    NeededLibrary(String),
    #[error(
        "it would have libraries looked for in '{0}' (RPATH, RUNPATH), expected only where the system looks: build it without \
         -rpath, or take it out with patchelf --remove-rpath"
    )]
    SearchPath(String),
    #[error(
        "it asks for an executable stack, which the process's threads would all have then: link it with -z noexecstack, and give \
         assembly files a section .note.GNU-stack"
    )]
    ExecutableStack,
    #[error("it needs glibc {}.{}, this system has {have}: get the plugin's build for an older one", needs.0, needs.1)]
    Glibc { needs: (u32, u32), have: String },
    #[error(
        "it was built by {0} with panic = \"abort\", so that a panic in it would end the whole process: build it with \
         panic = \"unwind\""
    )]
    PanicStrategy(String),
    #[error("it was built by '{toolchain}', which the policy's `deny_toolchains` refuse as '{denied}'")]
    Toolchain { toolchain: String, denied: String },
    #[error(
        "the file was changed after this process looked at it: restart the process to use what it holds now"
    )]
    Changed,
    #[error(
        "a process that loaded it ended in '{step}' of it, {ago}: replace the file, or let it be tried again with crossdock \
         plugins --retry and its path"
    )]
    Quarantined { step: String, ago: String },
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
            Self::DirectoryOwner { .. } => "directory-owner",
            Self::LinkOwner { .. } => "link-owner",
            Self::DirectoryMode { .. } => "directory-mode",
            Self::Metadata(MetadataError::NotElf) => "not-elf",
            Self::Metadata(MetadataError::Damaged(_)) => "damaged",
            Self::Metadata(MetadataError::WrongMachine { .. }) => "wrong-machine",
            Self::Metadata(MetadataError::NotAPlugin) => "not-a-plugin",
            Self::Metadata(MetadataError::Bad(_)) => "bad-metadata",
            Self::AbiVersion { .. } | Self::Metadata(MetadataError::OtherAbi(..)) => "abi-version",
            Self::AbiRange { .. } => "abi-range",
            Self::StructSizes(_) => "struct-sizes",
            Self::Folder { .. } => "folder",
            Self::Copy(_) => "copy",
            Self::NotAllowed { .. } => "not-allowed",
            Self::Unsigned(_) => "unsigned",
            Self::Signature { .. } => "signature",
            Self::NotLocked { .. } => "not-locked",
            Self::LockHash { .. } => "lock-hash",
            Self::NeededLibrary(_) => "needed-library",
            Self::SearchPath(_) => "search-path",
            Self::ExecutableStack => "executable-stack",
            Self::Glibc { .. } => "glibc",
            Self::PanicStrategy(_) => "panic-strategy",
            Self::Toolchain { .. } => "toolchain",
            Self::Changed => "changed",
            Self::Quarantined { .. } => "quarantined",
            Self::Dlopen(_) => "dlopen",
            Self::NoEntry => "no-entry",
            Self::BadEntry(_) => "bad-entry",
            Self::Create(_) => "create",
            Self::Shadowed { .. } => "shadowed",
        }
    }

    /// Whether it says something of the path by which a file was reached, so that the same file may do by another.
    pub(crate) fn is_of_the_path(&self) -> bool {
        matches!(
            self,
            Self::DirectoryOwner { .. }
                | Self::LinkOwner { .. }
                | Self::DirectoryMode { .. }
                | Self::Unsigned(_)
                | Self::Signature { .. }
        )
    }

    /// The refusal of `who` for this reason.
    pub fn of(self, who: impl Into<String>) -> Refused {
        Refused { who: who.into(), reason: self }
    }
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::OtherAbi(major, minor) => Self::AbiVersion { got: (major, minor) },
            error => Self::Metadata(error),
        }
    }
}
