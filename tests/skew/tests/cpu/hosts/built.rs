//! Builds the hosts and plugins of releases, and finds the host and plugins of the working tree.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError};

use crossdock_plugin_api::abi;
use crossdock_skew::sources::{Release, Sources, Stamp, parse_releases, target_folder};
use crossdock_skew::{Skipped, build, skipped};

const LIBRARY: &str = "libcrossdock.so";
const COMMAND: &str = "crossdock";
pub const IPC: &str = "libcrossdock_arrow_ipc_plugin.so";
pub const ENCODINGS: &str = "libcrossdock_encodings_plugin.so";

/// The library, the command and the plugins of a host. Each file is in a separate folder, so that
/// the host finds no other plugins.
#[derive(Clone)]
pub struct Built {
    pub library: PathBuf,
    pub plugins: PathBuf,
    /// The command. `None` if the host does not have the current ABI.
    pub command: Option<PathBuf>,
    /// The plugin `encodings`. `None` if the release lacks this plugin or the current ABI.
    pub encodings: Option<PathBuf>,
    /// Whether the host has `crossdock.host.kernels/1`, which the current plugins need to create an
    /// instance.
    pub offers_kernels: bool,
}

/// The parts of a release that the tests can use.
#[derive(Clone, Copy)]
struct Parts {
    has_current_abi: bool,
    has_encodings: bool,
    has_kernels: bool,
}

impl Built {
    /// Copies the required files from the build folder `from` to `output`.
    fn copy_from(from: &Path, output: &Path, parts: Parts) -> Self {
        Self::with_files(output, parts, |file, folder| {
            std::fs::create_dir_all(folder).unwrap();
            build::copy_file(&from.join(file), &folder.join(file));
        })
    }

    /// The files that an earlier call of [`Built::copy_from`] copied to `output`.
    fn existing(output: &Path, parts: Parts) -> Self {
        Self::with_files(output, parts, |file, folder| {
            assert!(folder.join(file).exists(), "{file} is missing")
        })
    }

    fn with_files(output: &Path, parts: Parts, provide: impl Fn(&str, &Path)) -> Self {
        let place = |file: &str, folder: &str| {
            let folder = output.join(folder);
            provide(file, &folder);
            folder
        };
        let plugins = place(IPC, "plugins");
        let library = place(LIBRARY, "library").join(LIBRARY);
        let command = parts.has_current_abi.then(|| place(COMMAND, "command").join(COMMAND));
        let encodings = parts.has_encodings.then(|| place(ENCODINGS, "encodings").join(ENCODINGS));
        Self { library, plugins, command, encodings, offers_kernels: parts.has_kernels }
    }

    /// Builds a release. All tests share this build, because one build takes as long as all tests
    /// together.
    fn of_release(Release { version, commit, .. }: &Release) -> Result<Self, Skipped> {
        type Releases = HashMap<String, Result<Built, Skipped>>;
        static RELEASES: LazyLock<Mutex<Releases>> = LazyLock::new(Mutex::default);
        let mut releases = RELEASES.lock().unwrap_or_else(PoisonError::into_inner);
        let build = || {
            let sources = Sources::whole(version, commit)?;
            let has_current_abi = sources.abi() == (abi::ABI_MAJOR, abi::ABI_MINOR);
            let header = std::fs::read_to_string(sources.at("plugin-api/include/crossdock.h")).unwrap();
            let parts = Parts {
                has_kernels: header.contains(abi::HOST_KERNELS_ID.to_str().unwrap()),
                has_current_abi,
                has_encodings: has_current_abi && sources.at("plugins/encodings/plugin").is_dir(),
            };
            let mut packages = vec!["crossdock-capi", "crossdock-arrow-ipc-plugin"];
            // In early releases, the command was part of the host library's crate.
            let command = if sources.at("cli").is_dir() { "crossdock-cli" } else { "crossdock" };
            packages.extend(parts.has_current_abi.then_some(command));
            packages.extend(parts.has_encodings.then_some("crossdock-encodings-plugin"));
            // If an earlier run completed the build, it is reused without running Cargo.
            let content = format!("{commit} {packages:?}\n{}", build::toolchain()?);
            let stamp = Stamp::new(sources.output.join("hosts.stamp"), &content);
            if !stamp.is_current() {
                stamp.remove();
                let to = build::workspace(&sources, &packages)?;
                let built = Self::copy_from(&to, &sources.output, parts);
                stamp.write();
                return Ok(built);
            }
            Ok(Self::existing(&sources.output, parts))
        };
        releases.entry(version.clone()).or_insert_with(build).clone()
    }
}

/// The host of the working tree, which was built into the same target folder as this test.
pub fn today(output: &Path) -> Built {
    Built::copy_from(
        &crossdock_tests::built(),
        output,
        Parts { has_current_abi: true, has_encodings: true, has_kernels: true },
    )
}

/// Creates a folder for the files of a test with a release.
pub fn test_folder(version: &str, what: &str) -> PathBuf {
    let folder = target_folder().join(format!("{what}-{version}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a test with each release that can be built. Skips the test under a sanitizer, because
/// releases are built without one.
pub fn with_releases(name: &str, test: impl Fn(&str, &Built)) {
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        return skipped(name, "an earlier release is built without a sanitizer");
    }
    for release in parse_releases(include_str!("../../../releases.txt")) {
        match Built::of_release(&release) {
            Ok(earlier) => test(&release.version, &earlier),
            Err(why) => skipped(&format!("{name}: {}", release.version), &why),
        }
    }
}

pub fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// The command of a release. It uses only plugins that its arguments name.
pub fn command(program: &Path, arguments: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.env_remove("CROSSDOCK_PLUGIN_PATH").env_remove("CROSSDOCK_POLICY").args(arguments);
    command
}

/// Asserts that a current plugin fails under a host without kernels, and that the error names the
/// missing interface.
#[track_caller]
pub fn assert_requires_kernels(command: &mut Command) {
    let output = command.output().unwrap();
    let message = "the host offers no 'crossdock.host.kernels/1'";
    assert!(
        !output.status.success() && output_text(&output).contains(message),
        "{command:?}: {}",
        output_text(&output)
    );
}

#[track_caller]
pub fn assert_succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output_text(&output));
}
