//! Applies a policy to one plugin.

use std::fs::File;
use std::path::Path;

use super::Fingerprint;
use crate::policy::{Allowed, Lock, Policy, Sha256};
use crate::refusal::Refusal;
use crate::trust;

/// Checks the plugin's name, and its bytes if the policy needs them.
pub(super) fn check_identity(
    name: &str,
    bytes: Option<&Fingerprint>,
    path: &Path,
    policy: &Policy,
) -> Result<(), Refusal> {
    check_allowed(name, bytes, policy)?;
    let Some(bytes) = bytes else { return Ok(()) };
    if policy.require_signature {
        bytes.check_signature(path)?;
    }
    policy.lock.as_ref().map_or(Ok(()), |lock| check_lock(name, bytes.sha256, lock))
}

/// Checks the folder of the opened file.
pub(super) fn check_folder(file: &File, policy: &Policy) -> Result<(), Refusal> {
    let Some(folders) = &policy.folders else { return Ok(()) };
    let path = trust::path_of(file).map_err(Refusal::Unreadable)?;
    let is_below = |folder: &Path| folder.canonicalize().is_ok_and(|folder| path.starts_with(folder));
    if folders.iter().any(|folder| is_below(folder)) {
        return Ok(());
    }
    let got = path.parent().unwrap_or(&path).to_path_buf();
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(Refusal::Folder { got, folders: folders.join(", ") })
}

/// Checks the plugin's name or hash against `allow`.
fn check_allowed(name: &str, bytes: Option<&Fingerprint>, policy: &Policy) -> Result<(), Refusal> {
    let Some(allow) = &policy.allow else { return Ok(()) };
    let sha256 = bytes.map(|bytes| bytes.sha256);
    let is_match = |entry: &Allowed| match entry {
        Allowed::Name(allowed) => allowed == name,
        Allowed::Hash(allowed) => Some(*allowed) == sha256,
    };
    if allow.iter().any(is_match) {
        return Ok(());
    }
    let hash = sha256.map_or_else(String::new, |sha256| format!(" nor 'sha256:{sha256}'"));
    Err(Refusal::NotAllowed { name: name.to_string(), hash })
}

fn check_lock(name: &str, got: Sha256, lock: &Lock) -> Result<(), Refusal> {
    let (name, file) = (name.to_string(), lock.file.clone());
    let expected: Vec<_> = lock.plugins.iter().filter(|p| p.name == name).map(|p| p.sha256).collect();
    if expected.contains(&got) {
        return Ok(());
    }
    if expected.is_empty() {
        return Err(Refusal::NotLocked { name, lock: file });
    }
    let expected = expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    Err(Refusal::LockHash { name, lock: file, hashes: format!("{expected}, got {got}") })
}
