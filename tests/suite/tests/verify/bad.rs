//! The plugin of `tests/bad-plugins`, as it should be and with each of its sins.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use arrow_schema::{DataType, Field};
use crossdock::Host;
use crossdock_arrays::export_field;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts};

use crate::sins::{SINS, Sin};
use crate::{bad_cases, passed, verify};

/// The plugin, with this sin or none.
pub fn build(folder: &Path, sin: Option<&str>) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bad-plugins");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugin-api/include");
    let to = folder.join(format!("libcrossdock_{}_plugin.so", sin.unwrap_or("base")));
    let throws = sin == Some("THROWS");
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]);
    compile.arg("-I").arg(include).arg("-o").arg(&to);
    compile.args(sin.iter().flat_map(|sin| [format!("-DSIN={sin}"), format!("-DSIN_{sin}")]));
    for file in ["plugin.c", "schema.c", "device.c", "rows_read.c", "rows_write.c", "encoding.c"] {
        compile.arg(sources.join(file));
    }
    if throws {
        let object = folder.join("throws.o");
        let mut cpp = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        let out = cpp.args(["-fPIC", "-c", "-o"]).arg(&object).arg(sources.join("throws.cpp")).output();
        assert!(out.as_ref().unwrap().status.success(), "{out:?}");
        compile.arg(object).arg("-lstdc++");
    }
    let out = compile.output().expect("a C compiler");
    assert!(out.status.success(), "{sin:?}: {}", String::from_utf8_lossy(&out.stderr));
    to
}

/// [1000, 1001, ...] as the plugin's encoding has it, in a file.
fn sample(folder: &Path) -> PathBuf {
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
        metadata: 1000u32.to_le_bytes().to_vec(),
        n_buffers: 1,
        n_children: 0,
    };
    let array = EncodedArray::new(vec![node], vec![buffer.to_encoded()]).unwrap();
    let file = folder.join("sample.cdenc");
    std::fs::write(&file, session.encoded_to_bytes(array).unwrap()).unwrap();
    file
}

/// What its sin did: `None` where it is found by its own case and by no other.
fn wrong(folder: &Path, sample: &Path, (sin, case, outcome): Sin) -> Option<String> {
    let plugin = build(folder, Some(sin));
    // Long enough for a busy machine, and waited for once.
    let seconds = if outcome == "timed out" { "20" } else { "120" };
    let arguments =
        ["--device", "cpu", "--jobs", "2", "--timeout", seconds, "--sample", sample.to_str().unwrap()];
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
    let sample = sample(folder.path());
    let plugin = build(folder.path(), None);
    let devices = ["--device", "cpu", "--device", "untouchable"];
    let arguments = ["--timeout", "120", "--sample", sample.to_str().unwrap()];
    let (out, report) = verify(&plugin, &[&devices[..], &arguments].concat());
    assert_eq!(bad_cases(&report), []);
    assert_eq!(out.status.code(), Some(0));
    // Its sins would not be found by cases that do not run.
    for (sin, case, _) in SINS {
        assert!(passed(&report, case), "{sin} is to be found by {case}, which did not run");
    }
}

#[test]
fn each_sin_is_found_by_its_own_case_and_by_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let sample = sample(folder.path());
    let (left, found) = (Mutex::new(SINS.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = left.lock().unwrap().next();
            let Some(sin) = next else { break };
            let wrong = wrong(folder.path(), &sample, *sin);
            found.lock().unwrap().extend(wrong);
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(work)));
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
