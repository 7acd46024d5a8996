//! What `crossdock convert --device cuda` says when the driver is missing, or refuses one of its calls: the right output
//! where the refused call did no harm, else status 1, one line with the driver's answer, and nothing left behind. Over the
//! simulated driver. At the first, second and last call of each function; with `CROSSDOCK_FAULTS=all` at each of them, and at
//! all of them. A sample (`CROSSDOCK_TEST_SAMPLE`) has some of the functions.
//!
//! A program of its own because it takes long and gains nothing from being repeated on every simulated machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Output;

use crossdock_test_support::replay;
use crossdock_tests::{assert_nothing_left, assert_refused, command, faults, sample, sample_tree};

/// One that the driver's header has, and one that it has not.
const CODES: [(i32, &str); 2] = [(2, "OUT_OF_MEMORY"), (4242, "4242")];
/// Without them, the wait before them, or a context to call them in, something is lost and nothing is wrong: the driver keeps
/// what it was to have back.
const GIVING_BACK: [&str; 12] = [
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
/// What tensors have a place for.
const COLUMNS: &str = "year,dep_time,distance,cancelled,speed_mph";

/// A conversion on the device.
struct Conversion<'a> {
    from: &'a Path,
    ways: &'a [&'a str],
}

impl Conversion<'_> {
    fn run(&self, to: &Path, environment: &[(&str, &str)]) -> Output {
        let (from, to) = (self.from.to_str().unwrap(), to.to_str().unwrap());
        let arguments = ["convert", from, to, "--device", "cuda", "--quiet"];
        let mut command = command(&[&arguments, self.ways].concat());
        command.envs(environment.iter().copied()).output().unwrap()
    }

    /// How often it calls each of the driver's functions; none where the driver is not the simulated one.
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

/// Every function that a conversion calls, but for some, refused at some of its calls with each of these codes.
fn refused_calls(
    test: &str,
    conversion: &Conversion<'_>,
    codes: &[(i32, &str)],
    is_left_out: impl Fn(&str) -> bool,
) {
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    let (wanted, to) = (folder.path().join("wanted.arrow"), folder.path().join("out.arrow"));
    let mut calls = conversion.calls(&wanted);
    if calls.is_empty() {
        return skip(test, "only the simulated driver refuses what it is told to refuse");
    }
    assert!(calls.len() > 25, "{calls:?}");
    calls.retain(|name, _| !is_left_out(name));
    assert!(!calls.is_empty(), "nothing is left to be refused");
    let wanted = std::fs::read(&wanted).unwrap();
    let part = faults::part(test, calls.len(), 4);
    let calls: Vec<_> =
        calls.into_iter().enumerate().filter(|(i, _)| part.contains(i)).map(|(_, call)| call).collect();
    for ((name, last), (code, words)) in
        calls.iter().flat_map(|call| codes.iter().map(move |code| (call, *code)))
    {
        // Where a call is refused matters; with which code does not, but for how it is told.
        let mut nths = if code == 2 { [1].into() } else { faults::chosen(*last, 2, 0) };
        // At every one of its calls.
        nths.extend(faults::all().then_some(0));
        for nth in nths {
            let keeps = nth == 0 || GIVING_BACK.contains(&name.as_str());
            let leaks = if keeps { "ignore" } else { "" };
            let fail = format!("{name}:{code}:{nth}");
            let environment =
                [("CROSSDOCK_SIM_CUDA_FAIL", fail.as_str()), ("CROSSDOCK_SIM_CUDA_LEAKS", leaks)];
            let out = conversion.run(&to, &environment);
            let stderr = String::from_utf8_lossy(&out.stderr);
            if out.status.success() {
                // What a driver never says is over is kept, and told.
                let is_kept = |line: &str| keeps && line.starts_with("crossdock: warning: not given back: ");
                assert!(stderr.lines().all(is_kept), "{fail}: {stderr}");
                assert!(std::fs::read(&to).unwrap() == wanted, "{fail}: the output is another");
                std::fs::remove_file(&to).unwrap();
                continue;
            }
            // The driver's functions have names of their own for their later forms.
            let told = name.trim_end_matches("_v2");
            let told = if stderr.contains(told) { told } else { "the CUDA driver answered" };
            assert_eq!(out.status.code(), Some(1), "{fail}: {:?}: {stderr}", out.status);
            // Of a driver that does not start, the advice stands for the name.
            let named = stderr.contains(words) || (code == 2 && stderr.contains(": out of memory; close"));
            assert!(named, "{fail}: {stderr}");
            assert_refused(&out, &[told], &to);
        }
    }
}

