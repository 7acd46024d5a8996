//! Command-line options that several commands share.

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

/// A host that also searches for plugins next to the executable.
pub fn host() -> HostBuilder {
    Host::builder().search(Search::standard().beside_executable())
}

/// Options about the search for plugins and the policy.
#[derive(Args)]
pub struct PluginArgs {
    /// A directory of plugins, or a plugin file, searched before all other places. May be given
    /// several times
    #[arg(long = "plugins", value_name = "DIR")]
    pub paths: Vec<PathBuf>,
    /// The policy that decides which plugins may be loaded (docs/security.md) [default:
    /// CROSSDOCK_POLICY, else crossdock/crossdock.toml in $XDG_CONFIG_HOME or ~/.config, else in
    /// /etc, else all compatible plugins]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Runs plugins in separate processes: all of them, or those with these names
    /// (docs/security.md)
    #[arg(long, value_name = "PLUGIN,...", num_args = 0..=1, require_equals = true, default_missing_value = "*",
          value_delimiter = ',')]
    pub isolate: Vec<String>,
}

impl PluginArgs {
    /// The policy that these options select.
    pub fn policy(&self) -> Result<Policy> {
        // The options `--policy` and `--plugins` decide which code runs, so a privileged process
        // rejects them. It also ignores the environment variables that have the same effect.
        if self.policy.is_some() {
            not_for_privileged("--policy is refused")?;
        }
        if !self.paths.is_empty() {
            not_for_privileged("--plugins is refused")?;
        }
        let mut policy =
            self.policy.as_deref().map_or_else(Policy::from_standard_files, Policy::from_file)?;
        if !self.isolate.is_empty() {
            policy.isolation.which = policy.isolation.which.union(Which::from_names(self.isolate.clone()));
        }
        Ok(policy)
    }

    /// A host with the search paths of these options and with `policy`.
    pub fn host(&self, policy: Policy) -> HostBuilder {
        let builder = host().policy(policy);
        self.paths.iter().fold(builder, |builder, path| builder.plugins(path))
    }
}

/// Rejects an option or command that lets the caller of a privileged process choose which code
/// runs.
pub fn not_for_privileged(what: &str) -> Result<()> {
    refuse_if_privileged(what).map_err(|error| Error::Usage(error.message().to_string()))
}

/// Options of a session.
#[derive(Args)]
pub struct SessionArgs {
    #[command(flatten)]
    pub plugins: PluginArgs,
    /// The device of batches: cpu, cuda, cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parse_device)]
    pub device: Device,
    /// The memory limit: 512MiB, 2GB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// The number of threads that plugins may use [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Records all calls between the host and plugins in this file, for ui.perfetto.dev [default:
    /// CROSSDOCK_TRACE, or none]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The validation of inputs [default: full for files and streams, layout within the process]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub validate: Option<Level>,
}

/// Whether a path is '-', for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The options of URIs.
#[derive(Args)]
pub struct StorageArgs {
    /// An option of the plugin that opens URIs, such as credentials. Other users of the machine can
    /// see the command line; the plugin also reads environment variables. May be given several
    /// times
    #[arg(long = "storage-option", value_name = "KEY=VALUE", value_parser = parse_option)]
    pairs: Vec<(String, String)>,
}

impl StorageArgs {
    pub fn options(&self) -> Options {
        to_options(self.pairs.clone())
    }
}

/// Opens a file, a URI, or standard input for '-'.
pub fn open_input(session: &Session, path: &Path, storage: &StorageArgs) -> Result<Input> {
    match is_standard(path) {
        true => Input::stdin(session.cancel_flag()),
        false => session.open_input(path, &storage.options()),
    }
}

/// Parses `KEY=VALUE`.
pub fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err(format!("'{text}': expected KEY=VALUE")),
    }
}

/// Converts pairs to the options of a format.
pub fn to_options(pairs: Vec<(String, String)>) -> Options {
    pairs.into_iter().fold(Options::new(), |options, (key, value)| options.with(key, value))
}

/// The value of `--validate`.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Level {
    /// Counts, lengths, missing buffers
    Layout,
    /// Also contents: offsets, indices, UTF-8
    Full,
}

/// Parses `cpu`, `cuda` or `cuda:N`.
pub fn parse_device(text: &str) -> Result<Device, String> {
    text.parse().map_err(|error: crossdock::api::Error| error.message().to_string())
}

impl SessionArgs {
    /// Opens a host and a session, which Ctrl-C cancels.
    pub fn open(&self) -> Result<(Host, Session)> {
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
        super::interrupt::cancel_on_signal(&cancel);
        super::truncated_input::install_handler();
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
    fn parse_option_splits_at_the_first_equals_sign() {
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(parse_option("a=b"), pair("a", "b"));
        assert_eq!(parse_option("a="), pair("a", ""));
        assert_eq!(parse_option("a=b=c"), pair("a", "b=c"));
        for wrong in ["", "a", "=b"] {
            assert_eq!(parse_option(wrong), Err(format!("'{wrong}': expected KEY=VALUE")));
        }
    }

    #[test]
    fn isolate_option_adds_plugins_to_the_isolation_policy() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("crossdock.toml");
        std::fs::write(&policy, "").unwrap();
        // Sets the mode explicitly, because the umask could change the mode of the new file.
        std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o644)).unwrap();
        let which = |isolate: &[&str]| {
            let isolate = isolate.iter().map(ToString::to_string).collect();
            let paths = PluginArgs { paths: Vec::new(), policy: Some(policy.clone()), isolate };
            paths.policy().unwrap().isolation.which
        };
        assert_eq!(which(&[]), Which::None);
        assert_eq!(which(&["a", "b"]), Which::Named(vec!["a".into(), "b".into()]));
        assert_eq!(which(&["*"]), Which::All);
    }
}
