//! Runs the command with a Rust plugin that panics in its callbacks. The command must report each
//! panic in one line, and leave no file.

use crossdock_tests::{assert_rejected, built_file, crossdock, sample};

/// A folder with a copy of the plugin whose file name hosts recognize.
fn plugins() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(built_file("libbad_citizen.so"), folder.path().join("libcrossdock_bad_citizen_plugin.so"))
        .unwrap();
    folder
}

#[test]
fn panic_of_an_importer_is_an_error_that_names_the_plugin() {
    let folder = plugins();
    let (input, output) = (folder.path().join("in"), folder.path().join("out.arrow"));
    std::fs::write(&input, "anything").unwrap();
    for format in ["panic-open", "panic-schema", "panic-next"] {
        let out = crossdock(&[
            "convert",
            input.to_str().unwrap(),
            output.to_str().unwrap(),
            "--from",
            format,
            "--plugins",
            folder.path().to_str().unwrap(),
        ]);
        assert_rejected(
            &out,
            &[concat!("bad-citizen ", env!("CARGO_PKG_VERSION")), format, "injected panic"],
            &output,
        );
    }
}

#[test]
fn panic_of_an_exporter_is_an_error_that_names_the_plugin() {
    let folder = plugins();
    for format in ["panic-begin", "panic-write", "panic-finish"] {
        let output = folder.path().join(format!("out.{format}"));
        let out = crossdock(&[
            "convert",
            sample().to_str().unwrap(),
            output.to_str().unwrap(),
            "--to",
            format,
            "--plugins",
            folder.path().to_str().unwrap(),
        ]);
        assert_rejected(
            &out,
            &[concat!("bad-citizen ", env!("CARGO_PKG_VERSION")), format, "injected panic"],
            &output,
        );
    }
}

#[test]
fn panic_in_a_release_callback_is_ignored() {
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
    assert!(read.exists(), "an empty stream is written as an empty file");
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
