//! Verifies the plugin of `tests/bad-plugins` without a bug and with each injected bug.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use arrow_schema::{DataType, Field};
use crossdock::Host;
use crossdock_arrays::export_field;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts};
use crossdock_test_support::{replay, sample};
use crossdock_tests::CASE_TIMEOUT_S;

use crate::injected_bugs::{INJECTED_BUGS, InjectedBug};
use crate::objects::Objects;
use crate::{bad_cases, has_cuda, passed, passed_on, verify};

/// The case that needs a CUDA device.
const ON_CUDA: &str = "memory.device";

/// Writes three sample files, and returns the arguments that name them and a URI. One file has
/// three rows in the plugin's format, and its second row is null. The other two files contain
/// trees.
pub fn samples(folder: &Path) -> Vec<String> {
    let mut bytes = b"BASEROWS\x06\0\0\0number".to_vec();
    bytes.extend(3u64.to_le_bytes());
    for (is_valid, value) in [(1, 5i64), (0, 0), (1, -7)] {
        bytes.push(is_valid);
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(u64::MAX.to_le_bytes());
    let rows = folder.join("sample.baserows");
    std::fs::write(&rows, bytes).unwrap();
    let files = [rows, tree(folder, "far", 1000), tree(folder, "near", 0)];
    let text = |file: PathBuf| file.to_str().unwrap().to_string();
    let files = files.into_iter().map(text).chain(["base://numbers".into()]);
    files.flat_map(|file| ["--sample".into(), file]).collect()
}

/// Writes a file with 100 numbers in the plugin's encoding. The first number is the reference.
fn tree(folder: &Path, name: &str, reference: u32) -> PathBuf {
    let values: Vec<u8> = (0..100i32).flat_map(i32::to_le_bytes).collect();
    let host = Host::builder().build().unwrap();
    let session = host.session().open().unwrap();
    let stream = session.stream();
    let copy = |to: &mut [u8]| {
        to.copy_from_slice(&values);
        Ok(())
    };
    let buffer = session.memory().alloc_with(stream, values.len(), copy).unwrap().freeze(stream).unwrap();
    let field = Field::new("", DataType::Int32, false);
    let node = NodeParts {
        encoding: "base.reference".into(),
        logical_type: LogicalType::Schema(export_field(&field).unwrap()),
        length: 100,
        metadata: reference.to_le_bytes().to_vec(),
        n_buffers: 1,
        n_children: 0,
    };
    let array = EncodedArray::new(vec![node], vec![buffer.to_encoded()]).unwrap();
    let file = folder.join(format!("{name}.cdenc"));
    std::fs::write(&file, session.encoded_to_bytes(array).unwrap()).unwrap();
    file
}

/// Which cases run for a bug.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cases {
    /// Only the case that finds the bug.
    Own,
    /// All cases. Only the bug's own case may find it.
    All,
}

/// Verifies the plugin with a bug. Returns a description of the difference from the expected
/// outcome, if there is one.
fn difference(
    objects: &Objects,
    samples: &[String],
    (bug, case, outcome): InjectedBug,
    cases: Cases,
) -> Option<String> {
    let plugin = objects.plugin(Some(bug));
    // A case that must time out waits only 20 s, which is enough for a busy machine.
    let seconds = if outcome == "timed out" { "20" } else { CASE_TIMEOUT_S };
    let device = if case == ON_CUDA { "cuda:0" } else { "cpu" };
    let mut arguments = vec!["--device", device, "--jobs", "2", "--timeout", seconds];
    if cases == Cases::Own {
        arguments.extend(["--case", case]);
    }
    arguments.extend(samples.iter().map(String::as_str));
    let (out, report) = verify(&plugin, &arguments);
    let expected = [(case.to_string(), outcome.to_string())];
    let got = bad_cases(&report);
    if got == expected && out.status.code() == Some(1) {
        return None;
    }
    let results = report["cases"].as_array().unwrap().iter();
    let bad = results.filter(|case| got.iter().any(|(name, _)| case["name"] == name.as_str()));
    let bad: Vec<_> = bad.map(ToString::to_string).collect();
    Some(format!("{bug}: expected {expected:?}, got {got:?}, {:?}\n  {}", out.status, bad.join("\n  ")))
}

#[test]
fn plugin_without_bugs_passes_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples(folder.path());
    let plugin = Objects::compile(folder.path()).plugin(None);
    let mut arguments = vec!["--device", "cpu", "--device", "untouchable", "--timeout", CASE_TIMEOUT_S];
    let has_cuda = has_cuda("plugin_without_bugs_passes_every_case, on cuda:0");
    if has_cuda {
        arguments.extend(["--device", "cuda:0"]);
    }
    arguments.extend(samples.iter().map(String::as_str));
    let (out, report) = verify(&plugin, &arguments);
    assert_eq!(bad_cases(&report), []);
    assert_eq!(out.status.code(), Some(0));
    // Every case must run, and at least one injected bug must be listed for it.
    for case in report["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        assert!(passed(&report, name) || (name == ON_CUDA && !has_cuda), "{name} did not run: {case}");
        assert!(INJECTED_BUGS.iter().any(|(_, case, _)| *case == name), "{name} has no bug");
    }
}

/// The importer and the exporter of a format may accept different devices.
#[test]
fn batches_are_on_the_device_that_their_receiver_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::compile(folder.path());
    let mut devices = vec!["untouchable"];
    let test = "batches_are_on_the_device_that_their_receiver_accepts, on cuda:0";
    devices.extend(has_cuda(test).then_some("cuda:0"));
    for variant in ["IMPORTS_ANYWHERE", "EXPORTS_ANYWHERE"] {
        let plugin = objects.plugin(Some(variant));
        let mut arguments = vec!["--timeout", CASE_TIMEOUT_S];
        arguments.extend(devices.iter().flat_map(|device| ["--device", device]));
        let (out, report) = verify(&plugin, &arguments);
        assert_eq!((bad_cases(&report), out.status.code()), (Vec::new(), Some(0)), "{variant}: {report}");
        for device in &devices {
            let passed = passed_on(&report, device);
            for case in ["importer.values", "exporter.releases"] {
                assert!(passed.contains(&case), "{variant}: {case} did not run on {device}");
            }
        }
    }
}

/// In a sample (`CROSSDOCK_TEST_SAMPLE`), every bug is tested with its own case, and an eighth of
/// the bugs with all cases.
#[test]
fn only_the_expected_verify_case_detects_each_injected_bug() {
    let _replay = replay::on_failure();
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        let test = "only_the_expected_verify_case_detects_each_injected_bug";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: a sanitizer finds some of them first");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (samples, objects) = (samples(folder.path()), Objects::compile(folder.path()));
    let has_cuda = has_cuda("only_the_expected_verify_case_detects_each_injected_bug, on cuda:0");
    let bugs = INJECTED_BUGS.iter().filter(|(_, case, _)| has_cuda || *case != ON_CUDA);
    let (pending, differences) = (Mutex::new(bugs), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = pending.lock().unwrap().next();
            let Some(bug) = next else { break };
            let cases = if sample::picks(bug.0, 8) { Cases::All } else { Cases::Own };
            let difference = difference(&objects, &samples, *bug, cases);
            differences.lock().unwrap().extend(difference);
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(work)));
    });
    let differences = differences.into_inner().unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
