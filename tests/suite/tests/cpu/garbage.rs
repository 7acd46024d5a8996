//! A plugin in C that answers garbage: the command says who and what, and nothing is left behind.

use std::path::Path;

use crossdock_tests::{assert_refused, compile_plugin, crossdock};

/// The format, and parts of what is said of it.
const MOODS: [(&str, &[&str]); 18] = [
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
    ("lying-metadata", &["metadata"]),
    ("negative-length", &["word", "-2"]),
    ("wrong-buffers", &["word", "2 buffers", "expected 3"]),
    ("lying-offsets", &["word", "1000000"]),
    ("cyclic-array", &["word"]),
    ("wide-array", &["9223372036854775807"]),
    ("wrong-device", &["99"]),
    ("lying-sizes", &["word", "beyond what can be addressed"]),
];

#[test]
fn whatever_a_plugin_answers_the_command_ends_with_one_line_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/garbage.c");
    compile_plugin(&source, folder.path(), "garbage");
    let (input, output) = (folder.path().join("in"), folder.path().join("out.arrow"));
    std::fs::write(&input, "anything").unwrap();
    let plugins = folder.path().to_str().unwrap();
    for (mood, expected) in MOODS {
        let (input, output_text) = (input.to_str().unwrap(), output.to_str().unwrap());
        let out = crossdock(&[
            "convert",
            input,
            output_text,
            "--from",
            mood,
            "--plugins",
            plugins,
            "--validate",
            "full",
        ]);
        eprintln!("{mood}: {}", String::from_utf8_lossy(&out.stderr).trim_end());
        assert_refused(&out, expected, &output);
    }
}
