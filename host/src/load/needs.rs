//! What a plugin may bring along, and what it may ask of the system.

use std::ffi::CStr;

use crate::metadata::{Metadata, Needs, parse_version};
use crate::policy::Policy;
use crate::refusal::{Refusal, SYSTEM_LIBRARIES};

/// Whether a plugin may need this library whatever the policy is.
pub fn is_system_library(name: &str) -> bool {
    SYSTEM_LIBRARIES.contains(&name)
}

/// A library's constructors run with the plugin's, so what it needs is trusted like itself.
pub(super) fn check_needs(needs: &Needs, policy: &Policy) -> Result<(), Refusal> {
    let allowed = |name: &String| is_system_library(name) || policy.libraries.contains(name);
    let strangers: Vec<_> = needs.libraries.iter().filter(|name| !allowed(name)).cloned().collect();
    if !strangers.is_empty() {
        return Err(Refusal::NeededLibrary(strangers.join(", ")));
    }
    if !needs.search_paths.is_empty() {
        return Err(Refusal::SearchPath(needs.search_paths.join(":")));
    }
    if needs.executable_stack {
        return Err(Refusal::ExecutableStack);
    }
    check_glibc(needs.glibc, running_glibc())
}

/// A version that is written in no way we know is left to the loader, which compares every symbol's.
fn check_glibc(needs: Option<(u32, u32)>, have: &str) -> Result<(), Refusal> {
    match needs.zip(parse_version(have)) {
        Some((needs, running)) if needs > running => Err(Refusal::Glibc { needs, have: have.to_string() }),
        _ => Ok(()),
    }
}

fn running_glibc() -> &'static str {
    // SAFETY: glibc's constant, NUL-terminated text.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_str().unwrap_or_default()
}

/// What the metadata says of how the plugin was built.
pub(super) fn check_build(metadata: &Metadata, policy: &Policy) -> Result<(), Refusal> {
    // The door that stops unwinding, at which a host's other work goes on, stops nothing where a panic aborts.
    if aborts(metadata) {
        return Err(Refusal::PanicStrategy(metadata.toolchain.clone()));
    }
    let denied = policy.deny_toolchains.iter().find(|denied| begins_with(&metadata.toolchain, denied));
    denied.map_or(Ok(()), |denied| {
        Err(Refusal::Toolchain { toolchain: metadata.toolchain.clone(), denied: denied.clone() })
    })
}

/// Whether a panic in a plugin of this metadata ends the process.
fn aborts(metadata: &Metadata) -> bool {
    metadata.panic == "abort" && metadata.toolchain.starts_with("rustc")
}

/// Whether a text begins with these words or numbers, whole: "rustc 1.9" begins "rustc 1.9.0", not "rustc 1.90.0".
fn begins_with(text: &str, beginning: &str) -> bool {
    let rest = text.strip_prefix(beginning);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_glibc_than_needed_is_refused_with_both_versions() {
        let words = check_glibc(Some((2, 38)), "2.36").unwrap_err().to_string();
        assert!(words.contains("2.38") && words.contains("2.36"), "{words}");
        assert!(check_glibc(Some((2, 36)), "2.36").is_ok());
        assert!(check_glibc(Some((2, 4)), "2.36").is_ok());
        assert!(check_glibc(None, "2.36").is_ok());
    }

    #[test]
    fn the_running_glibc_tells_its_version() {
        assert!(parse_version(running_glibc()).is_some_and(|version| version >= (2, 17)));
    }

    #[test]
    fn toolchains_begin_with_whole_numbers() {
        assert!(begins_with("rustc 1.9.0", "rustc 1.9"));
        assert!(begins_with("rustc 1.9", "rustc 1.9"));
        assert!(!begins_with("rustc 1.90.0", "rustc 1.9"));
    }
}
