//! Verifies the shipped plugins and the examples.

use std::path::Path;

use crossdock_tests::{
    CASE_TIMEOUT_S, built_file, csv_plugin, example_plugin, sample_tree, scaled_tree, vecs_plugin, xor_tree,
};

use crate::{bad_cases, has_cuda, passed, passed_on, verify};

/// Runs all cases on the CPU, on the untouchable device, and on `cuda:0`. If no driver is
/// installed, `cuda:0` is a device of the simulated driver.
#[track_caller]
fn assert_passes(plugin: &Path) {
    assert_passes_with(plugin, &[], &["memory.device"], &[]);
}

/// Runs all cases with additional arguments. The cases in `required` must not be skipped, and those
/// in `on_devices` must not be skipped on `cuda:0` either.
#[track_caller]
fn assert_passes_with(plugin: &Path, arguments: &[&str], on_devices: &[&str], required: &[&str]) {
    let has_cuda = has_cuda(&format!("{} on cuda:0", plugin.display()));
    for devices in [&[][..], &["--device", "untouchable"]] {
        let (out, report) = verify(plugin, &[&["--timeout", CASE_TIMEOUT_S], arguments, devices].concat());
        if has_cuda && devices.is_empty() {
            let (on_cuda, on_cpu) = (passed_on(&report, "cuda:0"), passed_on(&report, "cpu"));
            let missing: Vec<_> = on_cpu.iter().filter(|name| !on_cuda.contains(name)).collect();
            let ran = on_devices.iter().all(|name| on_cuda.contains(name));
            assert!(ran && missing.is_empty(), "on cuda:0: {on_cuda:?}, not on cuda:0: {missing:?}");
        }
        for case in required {
            assert!(passed(&report, case), "{case} did not run: {report}");
        }
        let bad = report["cases"].as_array().unwrap().iter();
        let bad: Vec<_> = bad.filter(|case| case["replay"].is_string()).map(ToString::to_string).collect();
        assert_eq!(bad_cases(&report), [], "{}", bad.join("\n"));
        assert_eq!(out.status.code(), Some(0));
    }
}

#[test]
fn arrow_c_device_plugin_passes_every_case() {
    assert_passes(&built_file("libcrossdock_arrow_c_device_plugin.so"));
}

#[test]
fn arrow_ipc_plugin_passes_every_case() {
    assert_passes(&built_file("libcrossdock_arrow_ipc_plugin.so"));
}

#[test]
fn dlpack_plugin_passes_every_case() {
    assert_passes(&built_file("libcrossdock_dlpack_plugin.so"));
}

#[test]
fn vortex_file_plugin_passes_every_case() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/sample.vortex");
    let run = ["hostile.samples", "hostile.bytes"];
    let file = file.to_str().unwrap();
    assert_passes_with(
        &built_file("libcrossdock_vortex_file_plugin.so"),
        &["--sample", file],
        &["hostile.samples"],
        &run,
    );
}

#[test]
fn tensors_plugin_passes_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[24,26]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    let tensors = [&length[..], header.as_bytes(), &[1; 26]].concat();
    let header = "{'descr': '>M8[s]', 'fortran_order': False, 'shape': (2, 2), }";
    let length = (header.len() as u16).to_le_bytes();
    let array = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[7; 32]].concat();
    let tensors = sample(folder.path(), "sample.safetensors", tensors);
    let array = sample(folder.path(), "sample.npy", array);
    let run = ["hostile.samples", "hostile.bytes", "importer.selection", "exporter.follows_plan"];
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/sample.npz");
    let samples = ["--sample", &tensors, "--sample", &array, "--sample", archive.to_str().unwrap()];
    assert_passes_with(&built_file("libcrossdock_tensors_plugin.so"), &samples, &["hostile.samples"], &run);
}

#[test]
fn arrow_text_plugin_passes_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let csv =
        sample(folder.path(), "sample.csv", "name,when,n\n\"a, b\",2024-02-29,1\n,,\nlast,1970-01-01,-5\n");
    let json = "{\"a\":1,\"l\":[{\"x\":\"t\"}],\"t\":\"2024-02-29T10:00:00Z\"}\n{\"a\":null,\"l\":[]}\n";
    let json = sample(folder.path(), "sample.ndjson", json);
    let run = ["hostile.samples", "hostile.bytes", "calls.cancelled_midway"];
    assert_passes_with(
        &built_file("libcrossdock_arrow_text_plugin.so"),
        &["--sample", &csv, "--sample", &json],
        &["hostile.samples"],
        &run,
    );
}

/// The cases that must run for plugins with encodings.
const DECODING: [&str; 2] = ["encoding.samples", "encoding.changed_samples"];

/// Writes a sample to a file and returns its path.
fn sample(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn encodings_plugin_passes_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let tree = sample(folder.path(), "sample.cdenc", sample_tree());
    let run = [&DECODING[..], &["calls.cancelled_decode", "hostile.samples", "hostile.bytes"]].concat();
    assert_passes_with(
        &built_file("libcrossdock_encodings_plugin.so"),
        &["--sample", &tree],
        &["memory.device"],
        &run,
    );
}

#[test]
fn c_example_passes_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name,when\n\"a, b\",2024-02-29\n,\nlast,1970-01-01\n";
    let text = sample(folder.path(), "sample.csv", text);
    let tree = sample(folder.path(), "sample.cdenc", scaled_tree());
    let run = [&DECODING[..], &["hostile.samples"]].concat();
    assert_passes_with(&csv_plugin(), &["--sample", &text, "--sample", &tree], &["memory.device"], &run);
}

#[test]
fn cpp_example_passes_every_case() {
    let Some(plugin) = vecs_plugin("cpp_example_passes_every_case") else { return };
    let folder = tempfile::tempdir().unwrap();
    let vectors = [2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 3, 4];
    let vectors = sample(folder.path(), "sample.bvecs", vectors);
    let run = ["hostile.samples", "hostile.bytes", "exporter.follows_plan", "importer.values"];
    assert_passes_with(&plugin, &["--sample", &vectors], &["hostile.samples"], &run);
}

#[test]
fn rust_example_passes_every_case() {
    let Some(plugin) = example_plugin("rust_example_passes_every_case") else { return };
    let folder = tempfile::tempdir().unwrap();
    let tree = sample(folder.path(), "sample.cdenc", xor_tree());
    let run = ["memory.failing", "calls.cancelled_decode", "concurrency.threads"];
    assert_passes_with(&plugin, &["--sample", &tree], &["memory.device"], &[&DECODING[..], &run].concat());
}
