//! Policies, which decide what a host may load. A program builds a policy, or reads it from a file
//! (docs/security.md).

mod document;
mod files;
mod isolation;
mod lock;
mod text;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use crate::hash::Sha256;
pub use document::PolicyError;
pub use files::POLICY_VARIABLE;
pub use isolation::{Isolation, Which};
pub use lock::{Lock, Locked};

/// Restricts the plugin files that may be loaded, in addition to the checks that always apply. The
/// default policy allows every plugin whose file can be changed only by root and this user, that
/// fits this host, and that needs only libraries of the system. Policies do not apply to linked-in
/// plugins.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The path of the policy file, for messages.
    pub file: Option<PathBuf>,
    /// The only plugins that may be loaded; `None` for all.
    pub allow: Option<Vec<Allowed>>,
    /// Whether a plugin's bytes must be signed with one of `keys`. The signature of FILE is in
    /// FILE.minisig.
    pub require_signature: bool,
    /// The keys of valid signatures.
    pub keys: Vec<Key>,
    /// The folders that may contain plugins, also in subfolders; `None` for all folders.
    pub folders: Option<Vec<PathBuf>>,
    /// Libraries that plugins may need in addition to the system's libraries. Plugins list the
    /// libraries by these names.
    pub libraries: Vec<String>,
    /// Compilers whose plugins are refused, by the beginning of the compiler's name: "rustc 1.90"
    /// includes "rustc 1.90.0".
    pub deny_toolchains: Vec<String>,
    /// The lock file, whose plugins are the only plugin files that may be loaded.
    pub lock: Option<Lock>,
    /// A folder in which a plugin is marked while its code first runs in a process. Later processes
    /// refuse a plugin that was marked when a process ended. `None`: plugins are not marked. A
    /// policy from a file uses `crossdock/loading` in `$XDG_STATE_HOME` (by default
    /// `~/.local/state`).
    pub crashes: Option<PathBuf>,
    /// The plugins that run in separate processes.
    pub isolation: Isolation,
}

/// An entry of [`Policy::allow`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Allowed {
    /// The plugins with this name.
    Name(String),
    /// The file with this hash.
    Hash(Sha256),
}

/// A minisign public key.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Key {
    pub(crate) text: String,
    pub(crate) key: minisign_verify::PublicKey,
}

impl Policy {
    /// Whether the policy depends on the bytes of plugin files. If so, the bytes are copied to
    /// sealed memory, where they are checked and from where they are loaded.
    pub(crate) fn needs_bytes(&self) -> bool {
        let hashes = |allow: &Vec<Allowed>| allow.iter().any(|entry| matches!(entry, Allowed::Hash(_)));
        let exceptions = matches!(self.isolation.which, Which::AllBut(_));
        exceptions || self.require_signature || self.lock.is_some() || self.allow.as_ref().is_some_and(hashes)
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(hash) = text.strip_prefix("sha256:") {
            return hash.parse().map(Self::Hash);
        }
        if crate::metadata::is_name(text) {
            return Ok(Self::Name(text.to_string()));
        }
        Err(format!("'{text}': expected the name of a plugin, or 'sha256:' and the hash of a file"))
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = minisign_verify::PublicKey::from_base64(text)
            .map_err(|error| format!("'{text}': expected a minisign public key (RW...): {error}"))?;
        Ok(Self { text: text.to_string(), key })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Allowed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
