//! Where policies are.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crossdock_isolation::Environment;

use super::document::{self, PolicyError};
use super::{Policy, text};

/// The environment variable with the path of the policy to use.
pub const POLICY_VARIABLE: &str = "CROSSDOCK_POLICY";

const NAME: &str = "crossdock/crossdock.toml";
const SYSTEM: &str = "/etc";
const CRASHES: &str = "crossdock/loading";

impl Policy {
    /// What this file says.
    ///
    /// # Errors
    /// It is missing, somebody else could write it, or it says something that no policy can say.
    pub fn from_file(file: &Path) -> Result<Self, PolicyError> {
        let policy = Self::from_text(file, &document::read(file)?)?;
        Ok(Self { crashes: crashes(&Environment::of_process()), ..policy })
    }

    /// What a text says that is to stand for this file: paths in it are relative to the file's folder.
    ///
    /// # Errors
    /// It says something that no policy can say, or names a lock file that is not used.
    pub fn from_text(file: &Path, text: &str) -> Result<Self, PolicyError> {
        text::policy(file, text)
    }

    /// What the file says that [`POLICY_VARIABLE`] names; else `crossdock/crossdock.toml` in `$XDG_CONFIG_HOME` (else
    /// `~/.config`); else `/etc/crossdock/crossdock.toml`; else the default policy. The first file that is there is the
    /// only one that is read. A process with rights that its caller need not have looks into `/etc` alone.
    ///
    /// # Errors
    /// As [`Policy::from_file`].
    pub fn usual() -> Result<Self, PolicyError> {
        // What cannot be looked at is read all the same, to fail: a policy must not be passed over in silence.
        let is_there = |file: &Path| match std::fs::symlink_metadata(file) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        let file = usual_file(&Environment::of_process(), is_there);
        let without = || Self { crashes: crashes(&Environment::of_process()), ..Self::default() };
        file.map_or_else(|| Ok(without()), |file| Self::from_file(&file))
    }
}

fn usual_file(environment: &Environment, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    if let Some(named) = environment.value(POLICY_VARIABLE, |warning| tracing::warn!("{warning}")) {
        return Some(named.into());
    }
    let places = [own(environment, "XDG_CONFIG_HOME", ".config"), Some(SYSTEM.into())];
    places.into_iter().flatten().map(|folder| folder.join(NAME)).find(|file| exists(file))
}

/// Where crashes are marked: nowhere in a process with rights that its caller need not have.
fn crashes(environment: &Environment) -> Option<PathBuf> {
    own(environment, "XDG_STATE_HOME", ".local/state").map(|folder| folder.join(CRASHES))
}

/// The user's folder that `variable` names, or this one in the user's home. As the XDG specification has it, a relative path is as
/// good as none: else whoever chose the working directory would choose the policy.
fn own(environment: &Environment, variable: &str, at_home: &str) -> Option<PathBuf> {
    // That a privileged process looks past these is no news to anybody.
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

    fn home_alone(name: &str) -> Option<OsString> {
        variable(name).filter(|_| name == "HOME")
    }

    #[test]
    fn the_named_policy_goes_before_the_user_s_before_the_system_s() {
        let found = |variable, there: &[&str]| {
            let exists = |file: &Path| there.iter().any(|there| Path::new(there) == file);
            usual_file(&Environment::of(variable, false), exists).map(|file| file.display().to_string())
        };
        let (user, system) = ("/config/crossdock/crossdock.toml", "/etc/crossdock/crossdock.toml");
        let home = "/user/.config/crossdock/crossdock.toml";
        assert_eq!(found(variable, &[user, system]).unwrap(), "named.toml", "there or not");
        assert_eq!(found(without_policy, &[user, home, system]).unwrap(), user);
        assert_eq!(found(without_policy, &[home, system]).unwrap(), system);
        assert_eq!(found(home_alone, &[home, system]).unwrap(), home);
        assert_eq!(found(without_policy, &[]), None);
    }

    #[test]
    fn a_user_s_folder_that_is_relative_to_anywhere_is_not_looked_into() {
        let found = |variable| usual_file(&Environment::of(variable, false), |_| true).unwrap();
        let relative = |name: &str| ["XDG_CONFIG_HOME", "HOME"].contains(&name).then(|| "config".into());
        assert_eq!(found(relative), Path::new("/etc/crossdock/crossdock.toml"));
        // Nor does it hide the policy in the user's home.
        let home = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some("config".into()),
            "HOME" => Some("/user".into()),
            _ => None,
        };
        assert_eq!(found(home), Path::new("/user/.config/crossdock/crossdock.toml"));
    }

    #[test]
    fn a_privileged_process_reads_the_system_s_policy_alone() {
        let file = usual_file(&Environment::of(variable, true), |_| true);
        assert_eq!(file.unwrap(), Path::new("/etc/crossdock/crossdock.toml"));
    }
}
