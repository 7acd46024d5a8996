//! Code that the tests share: finds the built programs, and runs the command.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

/// The code of `docs/embedding.md`, which is compiled as a documentation test.
#[doc = include_str!("../../../docs/embedding.md")]
pub mod embedding {}
pub mod failing;
pub mod faults;
pub mod golden;
mod sample_trees;
pub mod stress;
pub mod tree;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub use sample_trees::{sample_tree, scaled_tree, xor_tree};

/// The seconds after which `crossdock verify` ends a case. Only a case that hangs takes so long,
/// also under AddressSanitizer on a busy machine.
pub const CASE_TIMEOUT_S: &str = "900";

/// The folder with the built command and plugins: the parent of the test program's folder.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_path_buf()
}

/// The path of a built file. `cargo xtask test` builds all files before it runs tests.
pub fn built_file(name: &str) -> PathBuf {
    let path = built().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --lib --bins` first", path.display());
    path
}

/// A folder with the simulated CUDA driver, for `LD_LIBRARY_PATH`. `None` if the driver was not
/// built.
pub fn simulated_driver() -> Option<PathBuf> {
    let driver = built().join("libcrossdock_sim_cuda_driver.so");
    if !driver.exists() {
        return None;
    }
    let folder = built().join("simulated-driver");
    std::fs::create_dir_all(&folder).unwrap();
    match std::os::unix::fs::symlink(driver, folder.join("libcuda.so.1")) {
        // Another test program may create the link at the same time.
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("no link: {error}"),
        _ => Some(folder),
    }
}

/// The sample table.
pub fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/flights-january.arrow")
}

/// Runs the command, which uses the plugins in its own folder.
pub fn crossdock(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The command, which uses the plugins in its own folder. The caller runs it.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(built_file("crossdock"));
    command.args(arguments).env_remove("CROSSDOCK_PLUGIN_PATH");
    command
}

/// Compiles a plugin in C into `folder`, for `--plugins`.
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

/// Asserts exit code 1, one line on stderr that contains all of `expected`, no file at `output`,
/// and no panic.
pub fn assert_rejected(out: &Output, expected: &[&str], output: &Path) {
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{:?}: {stderr}", out.status);
    assert_eq!(stderr.trim_end().lines().count(), 1, "expected one line: {stderr}");
    for part in expected {
        assert!(stderr.contains(part), "{stderr:?} does not contain {part:?}");
    }
    assert!(!stderr.contains("panicked at"), "{stderr}");
    assert_nothing_left(output);
}

/// Asserts that the folder of `output` has no file whose name contains the name of `output`,
/// because unfinished output files have such names.
pub fn assert_nothing_left(output: &Path) {
    let folder = output.parent().unwrap();
    let name = output.file_name().unwrap().to_string_lossy().into_owned();
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|file| file.contains(&name))
        .collect();
    assert!(files.is_empty(), "files were not removed: {files:?}");
}

/// The plugin `csv` of `examples/c-plugin`, built with `make`. The library is in a separate folder,
/// so that only tests that name the folder load it.
pub fn csv_plugin() -> PathBuf {
    csv_plugin_with("csv-plugin", "")
}

/// The plugin `csv`, built with additional compiler flags in the given folder. It is built again
/// only if a source is newer than the library.
pub fn csv_plugin_with(folder: &str, flags: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c-plugin");
    let folder = built().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    // Other test programs may build the plugin at the same time.
    let lock = std::fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    // With a sanitizer, the program that loads the library provides the sanitizer's symbols.
    let sanitizer = std::env::var("CROSSDOCK_TEST_C_FLAGS").unwrap_or_default();
    let out_folder = folder.display();
    let mut make = Command::new("make");
    make.arg("--silent").arg("--directory").arg(&source).arg(format!("OUT={out_folder}"));
    make.arg(format!("CFLAGS=-O2 -g {sanitizer} {flags}")).arg("LDFLAGS=-fno-sanitize=all");
    match make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        // If make is not installed, the C compiler builds the plugin directly.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let script = format!(
                "cc -std=c11 -D_POSIX_C_SOURCE=200809L -fPIC -fvisibility=hidden -O2 {flags} -I ../../plugin-api/include \
                 -shared -o {out_folder}/libcrossdock_csv_plugin.so *.c"
            );
            let out = Command::new("sh").args(["-c", &script]).current_dir(&source).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        }
        Err(error) => panic!("make: {error}"),
    }
    folder.join("libcrossdock_csv_plugin.so")
}

/// The plugin `vecs` of `examples/cpp-plugin`, built with `make` in a separate folder. `None` if no
/// C++ compiler is installed, which is reported as a skip of `test`.
pub fn vecs_plugin(test: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let plugin = BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cpp-plugin");
        let folder = built().join("vecs-plugin");
        std::fs::create_dir_all(&folder).unwrap();
        // Other test programs may build the plugin at the same time.
        let lock = std::fs::File::create(folder.join("lock")).unwrap();
        lock.lock().unwrap();
        let has_compiler = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !has_compiler("c++") || !has_compiler("make") {
            return None;
        }
        let mut make = Command::new("make");
        make.arg("--silent").arg("--directory").arg(&source).arg(format!("OUT={}", folder.display()));
        let out = make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(folder.join("libcrossdock_vecs_plugin.so"))
    });
    if plugin.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no C++ compiler or no make");
    }
    plugin.clone()
}

/// The plugin `example` of `examples/rust-plugin`, built as its README says. On a machine without
/// Cargo, returns the plugin that is stored beside the tests. The library is in a separate folder,
/// so that only tests that name the folder load it. If the plugin cannot be built, reports that
/// `test` is skipped.
pub fn example_plugin(test: &str) -> Option<PathBuf> {
    const FILE: &str = "libcrossdock_example_plugin.so";
    let stored = built().join("example-plugin").join(FILE);
    if stored.exists() {
        return Some(stored);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target/examples");
    let mut build = cargo();
    build.args(["build", "--quiet", "--offline", "--locked"]).current_dir(root.join("examples/rust-plugin"));
    match build.arg("--target-dir").arg(&target).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let _ =
                writeln!(std::io::stderr(), "skipped: {test}: no Cargo to build examples/rust-plugin with");
            return None;
        }
        Err(error) => panic!("cargo: {error}"),
    }
    Some(target.join("debug").join(FILE))
}

/// Returns a command that runs Cargo as if a user had started it: without the environment variables
/// that the outer Cargo, which runs this test, has set.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    let is_of_cargo = |name: &str| name.starts_with("CARGO_") && name != "CARGO_HOME";
    for (name, _) in std::env::vars().filter(|(name, _)| is_of_cargo(name)) {
        command.env_remove(name);
    }
    command.env_remove("RUSTFLAGS").env_remove("RUSTUP_TOOLCHAIN").env_remove("LD_LIBRARY_PATH");
    command
}
