//! A Rust plugin that panics in every callback: the command survives each, says so in a line, and leaves nothing.

use crossdock_tests::{assert_refused, built_file, crossdock, sample};

/// A folder with the plugin under a name that hosts find.
fn plugins() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(built_file("libbad_citizen.so"), folder.path().join("libcrossdock_bad_citizen_plugin.so"))
        .unwrap();
    folder
}

#[test]
fn a_panic_on_the_way_in_is_an_error_that_names_the_plugin() {
    let folder = plugins();
    let (input, output) = (folder.path().join("in"), folder.path().join("out.arrow"));
    std::fs::write(&input, "anything").unwrap();
    for mood in ["panic-open", "panic-schema", "panic-next"] {
        let out = crossdock(&[
            "convert",
            input.to_str().unwrap(),
            output.to_str().unwrap(),
            "--from",
            mood,
            "--plugins",
            folder.path().to_str().unwrap(),
        ]);
        assert_refused(
            &out,
            &[concat!("bad-citizen ", env!("CARGO_PKG_VERSION")), mood, "as asked"],
            &output,
        );
    }
}

#[test]
fn a_panic_on_the_way_out_is_an_error_that_names_the_plugin() {
    let folder = plugins();
    for mood in ["panic-begin", "panic-write", "panic-finish"] {
        let output = folder.path().join(format!("out.{mood}"));
        let out = crossdock(&[
            "convert",
            sample().to_str().unwrap(),
            output.to_str().unwrap(),
            "--to",
            mood,
            "--plugins",
            folder.path().to_str().unwrap(),
        ]);
        assert_refused(
            &out,
            &[concat!("bad-citizen ", env!("CARGO_PKG_VERSION")), mood, "as asked"],
            &output,
        );
    }
}

#[test]
fn a_panic_in_a_release_ends_nothing() {
    let folder = plugins();
    let input = folder.path().join("in");
    std::fs::write(&input, "anything").unwrap();
    let plugins = folder.path().to_str().unwrap();
    let read = folder.path().join("read.arrow");
    let out = crossdock(&[
        "convert",
        input.to_str().unwrap(),
        read.to_str().unwrap(),
        "--from",
        "panic-stream-release",
        "--plugins",
        plugins,
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(read.exists(), "an empty stream became an empty file");
    let written = folder.path().join("written");
    let out = crossdock(&[
        "convert",
        sample().to_str().unwrap(),
        written.to_str().unwrap(),
        "--to",
        "panic-writer-release",
        "--plugins",
        plugins,
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
}
