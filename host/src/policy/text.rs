//! Parses policies from TOML.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_isolation::{Deadlines, Program};
use serde::Deserialize;

use super::document::{self, PolicyError};
use super::{Allowed, Isolation, Key, Lock, Policy, Which};
use crate::hash::Sha256;
use crate::refusal::Refusal;

/// The keys of a policy file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Document {
    allow: Option<Vec<Allowed>>,
    require_signature: bool,
    keys: Vec<Key>,
    folders: Option<Vec<PathBuf>>,
    libraries: Vec<String>,
    deny_toolchains: Vec<String>,
    lock: Option<PathBuf>,
    isolate: Vec<String>,
    isolate_all_but: Option<Vec<Sha256>>,
    isolate_program: Option<PathBuf>,
    isolate_silence_seconds: Option<u64>,
    isolate_call_seconds: Option<u64>,
    isolate_cgroup: Option<PathBuf>,
}

/// Parses the policy `text` of `file`. Paths in the policy are relative to the file's folder.
pub(super) fn policy(file: &Path, text: &str) -> Result<Policy, PolicyError> {
    let document: Document = document::parse(file, text)?;
    let contradiction = |message: &str| {
        Err(PolicyError::Contradiction { file: file.to_path_buf(), message: message.to_string() })
    };
    match (document.require_signature, document.keys.is_empty()) {
        (true, true) => {
            return contradiction(
                "require_signature is true, but keys names no key: add the signers' public keys",
            );
        }
        (false, false) => {
            return contradiction("keys is set, but require_signature is not true: set it, or remove keys");
        }
        _ => {}
    }
    let which = match (Which::from_names(document.isolate), document.isolate_all_but) {
        (which, None) => which,
        (Which::None, Some(hashes)) => Which::AllBut(hashes),
        _ => return contradiction("isolate and isolate_all_but are both set, expected one of them"),
    };
    let default = Isolation::default().deadlines;
    let folder = file.parent().unwrap_or(Path::new(""));
    Ok(Policy {
        file: Some(file.to_path_buf()),
        allow: document.allow,
        require_signature: document.require_signature,
        keys: document.keys,
        folders: document.folders.map(|folders| folders.iter().map(|path| folder.join(path)).collect()),
        libraries: document.libraries,
        deny_toolchains: document.deny_toolchains,
        lock: document.lock.map(|path| lock(&folder.join(path))).transpose()?,
        crashes: None,
        isolation: Isolation {
            which,
            program: document.isolate_program.map(|path| Program::command(folder.join(path))),
            deadlines: Deadlines {
                silence: seconds(document.isolate_silence_seconds, default.silence),
                call: seconds(document.isolate_call_seconds, default.call),
            },
            cgroup: document.isolate_cgroup.map(|path| folder.join(path)),
        },
    })
}

/// Converts a deadline from seconds. The value 0 means that there is no deadline.
fn seconds(value: Option<u64>, default: Option<Duration>) -> Option<Duration> {
    match value {
        None => default,
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    }
}

/// Reads a lock file. A missing file is an empty lock, so that no plugin is loaded and `crossdock
/// lock` can write the file.
fn lock(file: &Path) -> Result<Lock, PolicyError> {
    match Lock::read(file) {
        Err(PolicyError::Untrusted { reason: Refusal::Missing, .. }) => Ok(Lock::new(file, Vec::new())),
        result => result,
    }
}
