//! Hosts of earlier releases: beside today's in one process, each its library with its plugins, and with today's plugins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError};

use crossdock_plugin_api::abi;
use crossdock_skew::matrix::ROWS;
use crossdock_skew::skipped;
use crossdock_skew::sources::{Release, Sources, folder, listed, repository};
use crossdock_skew::{Skipped, build};

const LIBRARY: &str = "libcrossdock.so";
const COMMAND: &str = "crossdock";
const PLUGIN: &str = "libcrossdock_arrow_ipc_plugin.so";
const PLUGINS: [&str; 4] = [
    PLUGIN,
    "libcrossdock_dlpack_plugin.so",
    "libcrossdock_arrow_c_device_plugin.so",
    "libcrossdock_encodings_plugin.so",
];
const SAMPLE: &str = "examples/data/flights-january.arrow";
/// Of the sample.
const ROW_COUNT: usize = 27_004;

/// A host as its library and as its command, with one plugin of its own, each in a folder where it finds nothing else.
#[derive(Clone)]
struct Built {
    library: PathBuf,
    plugins: PathBuf,
    /// Of one that speaks today's ABI.
    command: Option<PathBuf>,
}

impl Built {
    /// What lies in `from`, copied to `made`.
    fn of(from: &Path, made: &Path, is_today_s_abi: bool) -> Self {
        let place = |file: &str, folder: &str| {
            let folder = made.join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            build::copied(&from.join(file), &folder.join(file));
            folder
        };
        let plugins = place(PLUGIN, "plugins");
        let library = place(LIBRARY, "library").join(LIBRARY);
        let command = is_today_s_abi.then(|| place(COMMAND, "command").join(COMMAND));
        Self { library, plugins, command }
    }

    /// Built once for all tests here, as they take as long as everything else.
    fn of_release(Release { version, commit, .. }: &Release) -> Result<Self, Skipped> {
        type Releases = HashMap<String, Result<Built, Skipped>>;
        static RELEASES: LazyLock<Mutex<Releases>> = LazyLock::new(Mutex::default);
        let mut releases = RELEASES.lock().unwrap_or_else(PoisonError::into_inner);
        let build = || {
            let sources = Sources::whole(version, commit)?;
            let is_today_s_abi = sources.abi() == (abi::ABI_MAJOR, abi::ABI_MINOR);
            let mut packages = vec!["crossdock-capi", "crossdock-arrow-ipc-plugin"];
            packages.extend(is_today_s_abi.then_some("crossdock"));
            let to = build::workspace(&sources, &packages)?;
            Ok(Self::of(&to, &sources.made, is_today_s_abi))
        };
        releases.entry(version.clone()).or_insert_with(build).clone()
    }
}

/// Today's, as it was built beside this test.
fn today(made: &Path) -> Built {
    Built::of(&crossdock_tests::built(), made, true)
}

/// A folder of its own for what a test makes with a release.
fn made(version: &str, what: &str) -> PathBuf {
    let made = folder().join(format!("{what}-{version}"));
    std::fs::create_dir_all(&made).unwrap();
    made
}

/// Each release that can be built here. A sanitizer is none of theirs.
fn with_releases(name: &str, test: impl Fn(&str, &Built)) {
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        return skipped(name, "an earlier release is built without a sanitizer");
    }
    for release in listed(include_str!("../releases.txt")) {
        match Built::of_release(&release) {
            Ok(earlier) => test(&release.version, &earlier),
            Err(why) => skipped(&format!("{name}: {}", release.version), &why),
        }
    }
}

/// The program that puts two to work.
fn run(folder: &Path, first: &Built, second: &Built) -> Output {
    let program = folder.join("hosts");
    let source = repository().join("tests/skew/tests/hosts.c");
    let headers = ["plugin-api/include", "capi/include"].map(|path| repository().join(path));
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&program).arg("-ldl");
    headers.iter().for_each(|path| {
        cc.arg("-I").arg(path);
    });
    assert!(cc.status().unwrap().success(), "{cc:?}");
    let mut command = Command::new(&program);
    command.env_remove("CROSSDOCK_PLUGIN_PATH").env_remove("CROSSDOCK_POLICY");
    for built in [first, second] {
        command.arg(&built.library).arg(&built.plugins);
    }
    command.arg(repository().join(SAMPLE)).arg(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn hosts_of_two_versions_work_beside_each_other() {
    with_releases("skew: hosts of two versions", |version, earlier| {
        let made = made(version, "hosts");
        let today = today(&made);
        let line = |version: &str| format!("{version} {ROW_COUNT} {ROW_COUNT}\n");
        let ours = line(env!("CARGO_PKG_VERSION"));
        for (first, second, expected) in
            [(&today, earlier, ours.clone() + &line(version)), (earlier, &today, line(version) + &ours)]
        {
            let output = run(&made, first, second);
            assert!(output.status.success(), "{:?}: {}", output.status, said(&output));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    });
}

/// Of its own ABI it holds them to its own rules, and the fixtures carry what it reads; of another one it takes none.
#[test]
fn today_s_plugins_under_the_host_of_every_release() {
    let name = "skew: today's plugins under earlier hosts";
    with_releases(name, |version, earlier| {
        let Some(command) = &earlier.command else {
            let made = made(version, "refuses");
            let today = today(&made);
            let without = Built { plugins: today.plugins.clone(), ..earlier.clone() };
            let output = run(&made, &without, &today);
            let words = format!("reading of version {version}: ");
            assert!(!output.status.success() && said(&output).contains(&words), "{}", said(&output));
            return;
        };
        let ok = |arguments: &[&Path]| {
            let mut command = Command::new(command);
            command.env_remove("CROSSDOCK_PLUGIN_PATH").env_remove("CROSSDOCK_POLICY").args(arguments);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{command:?}: {}", said(&output));
        };
        let folder = made(version, "given");
        PLUGINS
            .iter()
            .map(|plugin| crossdock_tests::built_file(plugin))
            .chain([crossdock_tests::csv_plugin()])
            .for_each(|plugin| {
                ok(&[Path::new("verify"), &plugin]);
            });
        let (from, to) = (folder.join("from.skew"), folder.join("to.skew"));
        let values = [1i32, -2, 3, 4, 5, 6, 7].iter().flat_map(|value| value.to_le_bytes());
        let values: Vec<u8> = b"SKEW".iter().copied().chain(values).collect();
        std::fs::write(&from, &values).unwrap();
        // The fixture in C asks for a device that no command has.
        for row in ROWS.iter().filter(|row| row.name.starts_with("Rust")) {
            match row.built(&Sources::today()) {
                Ok(plugin) => {
                    let words = ["--from", "skew", "--to", "skew", "--plugins"].map(Path::new);
                    ok(&[&[Path::new("convert"), &from, &to], &words[..], &[&plugin]].concat());
                    assert_eq!(std::fs::read(&to).unwrap(), values, "{}", row.name);
                    std::fs::remove_file(&to).unwrap();
                }
                Err(why) => skipped(&format!("{name}: {version}, {}", row.name), &why),
            }
        }
    });
}
