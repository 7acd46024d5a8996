//! What the tests of the host and of the command share: plugins in C, made on the spot, and one in Rust, linked in.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod mini;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crossdock::Policy;
use crossdock::load::{Load, PluginFile};
use crossdock::policy::PolicyError;

/// Compiles `common/plugin.c` with these definitions into `directory`.
pub fn c_plugin(directory: &Path, file: &str, definitions: &[&str]) -> PathBuf {
    c_plugin_with(directory, file, definitions, &[])
}

/// The same, linked with more.
pub fn c_plugin_with(directory: &Path, file: &str, definitions: &[&str], linked: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = here.join("../plugin-api/include").display().to_string();
    let source = here.join("../host/tests/common/plugin.c").display().to_string();
    let definitions: Vec<_> = definitions.iter().map(|definition| format!("-D{definition}")).collect();
    let mut args: Vec<&str> = vec!["-I", &include, &source];
    args.extend(definitions.iter().map(String::as_str));
    args.extend(linked);
    c_library(directory, file, &args)
}

/// Compiles a shared library in C into `directory`.
pub fn c_library(directory: &Path, file: &str, args: &[&str]) -> PathBuf {
    let out = directory.join(file);
    let result = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .arg(&out)
        .args(args)
        .output()
        .expect("a C compiler named cc");
    assert!(result.status.success(), "cc: {}", String::from_utf8_lossy(&result.stderr));
    set_mode(&out, 0o755);
    out
}

/// The policy that this text says, which is put into `directory` as `crossdock.toml`.
pub fn policy(directory: &Path, text: &str) -> Result<Arc<Policy>, PolicyError> {
    Policy::from_file(&policy_file(directory, text)).map(Arc::new)
}

pub fn policy_file(directory: &Path, text: &str) -> PathBuf {
    let file = directory.join("crossdock.toml");
    std::fs::write(&file, text).unwrap();
    set_mode(&file, 0o644);
    file
}

/// Why a plugin is not loaded: the reason's name and the whole sentence.
pub fn refusal_under(path: &Path, policy: &Arc<Policy>) -> (&'static str, String) {
    let refused = PluginFile::under(path, policy.clone()).load().expect_err("a refusal");
    (refused.reason.id(), refused.to_string())
}

/// What stands in the file that plugins with `-DRAN` leave lines in.
pub fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// Types of a library's segments.
pub const SEGMENT_LOAD: u32 = 1;
pub const SEGMENT_DYNAMIC: u32 = 2;

/// Where the program headers of the segments of this type are.
pub fn segments(library: &[u8], kind: u32) -> Vec<usize> {
    let headers = usize::from_le_bytes(library[32..40].try_into().unwrap());
    let count = usize::from(u16::from_le_bytes(library[56..58].try_into().unwrap()));
    let all = (0..count).map(|i| headers + i * 56);
    all.filter(|at| library[*at..at + 4] == kind.to_le_bytes()).collect()
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
