//! Helpers of the tests: compilers, paths of built files, and running programs.
#![allow(dead_code)] // each test program uses only some of the helpers

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Returns the path of a file in the folder to which cargo writes libraries and programs. The test
/// program is in a subfolder of this folder.
pub fn built_file(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --lib --bins` first", path.display());
    path
}

/// The sample table.
pub fn sample() -> PathBuf {
    root().join("examples/data/flights-january.arrow")
}

/// Reports a skipped test on standard error, which the test harness does not capture here.
pub fn skipped(name: &str, reason: &str) {
    std::io::stderr().write_all(format!("skipped: {name}: {reason}\n").as_bytes()).unwrap();
}

/// Whether a program is installed.
pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// The words of an environment variable like `CC="ccache gcc"`, or the default program.
fn words(variable: &str, default: &str) -> Vec<String> {
    let value = std::env::var(variable).unwrap_or_default();
    let words: Vec<_> = value.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { vec![default.to_owned()] } else { words }
}

/// A C11 compiler with all warnings as errors, and the paths of the headers.
pub fn cc() -> Command {
    compiler("CC", "cc", "-std=c11")
}

/// A C++17 compiler with all warnings as errors, and the paths of the headers. `None` if no C++
/// compiler is installed.
pub fn cxx() -> Option<Command> {
    cxx_with("-std=c++17")
}

/// Like [`cxx`], with another standard.
pub fn cxx_with(standard: &str) -> Option<Command> {
    is_installed(&words("CXX", "c++")[0]).then(|| compiler("CXX", "c++", standard))
}

fn compiler(variable: &str, default: &str, standard: &str) -> Command {
    let words = words(variable, default);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.args([standard, "-g", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    command.arg("-I").arg(root().join("capi/include")).arg("-I").arg(root().join("plugin-api/include"));
    command
}

/// Runs a command that must succeed. Returns its standard output.
pub fn run(command: &mut Command) -> String {
    let out = output(command);
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Returns the SONAME of the library, which contains the ABI major version of the headers.
pub fn soname() -> String {
    format!("libcrossdock.so.{}", crossdock_plugin_api::abi::ABI_MAJOR)
}

/// Creates a folder `lib` in `folder` with the library under its SONAME.
pub fn library_folder(folder: &Path) -> PathBuf {
    let lib = folder.join("lib");
    std::fs::create_dir_all(&lib).unwrap();
    let link = lib.join(soname());
    if !link.exists() {
        std::os::unix::fs::symlink(built_file("libcrossdock.so"), link).unwrap();
    }
    lib
}

/// Creates a folder with the two plugins that the tests use.
pub fn plugin_folder(folder: &Path) -> PathBuf {
    let plugins = folder.join("plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    for name in ["arrow_ipc", "arrow_c_device"] {
        let file = format!("libcrossdock_{name}_plugin.so");
        std::fs::copy(built_file(&file), plugins.join(&file)).unwrap();
        // The host refuses a plugin that other users may write to. Therefore the test sets the mode
        // and does not rely on the umask of the build.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(plugins.join(&file), mode).unwrap();
    }
    plugins
}

/// Returns a command that runs a program under valgrind and fails if there are errors or leaks. If
/// valgrind cannot be used, reports a skipped test and returns `None`.
pub fn under_valgrind(name: &str, program: &Path) -> Option<Command> {
    if !is_installed("valgrind") {
        skipped(name, "no valgrind");
        return None;
    }
    // valgrind reports comparisons of uninitialised bytes. Optimised code contains such comparisons
    // where the result does not matter.
    if !cfg!(debug_assertions) {
        skipped(name, "valgrind reports false errors for optimised comparisons: run it on a debug build");
        return None;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--num-callers=40"]);
    let suppressions = root().join("capi/tests/valgrind.supp");
    command.arg(format!("--suppressions={}", suppressions.display())).arg(program);
    Some(command)
}
