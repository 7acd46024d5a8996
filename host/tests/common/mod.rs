//! What the host's tests share: plugins in C, made on the spot, and one in Rust, linked in.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod alone;
pub mod mini;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `common/plugin.c` with these definitions into `directory`.
pub fn c_plugin(directory: &Path, file: &str, definitions: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = directory.join(file);
    let result = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .arg(&out)
        .args(definitions.iter().map(|definition| format!("-D{definition}")))
        .arg("-I")
        .arg(here.join("../plugin-api/include"))
        .arg(here.join("tests/common/plugin.c"))
        .output()
        .expect("a C compiler named cc");
    assert!(result.status.success(), "cc: {}", String::from_utf8_lossy(&result.stderr));
    set_mode(&out, 0o755);
    out
}

/// Whatever the umask of the one who runs the tests.
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The names of a directory's files, hidden ones included.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
