//! Runs `crossdock convert --device cuda` on the simulated driver and makes driver calls fail, or
//! runs it without a driver. If the conversion succeeds despite the failed call, its output must be
//! right. Otherwise the command must exit with status 1, print one line with the driver's error,
//! and leave no file. The first, second and last call of each function fail, one per run. With
//! `CROSSDOCK_FAULTS=all`, every call fails once alone, and all calls of a function fail together.
//! A sample (`CROSSDOCK_TEST_SAMPLE`) tests some of the functions.
//!
//! These tests are a separate program because they take long and do not depend on the simulated
//! machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Output;

use crossdock_test_support::replay;
use crossdock_tests::{assert_nothing_left, assert_rejected, command, faults, sample, sample_tree};

/// An error code that the driver's header defines, and one that it does not define.
const CODES: [(i32, &str); 2] = [(2, "OUT_OF_MEMORY"), (4242, "4242")];
/// Functions that release objects or memory, and functions for the waits and contexts that a
/// release needs. If one of them fails, memory leaks, but the conversion succeeds.
const RELEASING: [&str; 12] = [
    "cuMemFreeHost",
    "cuMemFreeAsync",
    "cuMemPoolDestroy",
    "cuEventDestroy_v2",
    "cuStreamDestroy_v2",
    "cuModuleUnload",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cuMemRelease",
    "cuCtxSynchronize",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
];
/// Columns that tensors can represent.
const COLUMNS: &str = "year,dep_time,distance,cancelled,speed_mph";

/// A conversion on the device.
struct Conversion<'a> {
    from: &'a Path,
    options: &'a [&'a str],
}

impl Conversion<'_> {
    fn run(&self, to: &Path, environment: &[(&str, &str)]) -> Output {
        let (from, to) = (self.from.to_str().unwrap(), to.to_str().unwrap());
        let arguments = ["convert", from, to, "--device", "cuda", "--quiet"];
        let mut command = command(&[&arguments, self.options].concat());
        command.envs(environment.iter().copied()).output().unwrap()
    }

    /// The number of calls of each driver function; empty if the driver is not simulated.
    fn calls(&self, to: &Path) -> BTreeMap<String, u64> {
        let out = self.run(to, &[("CROSSDOCK_SIM_CUDA_TRACE", "1")]);
        let mut calls = BTreeMap::new();
        for line in String::from_utf8_lossy(&out.stderr).lines() {
            let call = line.strip_prefix("crossdock-sim-cuda: ").and_then(|line| line.split_once(" = "));
            if let Some((name, _)) = call {
                *calls.entry(name.to_owned()).or_default() += 1;
            }
        }
        assert!(calls.is_empty() || out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        calls
    }
}

fn skip(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// Tests each driver function that the conversion calls: makes some of its calls fail, once with
/// each code in `codes`. Skips functions for which `is_excluded` returns true.
fn fail_calls(
    test: &str,
    conversion: &Conversion<'_>,
    codes: &[(i32, &str)],
    is_excluded: impl Fn(&str) -> bool,
) {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    let (expected, to) = (folder.path().join("expected.arrow"), folder.path().join("out.arrow"));
    let mut calls = conversion.calls(&expected);
    if calls.is_empty() {
        return skip(test, "only the simulated driver injects failures");
    }
    assert!(calls.len() > 25, "{calls:?}");
    calls.retain(|name, _| !is_excluded(name));
    assert!(!calls.is_empty(), "no function can fail");
    let expected = std::fs::read(&expected).unwrap();
    let part = faults::part(test, calls.len(), 4);
    let calls: Vec<_> =
        calls.into_iter().enumerate().filter(|(i, _)| part.contains(i)).map(|(_, call)| call).collect();
    for ((name, last), (code, message)) in
        calls.iter().flat_map(|call| codes.iter().map(move |code| (call, *code)))
    {
        // The code affects only the message, so one failure with the first code is enough.
        let mut nths = if code == 2 { [1].into() } else { faults::chosen(*last, 2, 0) };
        // The number 0 makes every call fail.
        nths.extend(faults::all().then_some(0));
        for nth in nths {
            let may_leak = nth == 0 || RELEASING.contains(&name.as_str());
            let leaks = if may_leak { "ignore" } else { "" };
            let fail = format!("{name}:{code}:{nth}");
            let environment =
                [("CROSSDOCK_SIM_CUDA_FAIL", fail.as_str()), ("CROSSDOCK_SIM_CUDA_LEAKS", leaks)];
            let out = conversion.run(&to, &environment);
            let stderr = String::from_utf8_lossy(&out.stderr);
            if out.status.success() {
                // If the driver never reports that the use of a block has ended, the block leaks
                // and the command prints a warning.
                let is_leak_warning = |line: &str| may_leak && line.starts_with("warning: memory leak: ");
                assert!(stderr.lines().all(is_leak_warning), "{fail}: {stderr}");
                assert!(std::fs::read(&to).unwrap() == expected, "{fail}: the output differs");
                std::fs::remove_file(&to).unwrap();
                continue;
            }
            // Messages name functions without the version suffix of their symbols.
            let function = name.trim_end_matches("_v2");
            let expected_part = if stderr.contains(function) { function } else { "the CUDA driver returned" };
            assert_eq!(out.status.code(), Some(1), "{fail}: {:?}: {stderr}", out.status);
            // If the driver cannot be initialized, the message has advice instead of the code's
            // name.
            let has_code =
                stderr.contains(message) || (code == 2 && stderr.contains(": out of memory; close"));
            assert!(has_code, "{fail}: {stderr}");
            assert_rejected(&out, &[expected_part], &to);
        }
    }
}

#[test]
fn failed_driver_calls_are_harmless_or_reported_in_one_line() {
    let conversion = Conversion { from: &sample(), options: &["--via", "arrow-c-device"] };
    fail_calls("failed_driver_calls_are_harmless_or_reported_in_one_line", &conversion, &CODES, |_| false);
}

#[test]
fn failed_driver_calls_with_tensors_and_compression_are_harmless_or_reported() {
    let options = ["--via", "dlpack", "--nulls", "mask", "--columns", COLUMNS, "--compression", "lz4"];
    let conversion = Conversion { from: &sample(), options: &options };
    fail_calls(
        "failed_driver_calls_with_tensors_and_compression_are_harmless_or_reported",
        &conversion,
        &CODES,
        |_| false,
    );
}

#[test]
fn failed_driver_calls_with_legacy_tensors_are_harmless_or_reported() {
    let options = ["--via", "dlpack-legacy", "--nulls", "mask", "--columns", COLUMNS];
    let conversion = Conversion { from: &sample(), options: &options };
    let test = "failed_driver_calls_with_legacy_tensors_are_harmless_or_reported";
    // One code is enough, because other tests check the messages of both codes.
    fail_calls(test, &conversion, &CODES[1..], |_| false);
}

#[test]
fn failed_driver_calls_while_decoding_are_harmless_or_reported() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("sample.cdenc");
    std::fs::write(&tree, sample_tree()).unwrap();
    let conversion = Conversion { from: &tree, options: &[] };
    fail_calls(
        "failed_driver_calls_while_decoding_are_harmless_or_reported",
        &conversion,
        &CODES[1..],
        |_| false,
    );
}

