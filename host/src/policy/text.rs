//! Policies as text (TOML).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock_isolation::{Deadlines, Program};
use serde::Deserialize;

use super::document::{self, PolicyError};
use super::{Allowed, Isolation, Key, Lock, Policy, Which};
use crate::hash::Sha256;
use crate::refusal::Refusal;

/// The file as it is written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Written {
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

/// What `file` says, whose text this is. Paths in it are relative to its folder.
pub(super) fn policy(file: &Path, text: &str) -> Result<Policy, PolicyError> {
    let written: Written = document::parse(file, text)?;
    let contradiction = |message: &str| {
        Err(PolicyError::Contradiction { file: file.to_path_buf(), message: message.to_string() })
    };
    match (written.require_signature, written.keys.is_empty()) {
        (true, true) => return contradiction("require_signature is true, and keys names no key"),
        (false, false) => {
            return contradiction(
                "keys are given, and require_signature is not true: none would be asked for",
            );
        }
        _ => {}
    }
    let which = match (Which::of(written.isolate), written.isolate_all_but) {
        (which, None) => which,
        (Which::None, Some(hashes)) => Which::AllBut(hashes),
        _ => return contradiction("isolate and isolate_all_but are both given, expected one of them"),
    };
    let usual = Isolation::default().deadlines;
    let folder = file.parent().unwrap_or(Path::new(""));
    Ok(Policy {
        file: Some(file.to_path_buf()),
        allow: written.allow,
        require_signature: written.require_signature,
        keys: written.keys,
        folders: written.folders.map(|folders| folders.iter().map(|path| folder.join(path)).collect()),
        libraries: written.libraries,
        deny_toolchains: written.deny_toolchains,
        lock: written.lock.map(|path| lock(&folder.join(path))).transpose()?,
        crashes: None,
        isolation: Isolation {
            which,
            program: written.isolate_program.map(|path| Program::command(folder.join(path))),
            deadlines: Deadlines {
                silence: seconds(written.isolate_silence_seconds, usual.silence),
                call: seconds(written.isolate_call_seconds, usual.call),
            },
            cgroup: written.isolate_cgroup.map(|path| folder.join(path)),
        },
    })
}

/// 0 is for ever.
fn seconds(written: Option<u64>, usual: Option<Duration>) -> Option<Duration> {
    match written {
        None => usual,
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    }
}

/// One that is not written yet has no plugins: none is let in, and `crossdock lock` can write it.
fn lock(file: &Path) -> Result<Lock, PolicyError> {
    match Lock::read(file) {
        Err(PolicyError::Untrusted { reason: Refusal::Missing, .. }) => Ok(Lock::of(file, Vec::new())),
        result => result,
    }
}
