//! Finds the program that runs isolated plugins, and selects its environment variables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crossdock_plugin_api::{Error, Result};

use crate::sandbox::environment::{Environment, refuse_if_privileged};

/// Checks whether a program may be started. Returns the reason if it must not be started.
pub type ProgramCheck = fn(&Path) -> std::result::Result<(), String>;

/// A program that calls [`serve`](crate::serve()) before any other work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable file.
    pub path: PathBuf,
    /// The command-line arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// Environment variables of the process, in addition to [`INHERITED_VARIABLES`].
    pub environment: Vec<(OsString, OsString)>,
}

/// Environment variables that a plugin's process inherits from its host, unless the host is
/// privileged. They select libraries, CUDA devices, the language, and the options of sanitizers.
pub const INHERITED_VARIABLES: [&str; 10] = [
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

/// The program that [`serve_with`] has set.
static SERVE_PROGRAM: OnceLock<Program> = OnceLock::new();

/// Sets the program that runs isolated plugins if the policy does not name a program. The program
/// must call [`serve`](crate::serve()) before any other work. Only the first call has an effect.
pub fn serve_with(program: Program) {
    // An error means that an earlier call has set the program.
    let _ = SERVE_PROGRAM.set(program);
}

/// The command-line argument that makes the command `crossdock` serve a plugin.
pub const SERVE_ARGUMENT: &str = "isolated-plugin";

impl Program {
    pub(crate) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let environment = Environment::from_process();
        let inherited = move |name: &&str| Some(((*name).into(), environment.value(name, |_| ())?));
        INHERITED_VARIABLES.iter().filter_map(inherited).chain(self.environment.iter().cloned())
    }

    /// Returns the program to start: `named`, or else the program of [`serve_with`], or else the
    /// command `crossdock` in the folder of this process's executable. `check` checks every program
    /// except the program of [`serve_with`].
    ///
    /// # Errors
    /// There is no program, the check fails, or this process is privileged.
    pub(crate) fn to_start(named: Option<&Self>, check: ProgramCheck) -> Result<Self> {
        // The new process would inherit the privileges, and `serve` would return an error.
        refuse_if_privileged("a plugin is to run in a process of its own, which is not started here")?;
        let checked = |program: Self| {
            let refused = |reason: String| {
                let path = program.path.display();
                Error::unsupported(format!(
                    "'{path}' is not started to run a plugin in a process of its own: {reason}"
                ))
            };
            check(&program.path).map_err(refused).map(|()| program)
        };
        match (named, SERVE_PROGRAM.get()) {
            (Some(named), _) => return checked(named.clone()),
            (None, Some(program)) => return Ok(program.clone()),
            (None, None) => {}
        }
        let executable = std::env::current_exe().ok();
        let command = executable.and_then(|path| Some(path.parent()?.join("crossdock")));
        let command = command.filter(|path| path.is_file());
        let not_found = || {
            Error::unsupported(
                "no program to run a plugin in a process of its own: install the command `crossdock` beside this program, or \
                 name it in the policy (isolate_program)",
            )
        };
        checked(command.map(Self::command).ok_or_else(not_found)?)
    }

    /// The command `crossdock` at `path`.
    pub fn command(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: vec![SERVE_ARGUMENT.into()], environment: Vec::new() }
    }
}
