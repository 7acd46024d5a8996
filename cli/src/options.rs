//! Options that several commands share.

use std::path::{Path, PathBuf};

use clap::Args;
use crossdock::api::{CancelFlag, Device, Options, Validate};
use crossdock::discovery::Search;
use crossdock::isolation::Which;
use crossdock::memory::{Backend, BackendBuilder};
use crossdock::source::Input;
use crossdock::{
    Error, Host, HostBuilder, Policy, Result, Session, parse_bytes, refuse_if_privileged,
    trace_from_environment, trace_to,
};

/// A host that looks for plugins beside the command too.
pub fn host() -> HostBuilder {
    Host::builder().search(Search::usual().beside_executable())
}

/// Where to look for plugins, and which may be loaded.
#[derive(Args)]
pub struct PluginPaths {
    /// A directory of plugins, or a plugin file; before all other places. May be given several times
    #[arg(long = "plugins", value_name = "DIR")]
    pub paths: Vec<PathBuf>,
    /// What plugins may be loaded (docs/security.md) [default: CROSSDOCK_POLICY, else crossdock/crossdock.toml in
    /// $XDG_CONFIG_HOME or ~/.config, else in /etc, else all that fit this host]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Runs plugins in processes of their own: all, or those of these names (docs/security.md)
    #[arg(long, value_name = "PLUGIN,...", num_args = 0..=1, require_equals = true, default_missing_value = "*",
          value_delimiter = ',')]
    pub isolate: Vec<String>,
}

impl PluginPaths {
    /// What plugins may be loaded.
    pub fn policy(&self) -> Result<Policy> {
        // They would decide what runs, as the variables would that such a process ignores.
        if self.policy.is_some() {
            not_for_privileged("--policy is refused")?;
        }
        if !self.paths.is_empty() {
            not_for_privileged("--plugins is refused")?;
        }
        let mut policy = self.policy.as_deref().map_or_else(Policy::usual, Policy::from_file)?;
        if !self.isolate.is_empty() {
            policy.isolation.which = policy.isolation.which.and(Which::of(self.isolate.clone()));
        }
        Ok(policy)
    }

    /// A host that looks there, for these.
    pub fn host(&self, policy: Policy) -> HostBuilder {
        let builder = host().policy(policy);
        self.paths.iter().fold(builder, |builder, path| builder.plugins(path))
    }
}

/// What lets the caller choose which code runs.
pub fn not_for_privileged(what: &str) -> Result<()> {
    refuse_if_privileged(what).map_err(|error| Error::Usage(error.message().to_string()))
}

/// How to work.
#[derive(Args)]
pub struct Work {
    #[command(flatten)]
    pub plugins: PluginPaths,
    /// Where batches are to be: cpu, cuda, cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parse_device)]
    pub device: Device,
    /// The most memory to hold at once: 512MiB, 2GB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// How many threads plugins may keep busy [default: as many as the machine has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Records each call of and by plugins in this file, which ui.perfetto.dev opens [default: CROSSDOCK_TRACE, or none]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How closely to look at what comes in [default: full for files and streams, layout within the process]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub validate: Option<Level>,
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What is to be read: a file whatever bytes its name has, or standard input.
pub fn open_input(path: &Path, cancel: &CancelFlag) -> Result<Input> {
    if is_standard(path) { Input::stdin(cancel) } else { Input::open(path, cancel) }
}

/// KEY=VALUE.
pub fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err(format!("'{text}': expected KEY=VALUE")),
    }
}

/// All of them as a format is told them.
pub fn wishes(pairs: Vec<(String, String)>) -> Options {
    pairs.into_iter().fold(Options::new(), |options, (key, value)| options.with(key, value))
}

/// How closely to look.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Level {
    /// Counts, lengths, missing buffers
    Layout,
    /// The contents too: offsets, indices, UTF-8
    Full,
}

/// cpu, cuda, cuda:N.
pub fn parse_device(text: &str) -> Result<Device, String> {
    text.parse().map_err(|error: crossdock::api::Error| error.message().to_string())
}

impl Work {
    /// A host and a session as asked for, stopped by Ctrl-C.
    pub fn session(&self) -> Result<(Host, Session)> {
        let mut backend = Backend::builder().untouchable(self.device == Device::UNTOUCHABLE);
        if let Some(bytes) = self.memory {
            backend = backend.limit_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        let trace = match &self.trace {
            Some(path) => Some(trace_to(path)?),
            None => trace_from_environment()?,
        };
        let backend = trace.into_iter().fold(backend, BackendBuilder::trace);
        let mut builder = self.plugins.host(self.plugins.policy()?).backend(backend.build());
        if let Some(threads) = self.threads {
            builder = builder.threads(threads as usize);
        }
        let host = builder.build()?;
        let cancel = CancelFlag::new();
        super::interrupt::cancels(&cancel);
        super::cut_short::ends_the_process();
        let mut session = host.session().device(self.device).cancel_flag(cancel);
        if let Some(level) = self.validate {
            session = session.validate(match level {
                Level::Layout => Validate::Layout,
                Level::Full => Validate::Full,
            });
        }
        let session = session.open()?;
        Ok((host, session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_a_key_and_whatever_follows_the_first_equals_sign() {
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(parse_option("a=b"), pair("a", "b"));
        assert_eq!(parse_option("a="), pair("a", ""));
        assert_eq!(parse_option("a=b=c"), pair("a", "b=c"));
        for wrong in ["", "a", "=b"] {
            assert_eq!(parse_option(wrong), Err(format!("'{wrong}': expected KEY=VALUE")));
        }
    }

    #[test]
    fn the_command_isolates_what_it_names_beside_what_the_policy_does() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("crossdock.toml");
        std::fs::write(&policy, "").unwrap();
        // Whatever the umask of the one who runs the tests.
        std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o644)).unwrap();
        let which = |isolate: &[&str]| {
            let isolate = isolate.iter().map(ToString::to_string).collect();
            let paths = PluginPaths { paths: Vec::new(), policy: Some(policy.clone()), isolate };
            paths.policy().unwrap().isolation.which
        };
        assert_eq!(which(&[]), Which::None);
        assert_eq!(which(&["a", "b"]), Which::Named(vec!["a".into(), "b".into()]));
        assert_eq!(which(&["*"]), Which::All);
    }
}
