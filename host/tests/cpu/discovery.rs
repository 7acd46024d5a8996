//! Tests of the search for plugins and their precedence.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::common::{c_plugin, set_mode, temporary};
use crossdock::discovery::{Catalog, Origin, Search};
use crossdock::{Error, Host};

fn plugin(directory: &Path, file: &str, name: &str) -> std::path::PathBuf {
    std::fs::create_dir_all(directory).unwrap();
    c_plugin(directory, file, &[&format!("NAME=\"{name}\"")])
}

fn chosen(catalog: &Catalog) -> Vec<(Origin, String)> {
    catalog.chosen().map(|(candidate, metadata)| (candidate.origin, metadata.name.clone())).collect()
}

#[test]
fn explicit_files_precede_directories_environment_and_executable_folder() {
    let root = temporary();
    let at = |name: &str| root.path().join(name);
    let given = plugin(&at("files"), "x.so", "same");
    plugin(&at("dir"), "x.so", "same");
    plugin(&at("dir"), "y.so", "from-dir");
    plugin(&at("env"), "x.so", "from-dir");
    plugin(&at("env"), "y.so", "from-env");
    plugin(&at("exe"), "libcrossdock_x_plugin.so", "from-env");
    plugin(&at("exe"), "libcrossdock_y_plugin.so", "from-exe");
    let search =
        || Search::nowhere().with_path(at("dir")).environment(at("env")).executable(at("exe/program"));
    let catalog = search().with_path(&given).run();
    assert_eq!(
        chosen(&catalog),
        [
            (Origin::Explicit, "same".to_string()),
            (Origin::Directory, "from-dir".to_string()),
            (Origin::Environment, "from-env".to_string()),
            (Origin::BesideExecutable, "from-exe".to_string()),
        ]
    );
    let shadowed: Vec<_> = catalog.candidates.iter().filter_map(|c| c.metadata.as_ref().err()).collect();
    assert_eq!(shadowed.len(), 3);
    assert!(shadowed.iter().all(|refused| refused.reason.id() == "shadowed"));
    let message = shadowed[0].to_string();
    assert!(message.contains("'same'") && message.contains(&given.display().to_string()), "{message}");
}

#[test]
fn files_of_a_directory_are_ordered_by_name() {
    let root = temporary();
    plugin(root.path(), "b.so", "same");
    let first = plugin(root.path(), "a.so", "same");
    let catalog = Search::nowhere().with_path(root.path()).run();
    let (candidate, _) = catalog.chosen().next().unwrap();
    assert_eq!(candidate.label(), first.display().to_string());
}

#[test]
fn executable_folder_search_considers_only_crossdock_file_names() {
    let root = temporary();
    plugin(root.path(), "libother.so", "other");
    plugin(root.path(), "libcrossdock_mine_plugin.so", "mine");
    let catalog = Search::nowhere().executable(root.path().join("program")).run();
    assert_eq!(chosen(&catalog), [(Origin::BesideExecutable, "mine".to_string())]);
    assert_eq!(catalog.candidates.len(), 1);
}

#[test]
fn executable_folder_is_searched_only_on_request() {
    let beside = std::env::current_exe().unwrap().with_file_name("libcrossdock_beside_test_plugin.so");
    let directory = temporary();
    std::fs::rename(plugin(directory.path(), "x.so", "beside"), &beside)
        .or_else(|_| std::fs::copy(directory.path().join("x.so"), &beside).map(drop))
        .unwrap();
    let finds = |search: Search| chosen(&search.run()).iter().any(|(_, name)| name == "beside");
    let (by_default, on_request) = (finds(Search::standard()), finds(Search::standard().beside_executable()));
    std::fs::remove_file(&beside).unwrap();
    assert_eq!((by_default, on_request), (false, true));
}

#[test]
fn file_that_is_found_twice_is_one_candidate() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    std::os::unix::fs::symlink(&path, root.path().join("b.so")).unwrap();
    let catalog = Search::nowhere().with_path(&path).with_path(root.path()).environment(root.path()).run();
    assert_eq!(catalog.candidates.len(), 1);
}

