//! Reasons not to load a candidate. Each reason has a stable id, and a message with the expected
//! and the actual value.

use std::path::PathBuf;

use crossdock_plugin_api::abi;

use crate::metadata::MetadataError;

/// The id for a plugin that was not refused but failed to load. Reported in place of a reason's id.
pub const FAILED: &str = "failed";

/// Libraries that every process may load: the C library and the loader, the runtimes of compilers,
/// and the CUDA driver.
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

/// A refused candidate, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("plugin '{label}' refused ({}): {reason}", reason.id())]
pub struct Refused {
    /// The candidate's path, or the name of a linked-in plugin.
    pub label: String,
    /// The reason.
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
    #[error("the file cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error(
        "expected the file to be owned by root or by user {user}, got owner {owner}, who could change it: change its owner \
         with chown"
    )]
    Owner { user: u32, owner: u32 },
    #[error(
        "expected a file that only its owner may write, got mode {mode:03o}: remove the permission with chmod go-w"
    )]
    Writable { mode: u32 },
    #[error(
        "expected the directory '{directory}' to be owned by root or by user {user}, got owner {owner}, who could replace \
         its files: change its owner with chown"
    )]
    DirectoryOwner { directory: String, user: u32, owner: u32 },
    #[error(
        "expected the link '{link}' to be owned by root or by user {user}, got owner {owner}, who could redirect it: \
         change its owner with chown -h"
    )]
    LinkOwner { link: String, user: u32, owner: u32 },
    #[error(
        "expected the directory '{directory}' to allow only owners to replace their files, got mode {mode:03o}: remove \
         the permission with chmod o-w"
    )]
    DirectoryMode { directory: String, mode: u32 },
    #[error(transparent)]
    Metadata(MetadataError),
    #[error(
        "the plugin was built for ABI {}.{}, expected {}.{}: get the plugin's build for this host",
        got.0, got.1, abi::ABI_MAJOR, abi::ABI_MINOR
    )]
    AbiVersion { got: (u32, u32) },
    #[error(
        "the plugin requires ABI versions {range}, but this host has {host}: get the plugin's build for this host"
    )]
    AbiRange { range: semver::VersionReq, host: semver::Version },
    #[error(
        "the plugin requires '{0}', which this host does not offer: use a newer host, or a plugin for this one"
    )]
    MissingInterface(String),
    #[error("the plugin was built with other struct sizes: {0}")]
    StructSizes(String),
    #[error("the plugin is in '{}', expected a folder below one of the policy's `folders`: {folders}", got.display())]
    Folder { got: PathBuf, folders: String },
    #[error("the plugin cannot be copied to sealed memory: {0}")]
    Copy(std::io::Error),
    #[error("the policy's `allow` does not name '{name}'{hash}: to load the plugin, add it to `allow`")]
    NotAllowed { name: String, hash: String },
    #[error("the policy requires a signature, expected in the file '{}', which does not exist", .0.display())]
    Unsigned(PathBuf),
    #[error("the signature '{}' is not valid: {why}", file.display())]
    Signature { file: PathBuf, why: String },
    #[error("the policy's lock file '{}' does not list '{name}': to load the plugin, run crossdock lock", lock.display())]
    NotLocked { name: String, lock: PathBuf },
    #[error(
        "the policy's lock file '{}' lists '{name}' with the SHA-256 hash {hashes}: if the new file is to be loaded, run \
         crossdock lock", lock.display()
    )]
    LockHash { name: String, lock: PathBuf, hashes: String },
    #[error(
        "the plugin needs {0}, expected only libraries of the system ({known}) or of the policy's `libraries`",
        known = SYSTEM_LIBRARIES.join(", ")
    )]
    NeededLibrary(String),
    #[error(
        "the plugin sets the library search path '{0}' (RPATH, RUNPATH), expected none: build it without -rpath, or remove the path \
         with patchelf --remove-rpath"
    )]
    SearchPath(String),
    #[error(
        "the plugin requires an executable stack, which all threads of the process would get: link it with -z noexecstack, and \
         give assembly files a section .note.GNU-stack"
    )]
    ExecutableStack,
    #[error("the plugin needs glibc {}.{}, but this system has {have}: get the plugin's build for an older glibc", needs.0, needs.1)]
    Glibc { needs: (u32, u32), have: String },
    #[error(
        "the plugin was built by {0} with panic = \"abort\", so a panic would end the whole process: build it with \
         panic = \"unwind\""
    )]
    PanicStrategy(String),
    #[error(
        "the plugin was built by '{toolchain}', which the policy's `deny_toolchains` refuses as '{denied}'"
    )]
    Toolchain { toolchain: String, denied: String },
    #[error("the file changed after this process first read it: restart the process to load the new file")]
    Changed,
    #[error(
        "a process that loaded the plugin ended during {step}, {ago}: replace the file, or allow another attempt with crossdock \
         plugins --retry and its path"
    )]
    Quarantined { step: String, ago: String },
    #[error("the dynamic loader failed: {0}")]
    Dlopen(String),
    #[error("the plugin exports no data symbol '{}'", abi::ENTRY_SYMBOL)]
    NoEntry,
    #[error("the plugin's entry is not valid: {0}")]
    BadEntry(String),
    #[error("the plugin could not create an instance: {0}")]
    Create(crossdock_plugin_api::Error),
    #[error("another plugin is called '{name}' too, and '{by}' has precedence")]
    Shadowed { name: String, by: String },
}

impl Refusal {
    /// The stable id of the reason, for programs.
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
            Self::MissingInterface(_) => "missing-interface",
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

    /// Whether the candidate was refused because of the path by which its file was found. The same
    /// file may be allowed by another path.
    pub(crate) fn depends_on_path(&self) -> bool {
        matches!(
            self,
            Self::DirectoryOwner { .. }
                | Self::LinkOwner { .. }
                | Self::DirectoryMode { .. }
                | Self::Unsigned(_)
                | Self::Signature { .. }
        )
    }

    /// Refuses the candidate `label` for this reason.
    pub fn into_refused(self, label: impl Into<String>) -> Refused {
        Refused { label: label.into(), reason: self }
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
