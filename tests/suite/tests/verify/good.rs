//! Plugins of ours, and of those who read our examples.

use std::path::Path;

use crossdock_tests::{built_file, csv_plugin, example_plugin};

use crate::{bad_cases, verify};

/// On the CPU, and on `cuda:0` where there is a driver.
#[track_caller]
fn assert_keeps_every_rule(plugin: &Path) {
    let (out, report) = verify(plugin, &["--timeout", "120"]);
    let bad = report["cases"].as_array().unwrap().iter();
    let bad: Vec<_> = bad.filter(|case| case["replay"].is_string()).map(ToString::to_string).collect();
    assert_eq!(bad_cases(&report), [], "{}", bad.join("\n"));
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn arrow_c_device_keeps_every_rule() {
    assert_keeps_every_rule(&built_file("libcrossdock_arrow_c_device_plugin.so"));
}

#[test]
fn arrow_ipc_keeps_every_rule() {
    assert_keeps_every_rule(&built_file("libcrossdock_arrow_ipc_plugin.so"));
}

#[test]
fn dlpack_keeps_every_rule() {
    assert_keeps_every_rule(&built_file("libcrossdock_dlpack_plugin.so"));
}

#[test]
fn encodings_keeps_every_rule() {
    assert_keeps_every_rule(&built_file("libcrossdock_encodings_plugin.so"));
}

#[test]
fn the_example_in_c_keeps_every_rule() {
    assert_keeps_every_rule(&csv_plugin());
}

#[test]
fn the_example_in_rust_keeps_every_rule() {
    if let Some(plugin) = example_plugin("the_example_in_rust_keeps_every_rule") {
        assert_keeps_every_rule(&plugin);
    }
}
