//! A host of an earlier release beside today's, in one process: each is its library with its plugins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use crossdock_skew::build;
use crossdock_skew::skipped;
use crossdock_skew::sources::{Release, Sources, folder, listed, repository};

const LIBRARY: &str = "libcrossdock.so";
const PLUGIN: &str = "libcrossdock_arrow_ipc_plugin.so";
/// Of the sample.
const ROWS: usize = 27_004;

/// A library, and a folder with its plugin alone.
struct Built {
    library: PathBuf,
    plugins: PathBuf,
}

impl Built {
    /// What lies in `from`, the plugin taken to a folder of its own in `made`.
    fn of(from: &Path, made: &Path) -> Self {
        let plugins = made.join("plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        build::copied(&from.join(PLUGIN), &plugins.join(PLUGIN));
        Self { library: from.join(LIBRARY), plugins }
    }
}

/// Today's, as it was built beside this test.
fn today(made: &Path) -> Built {
    let test = std::env::current_exe().unwrap();
    Built::of(test.ancestors().nth(2).unwrap(), made)
}

/// The program that puts two to work, and what it says.
fn run(folder: &Path, first: &Built, second: &Built) -> String {
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
    let output =
        command.arg(repository().join("examples/data/flights-january.arrow")).arg(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn hosts_of_two_versions_work_beside_each_other() {
    let name = "skew: hosts of two versions";
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        return skipped(name, "an earlier release is built without a sanitizer");
    }
    for Release { version, commit, .. } in listed(include_str!("../releases.txt")) {
        let built = Sources::whole(&version, &commit).and_then(|sources| {
            let to = build::workspace(&sources, &["crossdock-capi", "crossdock-arrow-ipc-plugin"])?;
            Ok(Built::of(&to, &sources.made))
        });
        let earlier = match built {
            Ok(built) => built,
            Err(why) => {
                skipped(&format!("{name}: {version}"), &why);
                continue;
            }
        };
        let made = folder().join(format!("hosts-{version}"));
        std::fs::create_dir_all(&made).unwrap();
        let today = today(&made);
        let line = |version: &str| format!("{version} {ROWS} {ROWS}\n");
        let ours = line(env!("CARGO_PKG_VERSION"));
        assert_eq!(run(&made, &today, &earlier), ours.clone() + &line(&version));
        assert_eq!(run(&made, &earlier, &today), line(&version) + &ours);
    }
}