#[test]
fn file_refused_at_one_path_is_used_at_another_path() {
    let root = temporary();
    let path = plugin(&root.path().join("installed"), "a.so", "a");
    let open = root.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::os::unix::fs::symlink(&path, open.join("a.so")).unwrap();
    set_mode(&open, 0o777);
    let catalog = Search::nowhere().with_path(&open).installed(root.path().join("installed")).run();
    let reasons = catalog.candidates.iter().map(|c| c.metadata.as_ref().err().map(|e| e.reason.id()));
    assert_eq!(reasons.collect::<Vec<_>>(), [Some("directory-mode"), None]);
    assert_eq!(chosen(&catalog), [(Origin::Installed, "a".to_string())]);
}

#[test]
fn file_name_need_not_be_utf8() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    std::fs::rename(&path, root.path().join(OsStr::from_bytes(b"\xff.so"))).unwrap();
    let catalog = Search::nowhere().with_path(root.path()).run();
    assert_eq!(chosen(&catalog), [(Origin::Directory, "a".to_string())]);
}

#[test]
fn missing_paths_of_the_environment_are_warnings() {
    let root = temporary();
    let file = plugin(&root.path().join("one"), "a.so", "a");
    plugin(&root.path().join("two"), "b.so", "b");
    let paths = [file, root.path().join("missing"), root.path().join("two")];
    let catalog = Search::nowhere().environment(std::env::join_paths(paths).unwrap()).run();
    let names: Vec<_> = chosen(&catalog).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(catalog.warnings.len(), 1);
    assert!(catalog.warnings[0].contains("missing"), "{:?}", catalog.warnings);
}

#[test]
fn only_refused_files_with_explicit_paths_are_errors() {
    let root = temporary();
    let text = root.path().join("text.so");
    std::fs::write(&text, "not a plugin").unwrap();
    let build = |search| Host::builder().search(search).build();
    let missing = build(Search::nowhere().with_path(root.path().join("none.so"))).err().unwrap();
    assert!(matches!(&missing, Error::Refused(refused) if refused.reason.id() == "missing"), "{missing}");
    let refused = build(Search::nowhere().with_path(&text)).err().unwrap();
    assert!(matches!(&refused, Error::Refused(refused) if refused.reason.id() == "not-elf"), "{refused}");
    let host = build(Search::nowhere().with_path(root.path())).unwrap();
    assert_eq!(host.plugins().count(), 0);
    assert_eq!(host.catalog().candidates.len(), 1);
}

#[test]
fn error_for_an_unknown_plugin_lists_the_known_plugins() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    let host = Host::builder().search(Search::nowhere().with_path(path)).build().unwrap();
    let error = host.load("b").unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("'b'") && error.to_string().contains("plugins: a"), "{error}");
}

#[test]
fn refusal_contains_error_message_of_the_plugins_create_function() {
    let root = temporary();
    for (define, message) in [("CREATE_FAILS", "no licence key was found"), ("CREATE_GARBAGE", "4711")] {
        let path = c_plugin(root.path(), &format!("{define}.so"), &[define]);
        let host = Host::builder().search(Search::nowhere().with_path(path)).build().unwrap();
        let error = host.session().open().unwrap().plugin("c-nothing").err().unwrap();
        assert!(matches!(&error, Error::Refused(refused) if refused.reason.id() == "create"));
        assert!(error.one_line().contains(message), "{}", error.one_line());
    }
}

#[test]
fn two_hosts_create_separate_instances_of_one_file() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    let host = || Host::builder().search(Search::nowhere().with_path(&path)).build().unwrap();
    let (one, two) = (host(), host());
    let (session_one, session_two) = (one.session().open().unwrap(), two.session().open().unwrap());
    let (a, b) = (session_one.plugin("a").unwrap(), session_two.plugin("a").unwrap());
    assert!(std::ptr::eq(one.load("a").unwrap().entry.unwrap(), two.load("a").unwrap().entry.unwrap()));
    drop((a, session_one, one));
    assert_eq!(b.name(), "a");
    drop((b, session_two));
    assert!(two.settle().is_empty());
}
