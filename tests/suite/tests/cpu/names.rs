//! Tests file names that are not UTF-8. Files must be opened by their exact names, and messages
//! must show the names with replacement characters.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Output;

use crossdock_tests::{built_file, command, sample};

/// A name with a byte that is not UTF-8, followed by `suffix`.
fn name(suffix: &str) -> OsString {
    OsString::from_vec([b"na\xffme", suffix.as_bytes()].concat())
}

fn at(folder: &Path, suffix: &str) -> PathBuf {
    folder.join(name(suffix))
}

/// A folder whose name is not UTF-8, in a temporary folder.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = at(outer.path(), "");
    std::fs::create_dir(&inner).unwrap();
    (outer, inner)
}

fn run(arguments: &[&OsStr]) -> Output {
    command(&[]).args(arguments).output().unwrap()
}

fn run_successfully(arguments: &[&OsStr]) -> String {
    let out = run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Copies a plugin to a folder. The copy has the file extension of plugins.
fn plugin(folder: &Path) -> PathBuf {
    let plugin = at(folder, ".so");
    // The copy keeps the file's mode.
    std::fs::copy(built_file("libcrossdock_arrow_ipc_plugin.so"), &plugin).unwrap();
    plugin
}

#[test]
fn reads_and_writes_files_with_names_that_are_not_utf8() {
    let (_outer, folder) = folder();
    let (input, output) = (at(&folder, "-in.arrow"), at(&folder, "-out.arrows"));
    std::fs::copy(sample(), &input).unwrap();
    let (convert, quiet) = (OsStr::new("convert"), OsStr::new("--quiet"));
    run_successfully(&[convert, input.as_os_str(), output.as_os_str(), quiet]);
    assert!(std::fs::read(&output).unwrap().starts_with(&[0xff; 4]), "the file extension selects the format");
    let plan = run_successfully(&[
        OsStr::new("plan"),
        output.as_os_str(),
        OsStr::new("--to"),
        OsStr::new("arrow-c-data"),
    ]);
    assert!(plan.contains("zero-copy"), "{plan}");
    assert!(run_successfully(&[OsStr::new("inspect"), input.as_os_str()]).contains("arrow-ipc-file"));
    let trace = at(&folder, ".json");
    run_successfully(&[
        convert,
        input.as_os_str(),
        output.as_os_str(),
        quiet,
        OsStr::new("--trace"),
        trace.as_os_str(),
    ]);
    assert!(trace.is_file());
}

#[test]
fn errors_show_names_with_replacement_characters() {
    let (_outer, folder) = folder();
    let missing = at(&folder, "-none.arrow");
    let below = at(&folder, "-none").join("out.arrow");
    let sample = sample();
    for (input, output) in [(missing.as_path(), Path::new("-")), (&sample, &below)] {
        let out = run(&[OsStr::new("convert"), input.as_os_str(), output.as_os_str()]);
        let message = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{message}");
        assert!(message.contains("na\u{fffd}me-none") && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn plugins_at_paths_that_are_not_utf8_can_be_loaded_locked_and_isolated() {
    let (_outer, folder) = folder();
    let plugin = plugin(&folder);
    let (plugins_option, lock) = (OsStr::new("--plugins"), at(&folder, ".lock"));
    for from in [&plugin, &folder] {
        let listed = run_successfully(&[
            OsStr::new("plugins"),
            OsStr::new("--explain"),
            plugins_option,
            from.as_os_str(),
        ]);
        assert!(listed.contains("na\u{fffd}me.so"), "{listed}");
    }
    run_successfully(&[
        OsStr::new("lock"),
        plugins_option,
        folder.as_os_str(),
        OsStr::new("--output"),
        lock.as_os_str(),
    ]);
    let locked = std::fs::read_to_string(&lock).unwrap();
    assert!(locked.contains("file = \"na\u{fffd}me.so\""), "{locked}");
    // The name of the policy file is not UTF-8. The policy refers to the lock file in its own
    // folder.
    let policy = at(&folder, ".toml");
    std::fs::rename(&lock, folder.join("crossdock.lock")).unwrap();
    std::fs::write(&policy, "lock = \"crossdock.lock\"\n").unwrap();
    let out = folder.join("out.arrows");
    let sample = sample();
    let arguments = [OsStr::new("convert"), sample.as_os_str(), out.as_os_str()];
    let more = [
        plugins_option,
        plugin.as_os_str(),
        OsStr::new("--policy"),
        policy.as_os_str(),
        OsStr::new("--quiet"),
    ];
    for isolated in [&[][..], &[OsStr::new("--isolate=arrow-ipc")]] {
        run_successfully(&[&arguments[..], &more, isolated].concat());
        assert!(std::fs::read(&out).unwrap().starts_with(&[0xff; 4]));
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn verify_accepts_samples_with_names_that_are_not_utf8() {
    let (_outer, folder) = folder();
    let (plugin, file) = (plugin(&folder), at(&folder, ".arrow"));
    std::fs::copy(sample(), &file).unwrap();
    let case = [OsStr::new("--case"), OsStr::new("hostile.samples"), OsStr::new("--json")];
    let arguments = [OsStr::new("verify"), plugin.as_os_str(), OsStr::new("--sample"), file.as_os_str()];
    let out = run(&[&arguments[..], &case].concat());
    let message = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{message}");
    assert!(message.contains("na\u{fffd}me.so"), "{message}");
}

#[test]
fn library_accepts_names_that_are_not_utf8() {
    use crossdock::discovery::Search;
    let (_outer, folder) = folder();
    let (plugin, file) = (plugin(&folder), at(&folder, ".arrow"));
    std::fs::copy(sample(), &file).unwrap();
    let host = crossdock::Host::builder().search(Search::nowhere().with_path(&plugin)).build().unwrap();
    let candidate = &host.catalog().candidates[0];
    assert_eq!(candidate.path().map(|path| path.as_os_str().as_bytes()), Some(plugin.as_os_str().as_bytes()));
    assert_eq!(candidate.inspect().unwrap().metadata.name, "arrow-ipc");
    let session = host.session().open().unwrap();
    let table = crossdock::Table::read(&session, &file).unwrap();
    let out = at(&folder, "-out.arrow");
    table.write(&out).unwrap();
    assert_eq!(crossdock::Table::read(&session, &out).unwrap().rows(), table.rows());
    let error = crossdock::Table::read(&session, at(&folder, "-none")).err().unwrap().one_line();
    assert!(error.contains("na\u{fffd}me-none"), "{error}");
}