#[test]
fn failed_driver_calls_for_shared_memory_are_harmless_or_reported() {
    const TEST: &str = "failed_driver_calls_for_shared_memory_are_harmless_or_reported";
    let folder = tempfile::tempdir().unwrap();
    let conversion = Conversion { from: &sample(), options: &["--isolate=arrow-ipc"] };
    let out = conversion.run(&folder.path().join("out.arrow"), &[]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    if stderr.contains("this system cannot") {
        return skip(TEST, &stderr);
    }
    // Excludes the functions that every conversion calls, because other tests cover them. One of
    // these functions is not excluded, because this conversion also calls it for shared memory.
    let plain = Conversion { from: conversion.from, options: &[] };
    let mut common_calls = plain.calls(&folder.path().join("here.arrow"));
    common_calls.remove("cuPointerGetAttributes");
    fail_calls(TEST, &conversion, &CODES, |name| common_calls.contains_key(name));
}

/// After the first failure of a broken device, every call fails.
#[test]
fn conversion_on_a_broken_device_returns_the_driver_error() {
    const TEST: &str = "conversion_on_a_broken_device_returns_the_driver_error";
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out.arrow");
    let conversion = Conversion { from: &sample(), options: &[] };
    if conversion.calls(&folder.path().join("expected.arrow")).is_empty() {
        return skip(TEST, "only the simulated driver injects failures");
    }
    let names =
        ["cuMemcpyAsync", "cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuMemAllocFromPoolAsync"];
    for name in faults::part(TEST, names.len(), 4).into_iter().map(|i| names[i]) {
        // 719: a kernel failed, which breaks the context.
        let fail = format!("{name}:719:0");
        let environment =
            [("CROSSDOCK_SIM_CUDA_FAIL", fail.as_str()), ("CROSSDOCK_SIM_CUDA_LEAKS", "ignore")];
        let out = conversion.run(&to, &environment);
        assert_rejected(&out, &["the CUDA driver returned", "719", name], &to);
    }
}

#[test]
fn errors_name_missing_drivers_and_unsuitable_devices() {
    const TEST: &str = "errors_name_missing_drivers_and_unsuitable_devices";
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out.arrow");
    let conversion = Conversion { from: &sample(), options: &[] };
    let out = conversion.run(&to, &[("LD_LIBRARY_PATH", "")]);
    match out.status.code() {
        Some(0) => skip(&format!("{TEST}, without a driver"), "this machine has a driver"),
        _ => assert_rejected(&out, &["cannot work on cuda:0", "libcuda.so"], &to),
    }
    std::fs::remove_file(&to).ok();
    if conversion.calls(&to).is_empty() {
        return skip(TEST, "only the simulated driver can be configured");
    }
    std::fs::remove_file(&to).unwrap();
    for (variable, value, message) in [
        ("CROSSDOCK_SIM_CUDA_DEVICES", "0", ["cannot work on cuda:0", "no device"]),
        ("CROSSDOCK_SIM_CUDA_CAPABILITY", "35", ["cuda:0", "compute capability 3.5"]),
    ] {
        assert_rejected(&conversion.run(&to, &[(variable, value)]), &message, &to);
    }
    assert_nothing_left(&to);
}
