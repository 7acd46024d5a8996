//! The program that runs isolated plugins, and what it is started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crossdock_plugin_api::{Error, Result};

use crate::environment::{Environment, refuse_if_privileged};

/// Why a program is not to be started, if it is not.
pub type ProgramCheck = fn(&Path) -> std::result::Result<(), String>;

/// A program that calls [`serve`](crate::serve()), and nothing before it.
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

/// What [`serve_with`] was told.
static OWN: OnceLock<Program> = OnceLock::new();

/// Has `program`, which calls [`serve`](crate::serve()), run the plugins that this process isolates, unless a policy names another one. The
/// first call counts.
pub fn serve_with(program: Program) {
    // Later ones lose, as documented.
    let _ = OWN.set(program);
}

/// What a process is told its device by, if it is to have one: before it reads anything it gives up what it needs to start one.
pub(crate) const DEVICE_VARIABLE: &str = "CROSSDOCK_ISOLATED_DEVICE";

/// What the command is told, to serve a plugin.
pub const ARGUMENT: &str = "isolated-plugin";

impl Program {
    pub(crate) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let environment = Environment::of_process();
        let inherited = move |name: &&str| Some(((*name).into(), environment.value(name, |_| ())?));
        INHERITED.iter().filter_map(inherited).chain(self.environment.iter().cloned())
    }

    /// The one to start: what was named, else what [`serve_with`] was told, else the command beside this process's executable.
    /// What this process did not choose itself by [`serve_with`] is checked.
    pub(crate) fn to_start(named: Option<&Self>, check: ProgramCheck) -> Result<Self> {
        // It would inherit the rights, and refuse to serve.
        refuse_if_privileged("a plugin is to run in a process of its own, which is not started here")?;
        let checked = |program: Self| {
            let refused = |why: String| {
                let path = program.path.display();
                Error::unsupported(format!(
                    "'{path}' is not started to run a plugin in a process of its own: {why}"
                ))
            };
            check(&program.path).map_err(refused).map(|()| program)
        };
        match (named, OWN.get()) {
            (Some(named), _) => return checked(named.clone()),
            (None, Some(own)) => return Ok(own.clone()),
            (None, None) => {}
        }
        let own = std::env::current_exe().ok();
        let beside = own.and_then(|own| Some(own.parent()?.join("crossdock"))).filter(|path| path.is_file());
        let none = || {
            Error::unsupported(
                "a plugin is to run in a process of its own, and this one has no program for that: install the command \
                 `crossdock` beside it, or name it in the policy (isolate_program)",
            )
        };
        checked(beside.map(Self::command).ok_or_else(none)?)
    }

    /// The command `crossdock`, which lies there.
    pub fn command(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: vec![ARGUMENT.into()], environment: Vec::new() }
    }
}
