//! Finds policy files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crossdock_isolation::Environment;

use super::document::{self, PolicyError};
use super::{Policy, text};

/// The environment variable with the path of the policy file.
pub const POLICY_VARIABLE: &str = "CROSSDOCK_POLICY";

const NAME: &str = "crossdock/crossdock.toml";
const SYSTEM: &str = "/etc";
const CRASHES: &str = "crossdock/loading";

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// The file is missing, other users can write it, or it is not a valid policy.
    pub fn from_file(file: &Path) -> Result<Self, PolicyError> {
        let policy = Self::from_text(file, &document::read(file)?)?;
        Ok(Self { crashes: crashes(&Environment::from_process()), ..policy })
    }

    /// Parses a policy as if `text` were the content of `file`: paths in the policy are relative to
    /// the folder of `file`.
    ///
    /// # Errors
    /// The text is not a valid policy, or names a lock file that is not valid.
    pub fn from_text(file: &Path, text: &str) -> Result<Self, PolicyError> {
        text::policy(file, text)
    }

    /// Reads the first of the following files that exists, or returns the default policy: the file
    /// that [`POLICY_VARIABLE`] names; `crossdock/crossdock.toml` in `$XDG_CONFIG_HOME` (by default
    /// `~/.config`); `/etc/crossdock/crossdock.toml`. A privileged process reads only the file in
    /// `/etc`.
    ///
    /// # Errors
    /// The errors of [`Policy::from_file`].
    pub fn from_standard_files() -> Result<Self, PolicyError> {
        // A file counts as existing unless the system reports that it is missing. If the file
        // cannot be read, reading it returns an error, because a policy must not be ignored
        // silently.
        let exists = |file: &Path| match std::fs::symlink_metadata(file) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        let file = default_file(&Environment::from_process(), exists);
        let without = || Self { crashes: crashes(&Environment::from_process()), ..Self::default() };
        file.map_or_else(|| Ok(without()), |file| Self::from_file(&file))
    }
}

fn default_file(environment: &Environment, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    if let Some(named) = environment.value(POLICY_VARIABLE, |warning| tracing::warn!("{warning}")) {
        return Some(named.into());
    }
    let folders = [user_folder(environment, "XDG_CONFIG_HOME", ".config"), Some(SYSTEM.into())];
    folders.into_iter().flatten().map(|folder| folder.join(NAME)).find(|file| exists(file))
}

/// The folder with the marks of plugins that ended a process; `None` in a privileged process.
fn crashes(environment: &Environment) -> Option<PathBuf> {
    user_folder(environment, "XDG_STATE_HOME", ".local/state").map(|folder| folder.join(CRASHES))
}

/// Returns the user's folder that `variable` names, or the folder `at_home` in the user's home. As
/// in the XDG specification, a relative path in the variable is ignored. Otherwise, the working
/// directory would decide which policy applies.
fn user_folder(environment: &Environment, variable: &str, at_home: &str) -> Option<PathBuf> {
    // A privileged process ignores these variables without a warning, because most environments set
    // HOME.
    let absolute =
        |name| environment.value(name, drop).map(PathBuf::from).filter(|folder| folder.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(at_home)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn variable(name: &str) -> Option<OsString> {
        let all = [(POLICY_VARIABLE, "named.toml"), ("XDG_CONFIG_HOME", "/config"), ("HOME", "/user")];
        all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn without_policy(name: &str) -> Option<OsString> {
        variable(name).filter(|_| name != POLICY_VARIABLE)
    }

    fn home_only(name: &str) -> Option<OsString> {
        variable(name).filter(|_| name == "HOME")
    }

    #[test]
    fn policy_variable_precedes_user_policy_and_system_policy() {
        let find = |variable, existing: &[&str]| {
            let exists = |file: &Path| existing.iter().any(|path| Path::new(path) == file);
            default_file(&Environment::new(variable, false), exists).map(|file| file.display().to_string())
        };
        let (user, system) = ("/config/crossdock/crossdock.toml", "/etc/crossdock/crossdock.toml");
        let home = "/user/.config/crossdock/crossdock.toml";
        assert_eq!(find(variable, &[user, system]).unwrap(), "named.toml", "even if it does not exist");
        assert_eq!(find(without_policy, &[user, home, system]).unwrap(), user);
        assert_eq!(find(without_policy, &[home, system]).unwrap(), system);
        assert_eq!(find(home_only, &[home, system]).unwrap(), home);
        assert_eq!(find(without_policy, &[]), None);
    }

    #[test]
    fn ignores_relative_user_folders() {
        let find = |variable| default_file(&Environment::new(variable, false), |_| true).unwrap();
        let relative = |name: &str| ["XDG_CONFIG_HOME", "HOME"].contains(&name).then(|| "config".into());
        assert_eq!(find(relative), Path::new("/etc/crossdock/crossdock.toml"));
        // A relative XDG_CONFIG_HOME does not hide the policy in the user's home.
        let home = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some("config".into()),
            "HOME" => Some("/user".into()),
            _ => None,
        };
        assert_eq!(find(home), Path::new("/user/.config/crossdock/crossdock.toml"));
    }

    #[test]
    fn privileged_process_reads_only_the_system_policy() {
        let file = default_file(&Environment::new(variable, true), |_| true);
        assert_eq!(file.unwrap(), Path::new("/etc/crossdock/crossdock.toml"));
    }
}
