//! Checks what a plugin needs from the system, and how it was built.

use std::ffi::CStr;

use crate::metadata::{Metadata, Needs, parse_version};
use crate::policy::Policy;
use crate::refusal::{Refusal, SYSTEM_LIBRARIES};

/// Whether every policy allows plugins to need the library `name`.
pub fn is_system_library(name: &str) -> bool {
    SYSTEM_LIBRARIES.contains(&name)
}

/// Checks the libraries that a plugin needs, because their constructors run before the plugin's
/// constructors, and checks the plugin's other requirements.
pub(super) fn check_needs(needs: &Needs, policy: &Policy) -> Result<(), Refusal> {
    let allowed = |name: &String| is_system_library(name) || policy.libraries.contains(name);
    let other: Vec<_> = needs.libraries.iter().filter(|name| !allowed(name)).cloned().collect();
    if !other.is_empty() {
        return Err(Refusal::NeededLibrary(other.join(", ")));
    }
    if !needs.search_paths.is_empty() {
        return Err(Refusal::SearchPath(needs.search_paths.join(":")));
    }
    if needs.executable_stack {
        return Err(Refusal::ExecutableStack);
    }
    check_glibc(needs.glibc, running_glibc())
}

/// Checks the needed glibc version. If the system's version has an unknown form, the check passes,
/// because the loader checks the version of every symbol.
fn check_glibc(needs: Option<(u32, u32)>, have: &str) -> Result<(), Refusal> {
    match needs.zip(parse_version(have)) {
        Some((needs, running)) if needs > running => Err(Refusal::Glibc { needs, have: have.to_string() }),
        _ => Ok(()),
    }
}

fn running_glibc() -> &'static str {
    // SAFETY: `gnu_get_libc_version` returns a constant NUL-terminated string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_str().unwrap_or_default()
}

/// Checks the declared toolchain and panic strategy.
pub(super) fn check_build(metadata: &Metadata, policy: &Policy) -> Result<(), Refusal> {
    // Each FFI door stops a panic that unwinds, but cannot stop a panic that aborts the process.
    if aborts(metadata) {
        return Err(Refusal::PanicStrategy(metadata.toolchain.clone()));
    }
    let denied = policy.deny_toolchains.iter().find(|denied| begins_with(&metadata.toolchain, denied));
    denied.map_or(Ok(()), |denied| {
        Err(Refusal::Toolchain { toolchain: metadata.toolchain.clone(), denied: denied.clone() })
    })
}

/// Whether a panic in a plugin with this metadata ends the process.
fn aborts(metadata: &Metadata) -> bool {
    metadata.panic == "abort" && metadata.toolchain.starts_with("rustc")
}

/// Whether `text` begins with `beginning`, and `beginning` does not end within a word or number of
/// `text`. "rustc 1.9" matches "rustc 1.9.0", but not "rustc 1.90.0".
fn begins_with(text: &str, beginning: &str) -> bool {
    let rest = text.strip_prefix(beginning);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_newer_glibc_and_names_both_versions() {
        let message = check_glibc(Some((2, 38)), "2.36").unwrap_err().to_string();
        assert!(message.contains("2.38") && message.contains("2.36"), "{message}");
        assert!(check_glibc(Some((2, 36)), "2.36").is_ok());
        assert!(check_glibc(Some((2, 4)), "2.36").is_ok());
        assert!(check_glibc(None, "2.36").is_ok());
    }

    #[test]
    fn running_glibc_version_can_be_parsed() {
        assert!(parse_version(running_glibc()).is_some_and(|version| version >= (2, 17)));
    }

    #[test]
    fn toolchain_prefix_matches_only_whole_version_numbers() {
        assert!(begins_with("rustc 1.9.0", "rustc 1.9"));
        assert!(begins_with("rustc 1.9", "rustc 1.9"));
        assert!(!begins_with("rustc 1.90.0", "rustc 1.9"));
    }
}
