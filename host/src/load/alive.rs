//! Whether a process that another one knew still runs.

use std::fs::{read_link, read_to_string};
use std::io::ErrorKind;

/// By what another process tells this one, besides its number, which the next one may have: when it began, and where its number is
/// one. `None` where the system does not say.
pub(super) fn own_sign() -> Option<String> {
    Some(format!("{}-{}", began(std::process::id())?.ok()?, here()?))
}

/// Whether the process of this number and sign is gone. One of another machine, container or user may be there.
pub(super) fn has_ended(process: u32, sign: &str) -> bool {
    let Some((then, there)) = sign.split_once('-') else { return false };
    here().is_some_and(|here| here == there)
        && match began(process) {
            Some(Ok(now)) => now != then,
            Some(Err(ErrorKind::NotFound)) => true,
            _ => false,
        }
}

/// Where numbers of processes mean the same: in one run of a system, and one namespace of it, if that is what `/proc` shows.
fn here() -> Option<String> {
    let shown = read_link("/proc/self").ok()?;
    if shown.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let namespace = read_link("/proc/self/ns/pid").ok()?;
    let namespace: String = namespace.to_str()?.chars().filter(char::is_ascii_digit).collect();
    let run = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{namespace}-{}", run.trim()))
}

/// In ticks since the system's beginning.
fn began(process: u32) -> Option<Result<String, ErrorKind>> {
    match read_to_string(format!("/proc/{process}/stat")) {
        // Its name is in parentheses, and may have any character; what follows are numbers but for the first.
        Ok(stat) => Some(Ok(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.to_string())),
        Err(error) => Some(Err(error.kind())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_when_its_number_is_nobody_s_or_another_s_and_not_where_that_cannot_be_known() {
        let (own, sign) = (std::process::id(), own_sign().unwrap());
        assert!(!has_ended(own, &sign));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (number, (_, here)) = (other.id(), sign.split_once('-').unwrap());
        let its = format!("{}-{here}", began(number).unwrap().unwrap());
        assert!(!has_ended(number, &its));
        assert!(has_ended(number, &format!("1-{here}")), "it has its number after another");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(has_ended(number, &its));
        for elsewhere in ["1-2-another-run", "1", ""] {
            assert!(!has_ended(number, elsewhere), "{elsewhere}");
        }
    }
}
