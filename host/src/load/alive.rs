//! Checks whether a process still runs, given its id and a signature.

use std::fs::{read_link, read_to_string};
use std::io::ErrorKind;

/// Returns the signature of this process: its start time and its id namespace. The signature
/// distinguishes this process from later processes with the same id. `None` if the system does not
/// provide the start time or the namespace.
pub(super) fn process_signature() -> Option<String> {
    Some(format!("{}-{}", start_time(std::process::id())?.ok()?, id_namespace()?))
}

/// Whether the process with this id and signature has certainly ended. `false` if this cannot be
/// determined because the process belongs to another machine, container or user.
pub(super) fn has_ended(process: u32, signature: &str) -> bool {
    let Some((start, namespace)) = signature.split_once('-') else { return false };
    id_namespace().is_some_and(|current| current == namespace)
        && match start_time(process) {
            Some(Ok(now)) => now != start,
            Some(Err(ErrorKind::NotFound)) => true,
            _ => false,
        }
}

/// Identifies the namespace in which process ids are unique, by the pid namespace and the boot of
/// the system. `None` if `/proc` belongs to another namespace.
fn id_namespace() -> Option<String> {
    let shown = read_link("/proc/self").ok()?;
    if shown.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let namespace = read_link("/proc/self/ns/pid").ok()?;
    let namespace: String = namespace.to_str()?.chars().filter(char::is_ascii_digit).collect();
    let boot = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{namespace}-{}", boot.trim()))
}

/// The start time of a process, in clock ticks since boot.
fn start_time(process: u32) -> Option<Result<String, ErrorKind>> {
    match read_to_string(format!("/proc/{process}/stat")) {
        // The start time is field 22. Fields are counted after the last parenthesis, because the
        // second field, the name in parentheses, may contain any character.
        Ok(stat) => Some(Ok(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.to_string())),
        Err(error) => Some(Err(error.kind())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn process_has_ended_if_its_id_is_unused_or_reused() {
        let (own, signature) = (std::process::id(), process_signature().unwrap());
        assert!(!has_ended(own, &signature));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (id, (_, namespace)) = (other.id(), signature.split_once('-').unwrap());
        let other_signature = format!("{}-{namespace}", start_time(id).unwrap().unwrap());
        assert!(!has_ended(id, &other_signature));
        assert!(has_ended(id, &format!("1-{namespace}")), "the id was reused");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(has_ended(id, &other_signature));
        for other in ["1-2-another-run", "1", ""] {
            assert!(!has_ended(id, other), "{other}");
        }
    }
}
