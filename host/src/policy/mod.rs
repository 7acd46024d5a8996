//! What a host may load: a policy, which a program makes or a file says (docs/security.md).

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

/// What plugin files may be loaded, beyond what always holds: the default lets every plugin load whose file is safe from
/// others, fits this host, and needs libraries of the system alone. What is linked in is not asked.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The file that says it, for messages.
    pub file: Option<PathBuf>,
    /// The only plugins to load; `None` for all.
    pub allow: Option<Vec<Allowed>>,
    /// Whether a plugin's bytes must be signed with one of `keys`, in FILE.minisig beside it.
    pub require_signature: bool,
    /// Whose signatures count.
    pub keys: Vec<Key>,
    /// The only folders below which plugins may lie; `None` for all.
    pub folders: Option<Vec<PathBuf>>,
    /// Libraries that plugins may need besides those of the system, by the names under which they need them.
    pub libraries: Vec<String>,
    /// Compilers whose plugins are refused, as their metadata begins: "rustc 1.90" means 1.90.0 too.
    pub deny_toolchains: Vec<String>,
    /// The only files to load.
    pub lock: Option<Lock>,
    /// A folder in which plugins are marked while their code runs for the first time in a process, so that one that ended a process
    /// is refused by the next; `None`: nothing is marked. A policy from a file has the user's own: `crossdock/loading` in
    /// `$XDG_STATE_HOME`, or in `~/.local/state`.
    pub crashes: Option<PathBuf>,
    /// Which plugins run in processes of their own.
    pub isolation: Isolation,
}

/// An entry of [`Policy::allow`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Allowed {
    /// Any plugin that calls itself so.
    Name(String),
    /// A file with this content.
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
    /// Whether it asks for something of a file's bytes: then these are copied to where nobody can change them any more,
    /// and are checked and loaded there.
    pub(crate) fn asks_for_bytes(&self) -> bool {
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
        Err(format!("'{text}': expected a plugin's name or sha256: and a file's hash"))
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = minisign_verify::PublicKey::from_base64(text)
            .map_err(|error| format!("'{text}' is no minisign public key (RW...): {error}"))?;
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
