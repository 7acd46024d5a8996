//! What the process's environment says about what may run, and whether it is listened to.

use std::ffi::OsString;

use crossdock_plugin_api::{Error, Result};

const WHY: &str = "(it is set-user-ID, set-group-ID or has file capabilities)";

/// The environment's variables, and whether whoever set them may decide what runs in this process.
pub struct Environment {
    variable: fn(&str) -> Option<OsString>,
    is_privileged: bool,
}

impl Environment {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self { variable: |name| std::env::var_os(name), is_privileged: is_privileged() }
    }

    /// Those that `variable` gives, in a process that is privileged or not: for tests.
    pub fn of(variable: fn(&str) -> Option<OsString>, is_privileged: bool) -> Self {
        Self { variable, is_privileged }
    }

    /// Its value, unless it is empty. A privileged process ignores it, and `warn` is told so.
    pub fn value(&self, name: &str, warn: impl FnOnce(String)) -> Option<OsString> {
        let value = (self.variable)(name).filter(|value| !value.is_empty())?;
        if self.is_privileged {
            warn(format!(
                "{name} is ignored: this process has rights that whoever set it may not have {WHY}"
            ));
            return None;
        }
        Some(value)
    }
}

/// Refuses `what` in a process with rights that its caller need not have (it is set-user-ID, set-group-ID, or has capabilities by
/// its file), in words that begin with it.
///
/// # Errors
/// It is such a process.
pub fn refuse_if_privileged(what: &str) -> Result<()> {
    if is_privileged() {
        let error = format!("{what}: this process has rights that whoever started it may not have {WHY}");
        return Err(Error::unsupported(error));
    }
    Ok(())
}

/// Whether the process got rights by its file that its caller need not have.
fn is_privileged() -> bool {
    // SAFETY: none of these has conditions, and none can fail; an entry that the kernel does not give reads as 0.
    unsafe {
        libc::getauxval(libc::AT_SECURE) != 0
            || libc::getuid() != libc::geteuid()
            || libc::getgid() != libc::getegid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_process_ignores_its_environment_and_says_so() {
        let variable = |name: &str| (name == "SET").then(|| OsString::from("value"));
        let heard = |is_privileged, name| {
            let mut warnings = Vec::new();
            let value =
                Environment::of(variable, is_privileged).value(name, |warning| warnings.push(warning));
            (value, warnings)
        };
        assert_eq!(heard(false, "SET"), (Some("value".into()), vec![]));
        assert_eq!(heard(true, "UNSET"), (None, vec![]));
        let (value, warnings) = heard(true, "SET");
        assert_eq!(value, None);
        assert!(warnings.len() == 1 && warnings[0].starts_with("SET is ignored"), "{warnings:?}");
    }

    #[test]
    fn tests_run_in_an_ordinary_process() {
        assert!(!is_privileged());
    }
}
