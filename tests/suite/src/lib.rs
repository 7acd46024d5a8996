//! What the tests share: where the built programs are, and how to run the command.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder that the command and the plugins were built into: the one above the test's own.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_path_buf()
}

/// A built file, which `cargo xtask test` builds before it runs any test.
pub fn built_file(name: &str) -> PathBuf {
    let path = built().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --lib --bins` first", path.display());
    path
}

/// The sample table.
pub fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/flights-january.arrow")
}

/// The command, with the plugins that were built beside it.
pub fn crossdock(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The same, to be started by the caller.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(built_file("crossdock"));
    command.args(arguments).env_remove("CROSSDOCK_PLUGIN_PATH");
    command
}

/// Compiles a plugin in C into `folder`, where `--plugins` finds it.
pub fn compile_plugin(source: &Path, folder: &Path, name: &str) -> PathBuf {
    let to = folder.join(format!("libcrossdock_{name}_plugin.so"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugin-api/include");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let out = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"])
        .arg(include)
        .arg(source)
        .arg("-o")
        .arg(&to)
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    to
}

/// Exit code 1, one line on stderr that contains every one of `expected`, nothing at `output`, no panic.
pub fn assert_refused(out: &Output, expected: &[&str], output: &Path) {
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{:?}: {stderr}", out.status);
    assert_eq!(stderr.trim_end().lines().count(), 1, "one line was expected: {stderr}");
    for part in expected {
        assert!(stderr.contains(part), "{stderr:?} does not contain {part:?}");
    }
    assert!(!stderr.contains("panicked at"), "{stderr}");
    assert_nothing_left(output);
}

/// No output file, whole or partial, under any name.
pub fn assert_nothing_left(output: &Path) {
    let folder = output.parent().unwrap();
    let name = output.file_name().unwrap().to_string_lossy().into_owned();
    let left: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|file| file.contains(&name))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
