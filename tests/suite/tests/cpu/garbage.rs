//! Runs the command with a C plugin that returns malformed data. The command must name the plugin
//! and the error, and leave no file.

use std::path::Path;

use crossdock_tests::{assert_rejected, compile_plugin, crossdock};

/// The format, and parts of the expected message.
const FORMATS: [(&str, &[&str]); 18] = [
    ("garbage-status", &["garbage 0.1.0", "-4711"]),
    ("garbage-message", &["garbage 0.1.0", "text"]),
    ("null-stream", &["released stream"]),
    ("no-functions", &["get_schema"]),
    ("deep-schema", &["64"]),
    ("wide-schema", &["9223372036854775807"]),
    ("cyclic-schema", &["64"]),
    ("not-utf8-format", &["UTF-8"]),
    ("null-format", &["format", "NULL"]),
    ("null-children", &["NULL"]),
    ("false-metadata", &["metadata"]),
    ("negative-length", &["word", "-2"]),
    ("wrong-buffers", &["word", "2 buffers", "expected 3"]),
    ("false-offsets", &["word", "1000000"]),
    ("cyclic-array", &["word"]),
    ("wide-array", &["9223372036854775807"]),
    ("wrong-device", &["99"]),
    ("false-sizes", &["word", "beyond the address space"]),
];

#[test]
fn malformed_results_of_a_plugin_are_rejected_with_a_one_line_error() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/garbage.c");
    compile_plugin(&source, folder.path(), "garbage");
    let (input, output) = (folder.path().join("in"), folder.path().join("out.arrow"));
    std::fs::write(&input, "anything").unwrap();
    let plugins = folder.path().to_str().unwrap();
    for (format, expected) in FORMATS {
        let (input, output_text) = (input.to_str().unwrap(), output.to_str().unwrap());
        let out = crossdock(&[
            "convert",
            input,
            output_text,
            "--from",
            format,
            "--plugins",
            plugins,
            "--validate",
            "full",
        ]);
        eprintln!("{format}: {}", String::from_utf8_lossy(&out.stderr).trim_end());
        assert_rejected(&out, expected, &output);
    }
}
