//! Where plugins are looked for, and who goes before whom.

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
fn given_files_go_before_given_directories_before_the_environment_before_the_executable() {
    let root = temporary();
    let at = |name: &str| root.path().join(name);
    let given = plugin(&at("files"), "x.so", "same");
    plugin(&at("dir"), "x.so", "same");
    plugin(&at("dir"), "y.so", "from-dir");
    plugin(&at("env"), "x.so", "from-dir");
    plugin(&at("env"), "y.so", "from-env");
    plugin(&at("exe"), "libcrossdock_x_plugin.so", "from-env");
    plugin(&at("exe"), "libcrossdock_y_plugin.so", "from-exe");
    let search = || Search::nowhere().given(at("dir")).environment(at("env")).executable(at("exe/program"));
    let catalog = search().given(&given).run();
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
    let words = shadowed[0].to_string();
    assert!(words.contains("'same'") && words.contains(&given.display().to_string()), "{words}");
}

#[test]
fn within_a_directory_names_decide() {
    let root = temporary();
    plugin(root.path(), "b.so", "same");
    let first = plugin(root.path(), "a.so", "same");
    let catalog = Search::nowhere().given(root.path()).run();
    let (candidate, _) = catalog.chosen().next().unwrap();
    assert_eq!(candidate.who(), first.display().to_string());
}

#[test]
fn beside_the_executable_only_our_own_file_names_count() {
    let root = temporary();
    plugin(root.path(), "libother.so", "other");
    plugin(root.path(), "libcrossdock_mine_plugin.so", "mine");
    let catalog = Search::nowhere().executable(root.path().join("program")).run();
    assert_eq!(chosen(&catalog), [(Origin::BesideExecutable, "mine".to_string())]);
    assert_eq!(catalog.candidates.len(), 1);
}

/// What lies beside a program is no plugin of it unless the program says so.
#[test]
fn the_executable_s_directory_is_looked_at_by_those_who_ask() {
    let beside = std::env::current_exe().unwrap().with_file_name("libcrossdock_beside_test_plugin.so");
    let made = temporary();
    std::fs::rename(plugin(made.path(), "x.so", "beside"), &beside)
        .or_else(|_| std::fs::copy(made.path().join("x.so"), &beside).map(drop))
        .unwrap();
    let found = |search: Search| chosen(&search.run()).iter().any(|(_, name)| name == "beside");
    let (usual, asked) = (found(Search::usual()), found(Search::usual().beside_executable()));
    std::fs::remove_file(&beside).unwrap();
    assert_eq!((usual, asked), (false, true));
}

#[test]
fn a_file_that_is_found_twice_is_one_candidate() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    std::os::unix::fs::symlink(&path, root.path().join("b.so")).unwrap();
    let catalog = Search::nowhere().given(&path).given(root.path()).environment(root.path()).run();
    assert_eq!(catalog.candidates.len(), 1);
}

#[test]
fn a_file_that_is_refused_for_the_way_there_is_used_where_it_is_found_by_another() {
    let root = temporary();
    let path = plugin(&root.path().join("installed"), "a.so", "a");
    let open = root.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::os::unix::fs::symlink(&path, open.join("a.so")).unwrap();
    set_mode(&open, 0o777);
    let catalog = Search::nowhere().given(&open).installed(root.path().join("installed")).run();
    let reasons = catalog.candidates.iter().map(|c| c.metadata.as_ref().err().map(|e| e.reason.id()));
    assert_eq!(reasons.collect::<Vec<_>>(), [Some("directory-mode"), None]);
    assert_eq!(chosen(&catalog), [(Origin::Installed, "a".to_string())]);
}

#[test]
fn a_file_whose_name_is_no_text_is_a_candidate_too() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    std::fs::rename(&path, root.path().join(OsStr::from_bytes(b"\xff.so"))).unwrap();
    let catalog = Search::nowhere().given(root.path()).run();
    assert_eq!(chosen(&catalog), [(Origin::Directory, "a".to_string())]);
}

#[test]
fn the_environment_names_files_and_directories_and_missing_ones_are_only_noted() {
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
fn a_given_file_that_is_missing_or_refused_stops_the_host_and_others_do_not() {
    let root = temporary();
    let text = root.path().join("text.so");
    std::fs::write(&text, "not a plugin").unwrap();
    let build = |search| Host::builder().search(search).build();
    let missing = build(Search::nowhere().given(root.path().join("none.so"))).err().unwrap();
    assert!(matches!(&missing, Error::Refused(refused) if refused.reason.id() == "missing"), "{missing}");
    let refused = build(Search::nowhere().given(&text)).err().unwrap();
    assert!(matches!(&refused, Error::Refused(refused) if refused.reason.id() == "not-elf"), "{refused}");
    let host = build(Search::nowhere().given(root.path())).unwrap();
    assert_eq!(host.plugins().count(), 0);
    assert_eq!(host.catalog().candidates.len(), 1);
}

#[test]
fn asking_for_an_unknown_plugin_lists_the_known_ones() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    let host = Host::builder().search(Search::nowhere().given(path)).build().unwrap();
    let error = host.load("b").unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("'b'") && error.to_string().contains("plugins: a"), "{error}");
}

#[test]
fn a_plugin_that_cannot_make_an_instance_is_refused_with_its_own_words() {
    let root = temporary();
    for (define, words) in [("CREATE_FAILS", "no licence key was found"), ("CREATE_GARBAGE", "4711")] {
        let path = c_plugin(root.path(), &format!("{define}.so"), &[define]);
        let host = Host::builder().search(Search::nowhere().given(path)).build().unwrap();
        let error = host.session().open().unwrap().plugin("c-nothing").err().unwrap();
        assert!(matches!(&error, Error::Refused(refused) if refused.reason.id() == "create"));
        assert!(error.one_line().contains(words), "{}", error.one_line());
    }
}

#[test]
fn two_hosts_make_instances_of_their_own_of_one_file() {
    let root = temporary();
    let path = plugin(root.path(), "a.so", "a");
    let host = || Host::builder().search(Search::nowhere().given(&path)).build().unwrap();
    let (one, two) = (host(), host());
    let (session_one, session_two) = (one.session().open().unwrap(), two.session().open().unwrap());
    let (a, b) = (session_one.plugin("a").unwrap(), session_two.plugin("a").unwrap());
    assert!(std::ptr::eq(one.load("a").unwrap().entry.unwrap(), two.load("a").unwrap().entry.unwrap()));
    drop((a, session_one, one));
    assert_eq!(b.name(), "a");
    drop((b, session_two));
    assert!(two.settle().is_empty());
}
