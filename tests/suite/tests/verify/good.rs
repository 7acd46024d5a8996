//! Plugins of ours, and of those who read our examples.

use std::path::Path;

use crossdock_tests::{built_file, csv_plugin, example_plugin, sample_tree, scaled_tree, xor_tree};

use crate::{bad_cases, has_cuda, passed, passed_on, verify};

/// On the CPU and on `cuda:0`, whose driver is the simulated one where the machine has none.
#[track_caller]
fn assert_keeps_every_rule(plugin: &Path) {
    assert_keeps_with(plugin, &[], &[]);
}

/// The same with more arguments; these cases are not skipped. And on the device whose addresses the host must not touch.
#[track_caller]
fn assert_keeps_with(plugin: &Path, arguments: &[&str], run: &[&str]) {
    let has_cuda = has_cuda(&format!("{} on cuda:0", plugin.display()));
    for devices in [&[][..], &["--device", "untouchable"]] {
        let (out, report) = verify(plugin, &[&["--timeout", "120"], arguments, devices].concat());
        if has_cuda && devices.is_empty() {
            let (on_cuda, on_cpu) = (passed_on(&report, "cuda:0"), passed_on(&report, "cpu"));
            let missing: Vec<_> = on_cpu.iter().filter(|name| !on_cuda.contains(name)).collect();
            assert!(on_cuda.contains(&"memory.device") && missing.is_empty(), "not on cuda:0: {missing:?}");
        }
        for case in run {
            assert!(passed(&report, case), "{case} did not run: {report}");
        }
        let bad = report["cases"].as_array().unwrap().iter();
        let bad: Vec<_> = bad.filter(|case| case["replay"].is_string()).map(ToString::to_string).collect();
        assert_eq!(bad_cases(&report), [], "{}", bad.join("\n"));
        assert_eq!(out.status.code(), Some(0));
    }
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

/// What is run of who decodes, with a sample.
const DECODING: [&str; 2] = ["encoding.samples", "encoding.changed_samples"];

/// A file of a sample.
fn sample(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn encodings_keeps_every_rule() {
    let folder = tempfile::tempdir().unwrap();
    let tree = sample(folder.path(), "sample.cdenc", sample_tree());
    let run = [&DECODING[..], &["calls.cancelled_decode", "hostile.samples", "hostile.bytes"]].concat();
    assert_keeps_with(&built_file("libcrossdock_encodings_plugin.so"), &["--sample", &tree], &run);
}

#[test]
fn the_example_in_c_keeps_every_rule() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name,when\n\"a, b\",2024-02-29\n,\nlast,1970-01-01\n";
    let text = sample(folder.path(), "sample.csv", text);
    let tree = sample(folder.path(), "sample.cdenc", scaled_tree());
    let run = [&DECODING[..], &["hostile.samples"]].concat();
    assert_keeps_with(&csv_plugin(), &["--sample", &text, "--sample", &tree], &run);
}

#[test]
fn the_example_in_rust_keeps_every_rule() {
    let Some(plugin) = example_plugin("the_example_in_rust_keeps_every_rule") else { return };
    let folder = tempfile::tempdir().unwrap();
    let tree = sample(folder.path(), "sample.cdenc", xor_tree());
    // What its kernel decodes, the host that watches has it decode.
    let run = ["memory.failing", "calls.cancelled_decode", "concurrency.threads"];
    assert_keeps_with(&plugin, &["--sample", &tree], &[&DECODING[..], &run].concat());
}
