//! What releases are built into, and today's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError};

use crossdock_plugin_api::abi;
use crossdock_skew::sources::{Release, Sources, Stamp, folder, listed};
use crossdock_skew::{Skipped, build, skipped};

const LIBRARY: &str = "libcrossdock.so";
const COMMAND: &str = "crossdock";
pub const IPC: &str = "libcrossdock_arrow_ipc_plugin.so";
pub const ENCODINGS: &str = "libcrossdock_encodings_plugin.so";

/// A host as its library and as its command, with one plugin of its own, each in a folder where it finds nothing else.
#[derive(Clone)]
pub struct Built {
    pub library: PathBuf,
    pub plugins: PathBuf,
    /// Of one that speaks today's ABI.
    pub command: Option<PathBuf>,
    /// Its plugin of encodings, of one that has it and speaks today's ABI.
    pub encodings: Option<PathBuf>,
    /// Whether it offers `crossdock.host.kernels/1`, without which today's own plugins make no instance.
    pub offers_kernels: bool,
}

/// What of a release is of use here.
#[derive(Clone, Copy)]
struct Has {
    today_s_abi: bool,
    encodings: bool,
    kernels: bool,
}

impl Built {
    /// What lies in `from`, copied to `made`.
    fn of(from: &Path, made: &Path, has: Has) -> Self {
        Self::placed(made, has, |file, folder| {
            std::fs::create_dir_all(folder).unwrap();
            build::copied(&from.join(file), &folder.join(file));
        })
    }

    /// What an earlier call of [`Built::of`] copied to `made`.
    fn at(made: &Path, has: Has) -> Self {
        Self::placed(made, has, |file, folder| assert!(folder.join(file).exists(), "{file} was taken away"))
    }

    fn placed(made: &Path, has: Has, put: impl Fn(&str, &Path)) -> Self {
        let place = |file: &str, folder: &str| {
            let folder = made.join(folder);
            put(file, &folder);
            folder
        };
        let plugins = place(IPC, "plugins");
        let library = place(LIBRARY, "library").join(LIBRARY);
        let command = has.today_s_abi.then(|| place(COMMAND, "command").join(COMMAND));
        let encodings = has.encodings.then(|| place(ENCODINGS, "encodings").join(ENCODINGS));
        Self { library, plugins, command, encodings, offers_kernels: has.kernels }
    }

    /// Built once for all tests here, as they take as long as everything else.
    fn of_release(Release { version, commit, .. }: &Release) -> Result<Self, Skipped> {
        type Releases = HashMap<String, Result<Built, Skipped>>;
        static RELEASES: LazyLock<Mutex<Releases>> = LazyLock::new(Mutex::default);
        let mut releases = RELEASES.lock().unwrap_or_else(PoisonError::into_inner);
        let build = || {
            let sources = Sources::whole(version, commit)?;
            let today_s_abi = sources.abi() == (abi::ABI_MAJOR, abi::ABI_MINOR);
            let header = std::fs::read_to_string(sources.at("plugin-api/include/crossdock.h")).unwrap();
            let has = Has {
                kernels: header.contains(abi::HOST_KERNELS_ID.to_str().unwrap()),
                today_s_abi,
                encodings: today_s_abi && sources.at("plugins/encodings/plugin").is_dir(),
            };
            let mut packages = vec!["crossdock-capi", "crossdock-arrow-ipc-plugin"];
            // Until it had a crate of its own the command was the host library's.
            let command = if sources.at("cli").is_dir() { "crossdock-cli" } else { "crossdock" };
            packages.extend(has.today_s_abi.then_some(command));
            packages.extend(has.encodings.then_some("crossdock-encodings-plugin"));
            // Where all of it is there from another run, nothing is built, and Cargo is not even asked.
            let content = format!("{commit} {packages:?}\n{}", build::toolchain()?);
            let stamp = Stamp::new(sources.made.join("hosts.stamp"), &content);
            if !stamp.holds() {
                stamp.remove();
                let to = build::workspace(&sources, &packages)?;
                let built = Self::of(&to, &sources.made, has);
                stamp.set();
                return Ok(built);
            }
            Ok(Self::at(&sources.made, has))
        };
        releases.entry(version.clone()).or_insert_with(build).clone()
    }
}

/// Today's, as it was built beside this test.
pub fn today(made: &Path) -> Built {
    Built::of(&crossdock_tests::built(), made, Has { today_s_abi: true, encodings: true, kernels: true })
}

/// A folder of its own for what a test makes with a release.
pub fn made(version: &str, what: &str) -> PathBuf {
    let made = folder().join(format!("{what}-{version}"));
    std::fs::create_dir_all(&made).unwrap();
    made
}

/// Each release that can be built here. A sanitizer is none of theirs.
pub fn with_releases(name: &str, test: impl Fn(&str, &Built)) {
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        return skipped(name, "an earlier release is built without a sanitizer");
    }
    for release in listed(include_str!("../../../releases.txt")) {
        match Built::of_release(&release) {
            Ok(earlier) => test(&release.version, &earlier),
            Err(why) => skipped(&format!("{name}: {}", release.version), &why),
        }
    }
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// A release's command, which finds no plugins but those that it is given.
pub fn command(program: &Path, arguments: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.env_remove("CROSSDOCK_PLUGIN_PATH").env_remove("CROSSDOCK_POLICY").args(arguments);
    command
}

/// Today's own plugins say of a host without kernels what it lacks.
#[track_caller]
pub fn assert_asks_for_kernels(command: &mut Command) {
    let output = command.output().unwrap();
    let words = "the host offers no 'crossdock.host.kernels/1'";
    assert!(!output.status.success() && said(&output).contains(words), "{command:?}: {}", said(&output));
}

#[track_caller]
pub fn assert_succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
}
