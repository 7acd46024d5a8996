//! Plugins for the tests of the host and of the command: in C, compiled by the tests, and in Rust,
//! linked in.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod encoding;
pub mod mini;
pub mod parts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crossdock::Policy;
use crossdock::load::{Load, PluginFile};
use crossdock::policy::PolicyError;

/// Compiles `common/plugin.c` with these definitions to `directory`/`file`.
pub fn c_plugin(directory: &Path, file: &str, definitions: &[&str]) -> PathBuf {
    c_plugin_with(directory, file, definitions, &[])
}

/// Like [`c_plugin`], with further linker arguments.
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

/// Compiles a shared library in C to `directory`/`file`.
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

/// Writes the policy `text` to `crossdock.toml` in `directory`, and reads it.
pub fn policy(directory: &Path, text: &str) -> Result<Arc<Policy>, PolicyError> {
    Policy::from_file(&policy_file(directory, text)).map(Arc::new)
}

pub fn policy_file(directory: &Path, text: &str) -> PathBuf {
    let file = directory.join("crossdock.toml");
    std::fs::write(&file, text).unwrap();
    set_mode(&file, 0o644);
    file
}

/// The id and the message of a plugin's refusal.
pub fn refusal_under(path: &Path, policy: &Arc<Policy>) -> (&'static str, String) {
    let refused = PluginFile::with_policy(path, policy.clone()).load().expect_err("a refusal");
    (refused.reason.id(), refused.to_string())
}

/// The lines of a file to which plugins that are compiled with `-DRAN` append their names.
pub fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// Types of ELF segments.
pub const SEGMENT_LOAD: u32 = 1;
pub const SEGMENT_DYNAMIC: u32 = 2;

/// The offsets of the program headers of this type.
pub fn segments(library: &[u8], kind: u32) -> Vec<usize> {
    let headers = usize::from_le_bytes(library[32..40].try_into().unwrap());
    let count = usize::from(u16::from_le_bytes(library[56..58].try_into().unwrap()));
    let all = (0..count).map(|i| headers + i * 56);
    all.filter(|at| library[*at..at + 4] == kind.to_le_bytes()).collect()
}

/// Sets the mode, independently of the umask.
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The names of a directory's files, including hidden ones.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
