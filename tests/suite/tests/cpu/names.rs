//! Names of files that are not UTF-8: they are opened as they are, and messages show them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Output;

use crossdock_tests::{built_file, command, sample};

/// A name with a byte that is no UTF-8, and this ending.
fn name(ending: &str) -> OsString {
    OsString::from_vec([b"na\xffme", ending.as_bytes()].concat())
}

fn at(folder: &Path, ending: &str) -> PathBuf {
    folder.join(name(ending))
}

/// A folder whose name is such a one, in a temporary one.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = at(outer.path(), "");
    std::fs::create_dir(&inner).unwrap();
    (outer, inner)
}

fn run(arguments: &[&OsStr]) -> Output {
    command(&[]).args(arguments).output().unwrap()
}

fn done(arguments: &[&OsStr]) -> String {
    let out = run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// A plugin's file in a folder, under a name that a folder of plugins is searched for.
fn plugin(folder: &Path) -> PathBuf {
    let plugin = at(folder, ".so");
    // Its mode goes along.
    std::fs::copy(built_file("libcrossdock_arrow_ipc_plugin.so"), &plugin).unwrap();
    plugin
}

#[test]
fn files_are_read_and_written_whatever_their_names() {
    let (_outer, folder) = folder();
    let (input, output) = (at(&folder, "-in.arrow"), at(&folder, "-out.arrows"));
    std::fs::copy(sample(), &input).unwrap();
    let (convert, quiet) = (OsStr::new("convert"), OsStr::new("--quiet"));
    done(&[convert, input.as_os_str(), output.as_os_str(), quiet]);
    assert!(std::fs::read(&output).unwrap().starts_with(&[0xff; 4]), "the ending is looked at");
    let plan =
        done(&[OsStr::new("plan"), output.as_os_str(), OsStr::new("--to"), OsStr::new("arrow-c-data")]);
    assert!(plan.contains("zero-copy"), "{plan}");
    assert!(done(&[OsStr::new("inspect"), input.as_os_str()]).contains("arrow-ipc-file"));
    let trace = at(&folder, ".json");
    done(&[convert, input.as_os_str(), output.as_os_str(), quiet, OsStr::new("--trace"), trace.as_os_str()]);
    assert!(trace.is_file());
}

#[test]
fn what_cannot_be_read_or_written_is_shown_with_a_stand_in() {
    let (_outer, folder) = folder();
    let missing = at(&folder, "-none.arrow");
    let below = at(&folder, "-none").join("out.arrow");
    let sample = sample();
    for (input, output) in [(missing.as_path(), Path::new("-")), (&sample, &below)] {
        let out = run(&[OsStr::new("convert"), input.as_os_str(), output.as_os_str()]);
        let words = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{words}");
        assert!(words.contains("na\u{fffd}me-none") && words.lines().count() == 1, "{words}");
    }
}

#[test]
fn plugins_load_locks_lock_and_isolated_plugins_run_wherever_they_lie() {
    let (_outer, folder) = folder();
    let plugin = plugin(&folder);
    let (given, lock) = (OsStr::new("--plugins"), at(&folder, ".lock"));
    for from in [&plugin, &folder] {
        let listed = done(&[OsStr::new("plugins"), OsStr::new("--explain"), given, from.as_os_str()]);
        assert!(listed.contains("na\u{fffd}me.so"), "{listed}");
    }
    done(&[OsStr::new("lock"), given, folder.as_os_str(), OsStr::new("--output"), lock.as_os_str()]);
    let locked = std::fs::read_to_string(&lock).unwrap();
    assert!(locked.contains("file = \"na\u{fffd}me.so\""), "{locked}");
    // The policy names the lock beside it, and itself is of any name.
    let policy = at(&folder, ".toml");
    std::fs::rename(&lock, folder.join("crossdock.lock")).unwrap();
    std::fs::write(&policy, "lock = \"crossdock.lock\"\n").unwrap();
    let out = folder.join("out.arrows");
    let sample = sample();
    let arguments = [OsStr::new("convert"), sample.as_os_str(), out.as_os_str()];
    let more = [given, plugin.as_os_str(), OsStr::new("--policy"), policy.as_os_str(), OsStr::new("--quiet")];
    for isolated in [&[][..], &[OsStr::new("--isolate=arrow-ipc")]] {
        done(&[&arguments[..], &more, isolated].concat());
        assert!(std::fs::read(&out).unwrap().starts_with(&[0xff; 4]));
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn a_plugin_is_verified_with_samples_whatever_their_names() {
    let (_outer, folder) = folder();
    let (plugin, file) = (plugin(&folder), at(&folder, ".arrow"));
    std::fs::copy(sample(), &file).unwrap();
    let case = [OsStr::new("--case"), OsStr::new("hostile.samples"), OsStr::new("--json")];
    let arguments = [OsStr::new("verify"), plugin.as_os_str(), OsStr::new("--sample"), file.as_os_str()];
    let out = run(&[&arguments[..], &case].concat());
    let words = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{words}");
    assert!(words.contains("na\u{fffd}me.so"), "{words}");
}

#[test]
fn names_are_bytes_in_the_library_too() {
    use crossdock::discovery::Search;
    let (_outer, folder) = folder();
    let (plugin, file) = (plugin(&folder), at(&folder, ".arrow"));
    std::fs::copy(sample(), &file).unwrap();
    let host = crossdock::Host::builder().search(Search::nowhere().given(&plugin)).build().unwrap();
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
