//! Reads environment variables, which a privileged process ignores.

use std::ffi::OsString;

use crossdock_plugin_api::{Error, Result};

const WHY: &str = "(it is set-user-ID, set-group-ID or has file capabilities)";

/// The environment variables of a process. A process with more rights than its caller must not let
/// the variables decide which programs it runs.
pub struct Environment {
    variable: fn(&str) -> Option<OsString>,
    is_privileged: bool,
}

impl Environment {
    /// The variables of this process.
    pub fn from_process() -> Self {
        Self { variable: |name| std::env::var_os(name), is_privileged: is_privileged() }
    }

    /// Takes the variables from the function `variable`, for tests.
    pub fn new(variable: fn(&str) -> Option<OsString>, is_privileged: bool) -> Self {
        Self { variable, is_privileged }
    }

    /// The value of a variable. Returns `None` for an empty variable. In a privileged process,
    /// passes a warning to `warn` and returns `None`.
    pub fn value(&self, name: &str, warn: impl FnOnce(String)) -> Option<OsString> {
        let value = (self.variable)(name).filter(|value| !value.is_empty())?;
        if self.is_privileged {
            warn(format!("{name} is ignored: this process has rights that its caller may not have {WHY}"));
            return None;
        }
        Some(value)
    }
}

/// Returns an error in a privileged process. A process is privileged if its executable file is
/// set-user-ID or set-group-ID or has file capabilities. The error's message begins with `what`.
///
/// # Errors
/// The process is privileged.
pub fn refuse_if_privileged(what: &str) -> Result<()> {
    if is_privileged() {
        let error = format!("{what}: this process has rights that its caller may not have {WHY}");
        return Err(Error::unsupported(error));
    }
    Ok(())
}

/// Whether the executable file gives the process rights that its caller may not have.
fn is_privileged() -> bool {
    // SAFETY: these functions have no preconditions. `getauxval` returns 0 for a missing entry.
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
    fn privileged_process_ignores_variables_with_a_warning() {
        let variable = |name: &str| (name == "SET").then(|| OsString::from("value"));
        let read = |is_privileged, name| {
            let mut warnings = Vec::new();
            let value =
                Environment::new(variable, is_privileged).value(name, |warning| warnings.push(warning));
            (value, warnings)
        };
        assert_eq!(read(false, "SET"), (Some("value".into()), vec![]));
        assert_eq!(read(true, "UNSET"), (None, vec![]));
        let (value, warnings) = read(true, "SET");
        assert_eq!(value, None);
        assert!(warnings.len() == 1 && warnings[0].starts_with("SET is ignored"), "{warnings:?}");
    }

    #[test]
    fn test_process_is_not_privileged() {
        assert!(!is_privileged());
    }
}
