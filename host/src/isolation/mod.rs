//! Plugins in processes of their own (docs/security.md, "Isolation").
//!
//! The host's side of a plugin is a [`Remote`](remote::Remote): a plugin like any other to the rest of the host, whose functions
//! ask a process ([`child`]; what it asks back: [`desk`]) that loads the real one and serves it ([`serve`]), after it gave up its
//! rights ([`confine`], and [`cgroup`] where the policy has one). What they say is plain data ([`wire`]) in messages ([`link`]); arrays lie in memory that both see and
//! neither can change ([`shared`], [`freight`]), and on devices in copies ([`rooms`]).

mod cgroup;
mod child;
mod confine;
mod desk;
mod freight;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod hostile;
mod isolated;
mod lanes;
mod link;
mod log;
mod places;
mod remote;
mod remote_objects;
mod rooms;
mod serve;
mod serve_objects;
mod serve_rooms;
mod shared;
mod sync;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crossdock_plugin_api::{Error, Result};

use crate::environment::{Environment, refuse_if_privileged};

pub(crate) use child::Child;
pub(crate) use freight::share;
pub(crate) use isolated::Isolated;
pub(crate) use remote::Remote;
pub use serve::serve;

/// Which plugins run in processes of their own, and how.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Which.
    pub which: Which,
    /// What runs them; otherwise what [`serve_with`] says, or `crossdock` beside this process's executable.
    pub program: Option<Program>,
    /// A call in which a process gives no sign of life for so long is an error, and the process is ended. `None`: it is waited for.
    pub silence: Option<Duration>,
    /// The control group (Linux, version 2) below which each process has one of its own, which limits it; it is one of this user's,
    /// without processes of its own. `None`: the processes stay in the host's.
    pub cgroup: Option<PathBuf>,
}

/// Which plugins are isolated. What is linked in is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// None.
    #[default]
    None,
    /// Those of these names.
    Named(Vec<String>),
    /// Every one.
    All,
}

impl Default for Isolation {
    /// None is isolated; one that were would have a minute to give a sign of life.
    fn default() -> Self {
        Self { which: Which::None, program: None, silence: Some(Duration::from_secs(60)), cgroup: None }
    }
}

impl Which {
    /// Those of these names; `*` is every one.
    pub fn of(names: Vec<String>) -> Self {
        match names {
            names if names.iter().any(|name| name == "*") => Self::All,
            names if names.is_empty() => Self::None,
            names => Self::Named(names),
        }
    }

    /// Those of either.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, which) | (which, Self::None) => which,
            (Self::Named(a), Self::Named(b)) => Self::Named(a.into_iter().chain(b).collect()),
        }
    }

    /// Whether the plugin of this name is.
    pub fn includes(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.iter().any(|known| known == name),
            Self::All => true,
        }
    }
}

/// A program that calls [`serve`], and nothing before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What it is told.
    pub arguments: Vec<OsString>,
    /// Variables that it is given. It has no others, but those of [`INHERITED`].
    pub environment: Vec<(OsString, OsString)>,
}

/// What a process of a plugin has of this one's environment, where this one listens to it: how to find
/// libraries, which CUDA device is which, how to speak, and what sanitizers are told.
pub const INHERITED: [&str; 10] = [
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LANG",
    "LC_ALL",
    "TZ",
    "RUST_BACKTRACE",
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
];

static OWN: OnceLock<Program> = OnceLock::new();

/// Has `program`, which calls [`serve`], run the plugins that this process isolates, unless a policy names another one. The
/// first call counts.
pub fn serve_with(program: Program) {
    // Later ones lose, as documented.
    let _ = OWN.set(program);
}

/// What a process is told its device by, if it is to have one: before it reads anything it gives up what it needs to start one.
const DEVICE_VARIABLE: &str = "CROSSDOCK_ISOLATED_DEVICE";

/// What the command is told, to serve a plugin.
pub const ARGUMENT: &str = "isolated-plugin";

impl Program {
    fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let environment = Environment::of_process();
        let inherited = move |name: &&str| Some(((*name).into(), environment.value(name, |_| ())?));
        INHERITED.iter().filter_map(inherited).chain(self.environment.iter().cloned())
    }

    /// The command `crossdock`, which lies there.
    pub fn command(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: vec![ARGUMENT.into()], environment: Vec::new() }
    }
}

impl Isolation {
    fn program(&self) -> Result<Program> {
        // It would inherit the rights, and refuse to serve.
        refuse_if_privileged("a plugin is to run in a process of its own, which is not started here")?;
        if let Some(program) = self.program.as_ref().or(OWN.get()) {
            return Ok(program.clone());
        }
        let own = std::env::current_exe().ok();
        let beside = own.and_then(|own| Some(own.parent()?.join("crossdock"))).filter(|path| path.is_file());
        beside.map(Program::command).ok_or_else(|| {
            Error::unsupported(
                "a plugin is to run in a process of its own, and this one has no program for that: install the command \
                 `crossdock` beside it, or name it in the policy (isolate_program)",
            )
        })
    }
}