#[test]
fn a_refused_call_of_the_driver_is_harmless_or_told_in_one_line() {
    let conversion = Conversion { from: &sample(), ways: &["--via", "arrow-c-device"] };
    refused_calls("a_refused_call_of_the_driver", &conversion, &CODES, |_| false);
}

#[test]
fn a_refused_call_on_the_way_through_tensors_and_compression_too() {
    let ways = ["--via", "dlpack", "--nulls", "mask", "--columns", COLUMNS, "--compression", "lz4"];
    let conversion = Conversion { from: &sample(), ways: &ways };
    refused_calls("a_refused_call_on_the_way_through_tensors", &conversion, &CODES, |_| false);
}

#[test]
fn a_refused_call_on_the_way_through_tensors_of_the_older_form_too() {
    let ways = ["--via", "dlpack-legacy", "--nulls", "mask", "--columns", COLUMNS];
    let conversion = Conversion { from: &sample(), ways: &ways };
    let test = "a_refused_call_on_the_way_through_tensors_of_the_older_form";
    // How each code is told has been seen by then.
    refused_calls(test, &conversion, &CODES[1..], |_| false);
}

#[test]
fn a_refused_call_while_an_encoded_array_is_decoded_too() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("sample.cdenc");
    std::fs::write(&tree, sample_tree()).unwrap();
    let conversion = Conversion { from: &tree, ways: &[] };
    refused_calls("a_refused_call_while_an_encoded_array_is_decoded", &conversion, &CODES[1..], |_| false);
}

#[test]
fn a_refused_call_for_memory_that_an_isolated_plugin_shares_too() {
    const TEST: &str = "a_refused_call_for_memory_that_an_isolated_plugin_shares_too";
    let folder = tempfile::tempdir().unwrap();
    let conversion = Conversion { from: &sample(), ways: &["--isolate=arrow-ipc"] };
    let out = conversion.run(&folder.path().join("out.arrow"), &[]);
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("this system cannot") {
        return skip(TEST, &said);
    }
    // Those that any conversion calls are refused above; but what this one is asked about is other memory.
    let plain = Conversion { from: conversion.from, ways: &[] };
    let mut others = plain.calls(&folder.path().join("here.arrow"));
    others.remove("cuPointerGetAttributes");
    refused_calls(TEST, &conversion, &CODES, |name| others.contains_key(name));
}

/// A device that is broken refuses everything from some moment on.
#[test]
fn a_device_that_breaks_ends_the_conversion_and_nothing_else() {
    const TEST: &str = "a_device_that_breaks";
    let _replay = replay::on_failure();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out.arrow");
    let conversion = Conversion { from: &sample(), ways: &[] };
    if conversion.calls(&folder.path().join("wanted.arrow")).is_empty() {
        return skip(TEST, "only the simulated driver refuses what it is told to refuse");
    }
    let names =
        ["cuMemcpyAsync", "cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuMemAllocFromPoolAsync"];
    for name in faults::part(TEST, names.len(), 4).into_iter().map(|i| names[i]) {
        // 719: a kernel has failed, and the context with it.
        let fail = format!("{name}:719:0");
        let environment =
            [("CROSSDOCK_SIM_CUDA_FAIL", fail.as_str()), ("CROSSDOCK_SIM_CUDA_LEAKS", "ignore")];
        let out = conversion.run(&to, &environment);
        assert_refused(&out, &["the CUDA driver answered", "719", name], &to);
    }
}

#[test]
fn a_driver_that_is_not_there_or_has_no_device_that_would_do_is_named() {
    const TEST: &str = "a_driver_without_devices";
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("out.arrow");
    let conversion = Conversion { from: &sample(), ways: &[] };
    let out = conversion.run(&to, &[("LD_LIBRARY_PATH", "")]);
    match out.status.code() {
        Some(0) => skip("a_driver_that_is_not_there", "this machine has a driver"),
        _ => assert_refused(&out, &["cannot work on cuda:0", "libcuda.so"], &to),
    }
    std::fs::remove_file(&to).ok();
    if conversion.calls(&to).is_empty() {
        return skip(TEST, "only the simulated driver is any driver");
    }
    std::fs::remove_file(&to).unwrap();
    for (variable, value, told) in [
        ("CROSSDOCK_SIM_CUDA_DEVICES", "0", ["cannot work on cuda:0", "no device"]),
        ("CROSSDOCK_SIM_CUDA_CAPABILITY", "35", ["cuda:0", "compute capability 3.5"]),
    ] {
        assert_refused(&conversion.run(&to, &[(variable, value)]), &told, &to);
    }
    assert_nothing_left(&to);
}
