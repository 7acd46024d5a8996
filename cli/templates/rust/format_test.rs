//! Tests the plugin in a host.

use std::path::PathBuf;

use crossdock::discovery::Search;
use crossdock::{Host, Result, Session, Table};

/// The library that Cargo built next to this test.
fn plugin() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .with_file_name("libcrossdock_@SNAKE@_plugin.so")
}

fn session() -> Session {
    let host = Host::builder()
        .search(Search::nowhere().with_path(plugin()))
        .build()
        .unwrap();
    host.session().open().unwrap()
}

fn read(session: &Session, name: &str, text: &str) -> Result<Table> {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    Table::read(session, file)
}

#[test]
fn reads_a_file_as_a_table() {
    let session = session();
    let table = read(&session, "three.@NAME@", "1\n-20\n300").unwrap();
    assert_eq!(table.rows(), 3);
    let shown = table.format(10).unwrap();
    assert!(
        shown.contains("number") && shown.contains("-20") && shown.contains("300"),
        "{shown}"
    );
    let many: String = (0..1_000_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        read(&session, "many.@NAME@", &many).unwrap().rows(),
        1_000_000
    );
    assert_eq!(read(&session, "none.@NAME@", "").unwrap().rows(), 0);
}

#[test]
fn error_for_invalid_text_names_its_line() {
    let line = read(&session(), "wrong.@NAME@", "1\n2\nthree\n")
        .err()
        .unwrap()
        .one_line();
    assert!(line.contains("line 3") && line.contains("three"), "{line}");
}
