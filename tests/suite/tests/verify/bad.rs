//! The plugin of `tests/bad-plugins`, as it should be and with each of its sins.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use arrow_schema::{DataType, Field};
use crossdock::Host;
use crossdock_arrays::export_field;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts};
use crossdock_test_support::{replay, sample};

use crate::objects::Objects;
use crate::sins::{SINS, Sin};
use crate::{bad_cases, has_cuda, passed, passed_on, verify};

/// The case that needs a CUDA device.
const ON_CUDA: &str = "memory.device";

/// Three rows, the second of them null, as the plugin's format has them, and two trees: in files, as arguments.
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
    files.into_iter().flat_map(|file| ["--sample".into(), text(file)]).collect()
}

/// The reference, and the 99 numbers after it, as the plugin's encoding has them, in a file.
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

/// What of a sin is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Its own case finds it.
    Own,
    /// Its own case finds it, and no other one does.
    All,
}

/// What its sin did: `None` where it is found as it should be.
fn wrong(objects: &Objects, samples: &[String], (sin, case, outcome): Sin, look: Look) -> Option<String> {
    let plugin = objects.plugin(Some(sin));
    // Long enough for a busy machine, and waited for once.
    let seconds = if outcome == "timed out" { "20" } else { "120" };
    // What only a device has is found on one.
    let device = if case == ON_CUDA { "cuda:0" } else { "cpu" };
    let mut arguments = vec!["--device", device, "--jobs", "2", "--timeout", seconds];
    if look == Look::Own {
        arguments.extend(["--case", case]);
    }
    arguments.extend(samples.iter().map(String::as_str));
    let (out, report) = verify(&plugin, &arguments);
    let expected = [(case.to_string(), outcome.to_string())];
    let got = bad_cases(&report);
    if got == expected && out.status.code() == Some(1) {
        return None;
    }
    let words = report["cases"].as_array().unwrap().iter();
    let words = words.filter(|case| got.iter().any(|(name, _)| case["name"] == name.as_str()));
    let words: Vec<_> = words.map(ToString::to_string).collect();
    Some(format!("{sin}: expected {expected:?}, got {got:?}, {:?}\n  {}", out.status, words.join("\n  ")))
}

#[test]
fn the_plugin_without_a_sin_keeps_every_rule() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples(folder.path());
    let plugin = Objects::compile(folder.path()).plugin(None);
    let mut arguments = vec!["--device", "cpu", "--device", "untouchable", "--timeout", "120"];
    let has_cuda = has_cuda("the_plugin_without_a_sin_keeps_every_rule, on cuda:0");
    if has_cuda {
        arguments.extend(["--device", "cuda:0"]);
    }
    arguments.extend(samples.iter().map(String::as_str));
    let (out, report) = verify(&plugin, &arguments);
    assert_eq!(bad_cases(&report), []);
    assert_eq!(out.status.code(), Some(0));
    // A case that did not run finds no sin, and one without a sin has never been seen to fail.
    for case in report["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        assert!(passed(&report, name) || (name == ON_CUDA && !has_cuda), "{name} did not run");
        assert!(SINS.iter().any(|(_, case, _)| *case == name), "{name} has no sin");
    }
}

/// A format's importer and its exporter name the devices that they take each for itself.
#[test]
fn batches_are_placed_by_who_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::compile(folder.path());
    let mut devices = vec!["untouchable"];
    devices.extend(has_cuda("batches_are_placed_by_who_takes_them, on cuda:0").then_some("cuda:0"));
    for halves in ["IMPORTS_ANYWHERE", "EXPORTS_ANYWHERE"] {
        let plugin = objects.plugin(Some(halves));
        let mut arguments = vec!["--timeout", "120"];
        arguments.extend(devices.iter().flat_map(|device| ["--device", device]));
        let (out, report) = verify(&plugin, &arguments);
        assert_eq!((bad_cases(&report), out.status.code()), (Vec::new(), Some(0)), "{halves}: {report}");
        for device in &devices {
            let passed = passed_on(&report, device);
            for case in ["importer.values", "exporter.releases"] {
                assert!(passed.contains(&case), "{halves}: {case} did not run on {device}");
            }
        }
    }
}

/// In a sample (`CROSSDOCK_TEST_SAMPLE`) every sin is found by its own case, and an eighth of them are shown to all the others.
#[test]
fn each_sin_is_found_by_its_own_case_and_by_no_other() {
    let _replay = replay::on_failure();
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        let test = "each_sin_is_found_by_its_own_case_and_by_no_other";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: a sanitizer finds some of them first");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (samples, objects) = (samples(folder.path()), Objects::compile(folder.path()));
    let has_cuda = has_cuda("each_sin_is_found_by_its_own_case_and_by_no_other, on cuda:0");
    let sins = SINS.iter().filter(|(_, case, _)| has_cuda || *case != ON_CUDA);
    let (left, found) = (Mutex::new(sins), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = left.lock().unwrap().next();
            let Some(sin) = next else { break };
            let look = if sample::picks(sin.0, 8) { Look::All } else { Look::Own };
            let wrong = wrong(&objects, &samples, *sin, look);
            found.lock().unwrap().extend(wrong);
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(work)));
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
