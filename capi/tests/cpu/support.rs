//! What the tests share: compilers, the library where programs find it, programs and their output.
#![allow(dead_code)] // each test program uses its part

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The checkout's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A file in the folder that the library, the command and the plugins were built into: the one above the test's own.
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

/// Says that a test did not run, past the capture of the test harness, to be counted.
pub fn skipped(name: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {name}: {why}\n").as_bytes()).unwrap();
}

/// Whether a program can be started.
pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// The words of a variable like `CC="ccache gcc"`, or the usual program.
fn words(variable: &str, usual: &str) -> Vec<String> {
    let value = std::env::var(variable).unwrap_or_default();
    let words: Vec<_> = value.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { vec![usual.to_owned()] } else { words }
}

/// A compiler of C11, every warning an error, that finds both headers.
pub fn cc() -> Command {
    compiler("CC", "cc", "-std=c11")
}

/// A compiler of C++17 likewise; `None` where there is none.
pub fn cxx() -> Option<Command> {
    is_there(&words("CXX", "c++")[0]).then(|| compiler("CXX", "c++", "-std=c++17"))
}

fn compiler(variable: &str, usual: &str, standard: &str) -> Command {
    let words = words(variable, usual);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.args([standard, "-g", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    command.arg("-I").arg(root().join("capi/include")).arg("-I").arg(root().join("plugin-api/include"));
    command
}

/// Runs a command that must succeed; what it printed.
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

/// Of the ABI that the headers have.
pub fn soname() -> String {
    format!("libcrossdock.so.{}", crossdock_plugin_api::abi::ABI_MAJOR)
}

/// A folder `lib` in `folder` where programs that were linked find the library under its SONAME.
pub fn library_folder(folder: &Path) -> PathBuf {
    let lib = folder.join("lib");
    std::fs::create_dir_all(&lib).unwrap();
    let link = lib.join(soname());
    if !link.exists() {
        std::os::unix::fs::symlink(built_file("libcrossdock.so"), link).unwrap();
    }
    lib
}

/// A folder with the two plugins of the sample's way, and nothing else.
pub fn plugin_folder(folder: &Path) -> PathBuf {
    let plugins = folder.join("plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    for name in ["arrow_ipc", "arrow_c_device"] {
        let file = format!("libcrossdock_{name}_plugin.so");
        std::fs::copy(built_file(&file), plugins.join(&file)).unwrap();
        // Whatever the mask is that they were built under: a file that others may write is no plugin.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(plugins.join(&file), mode).unwrap();
    }
    plugins
}

/// A program under valgrind, where every error and every leak is a failure; `None`, and said so, where that cannot be.
pub fn under_valgrind(name: &str, program: &Path) -> Option<Command> {
    if !is_there("valgrind") {
        skipped(name, "no valgrind");
        return None;
    }
    // There two tests may become one comparison that also looks at bytes which do not matter, and valgrind minds.
    if !cfg!(debug_assertions) {
        skipped(name, "valgrind cannot tell what the optimiser made of comparisons: run it on a debug build");
        return None;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--num-callers=40"]);
    let forgiven = root().join("capi/tests/valgrind.supp");
    command.arg(format!("--suppressions={}", forgiven.display())).arg(program);
    Some(command)
}
