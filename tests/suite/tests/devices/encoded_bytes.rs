//! Tests encoded arrays in files: conversion, recognition, display, and rejection of corrupt files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use arrow_schema::{DataType, Field, Schema};
use crossdock::memory::Backend;
use crossdock::registry::Way;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, Table};
use crossdock_arrays::{export_field, type_name};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{CancelFlag, Capsule, Device, EncodedArray, LogicalType, NodeParts, Options};
use crossdock_test_support::devices;
use crossdock_tests::{assert_nothing_left, assert_rejected, built, command, crossdock};

/// Vortex's serialized type of nullable 32-bit integers.
const INT32: &[u8] =
    b"\x10\0\0\0\x08\0\x09\0\x08\0\x04\0\0\0\0\0\x0c\0\0\0\x14\0\0\0\x03\0\x08\0\x06\0\x04\0\
\x05\0\0\0\0\0\0\0\x0e\0\0\0\x06\x01";

fn session(device: Device) -> Session {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder()
        .backend(backend)
        .plugins(built())
        .build()
        .unwrap()
        .session()
        .device(device)
        .open()
        .unwrap()
}

fn buffer(session: &Session, device: Device, bytes: &[u8]) -> Buffer {
    let stream = session.memory().default_stream(device).unwrap();
    let copy = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    session.memory().alloc_with(&stream, bytes.len(), copy).unwrap().freeze(&stream).unwrap()
}

/// A tree with the values [1001, null, 996]. `child` is the encoding id of the child that contains
/// the values. The tree has either Vortex types or Arrow types.
fn tree(session: &Session, device: Device, child: &str, has_arrow_types: bool) -> EncodedArray {
    let logical_type = |nullable| match has_arrow_types {
        false if nullable => LogicalType::Dtype(INT32.to_vec()),
        _ => {
            let data_type = if nullable { DataType::Int32 } else { DataType::Boolean };
            LogicalType::Schema(export_field(&Field::new("", data_type, nullable)).unwrap())
        }
    };
    let node = |id: &str, nullable, metadata: &[u8], n_buffers, n_children| NodeParts {
        encoding: id.into(),
        logical_type: logical_type(nullable),
        length: 3,
        metadata: metadata.into(),
        n_buffers,
        n_children,
    };
    let nodes = vec![
        // The reference 1000 as field 3 of a protobuf message, zigzag-encoded.
        node("fastlanes.for", true, &[0x18, 0xd0, 0x0f], 0, 1),
        node(child, true, &[], 1, 1),
        node("vortex.bool", false, &[], 1, 0),
    ];
    let values: Vec<u8> = [1i32, 7, -4].iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffers = [&values[..], &[0b101]].map(|bytes| buffer(session, device, bytes).to_encoded());
    EncodedArray::new(nodes, buffers.into()).unwrap()
}

fn values_of(session: &Session, input: Input) -> String {
    let table = Table::from_reader(session, session.read(input, &ReadOptions::default()).unwrap()).unwrap();
    let batches = table.to_record_batches().unwrap();
    let text: String = batches.iter().map(|batch| format!("{:?}", batch.column(0))).collect();
    text.split_whitespace().filter_map(|word| word.strip_suffix(',')).collect::<Vec<_>>().join(" ")
}

#[test]
fn trees_round_trip_through_bytes_on_every_device() {
    for &device in devices() {
        let session = session(device);
        for (of_buffers, has_arrow_types) in [(Device::CPU, false), (device, false), (device, true)] {
            let array = tree(&session, of_buffers, "vortex.primitive", has_arrow_types);
            let bytes = session.encoded_to_bytes(array).unwrap();
            assert_eq!(values_of(&session, Input::bytes(bytes.clone())), "1001 null 996", "{device}");
            let again = session.read_encoded(&Input::bytes(bytes.clone())).unwrap();
            let types = (0..3).map(|index| session.encoded_type(again.node(index).unwrap()).unwrap());
            let types: Vec<_> = types.map(|field| (field.data_type().clone(), field.is_nullable())).collect();
            assert_eq!(types[1..], [(DataType::Int32, true), (DataType::Boolean, false)]);
            assert_eq!(
                session.encoded_to_bytes(again).unwrap(),
                bytes,
                "{device}: different bytes after a round trip"
            );
        }
        session.stream().synchronize().unwrap();
        session.host().backend().trim();
        session.host().settle();
        assert!(
            session.host().ledger().leaks().is_empty(),
            "{device}: {:?}",
            session.host().ledger().leaks()
        );
    }
}

/// Plugin instances that a task creates belong to the task's session, so other tasks of the session
/// can use the instances.
#[test]
fn plugins_that_a_task_loads_still_decode_after_the_task_ends() {
    let session = session(Device::CPU);
    let decoded = |by: &Session| {
        let array = tree(by, Device::CPU, "vortex.primitive", false);
        let capsule = Capsule::new(array.into_raw());
        let format = by.capsule_format("encoded-array", Way::In)?;
        let reader = format.read(vec![capsule], None, &Options::new())?;
        reader.map(|batch| batch.map(|batch| batch.len())).collect::<Result<Vec<_>, _>>()
    };
    let cancelled = CancelFlag::new();
    let task = session.with_cancel_flag(cancelled.clone());
    assert!(!task.plugins().is_empty());
    cancelled.cancel();
    assert!(decoded(&task).is_err(), "the task is cancelled");
    assert_eq!(decoded(&session).unwrap(), [3], "while the task is alive");
    drop(task);
    assert_eq!(decoded(&session).unwrap(), [3], "after the task was dropped");
}

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with a tree. Returns its path and bytes.
    fn file(&self, name: &str, child: &str) -> (PathBuf, Vec<u8>) {
        let session = session(Device::CPU);
        let bytes = session.encoded_to_bytes(tree(&session, Device::CPU, child, false)).unwrap();
        std::fs::write(self.at(name), &bytes).unwrap();
        (self.at(name), bytes)
    }

    /// Converts a file with the command. Returns the values.
    fn convert_successfully(&self, from: &Path, more: &[&str]) -> String {
        let to = self.at("out.arrow");
        let out = crossdock(&[&["convert", text(from), text(&to), "--quiet"], more].concat());
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        values_of(&session(Device::CPU), Input::open(to, &Default::default()).unwrap())
    }

    fn convert(&self, from: &Path, more: &[&str]) -> Output {
        crossdock(&[&["convert", text(from), text(&self.at("rejected.arrow")), "--quiet"], more].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn tree_files_are_converted_by_extension_content_or_option() {
    let folder = TestFolder::new();
    let (named, bytes) = folder.file("tree.cdenc", "vortex.primitive");
    let (recognised, _) = folder.file("tree.bin", "vortex.primitive");
    let expected = "1001 null 996";
    assert_eq!(folder.convert_successfully(&named, &["--from", "encodings"]), expected);
    assert_eq!(folder.convert_successfully(&named, &[]), expected);
    assert_eq!(folder.convert_successfully(&recognised, &[]), expected);
    let to = folder.at("of-a-pipe.arrow");
    let mut child = command(&["convert", "-", text(&to), "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(values_of(&session(Device::CPU), Input::open(to, &Default::default()).unwrap()), expected);
}

#[test]
fn rejects_corrupt_tree_files_without_output() {
    let folder = TestFolder::new();
    let (file, bytes) = folder.file("tree.cdenc", "vortex.primitive");
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        changed
    };
    let longer = [&bytes[..], b"\n"].concat();
    for (content, message) in [
        (bytes[..bytes.len() - 1].to_vec(), "truncated"),
        (bytes[..20].to_vec(), "truncated"),
        (longer, "trailing bytes"),
        (with(8, 2), "in version 2, expected version 1"),
        (with(70, 1), "checksum"),
    ] {
        std::fs::write(&file, content).unwrap();
        let out = folder.convert(&file, &[]);
        assert_rejected(&out, &["tree.cdenc", message], &folder.at("rejected.arrow"));
        let out = crossdock(&["inspect", text(&file)]);
        assert_rejected(&out, &["tree.cdenc", message], &folder.at("rejected.arrow"));
    }
}

#[test]
fn trees_are_distinguished_from_other_files() {
    let folder = TestFolder::new();
    let other = folder.at("other");
    std::fs::write(&other, "CDENC, as text").unwrap();
    assert_rejected(
        &folder.convert(&other, &["--from", "encodings"]),
        &["invalid bytes of an encoded array: the magic is"],
        &folder.at("rejected.arrow"),
    );
    let (file, _) = folder.file("tree.cdenc", "vortex.primitive");
    let out = folder.convert(&file, &["--from", "arrow-ipc-file"]);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("those of encodings"), "{stderr}");
    assert_nothing_left(&folder.at("rejected.arrow"));
}

#[test]
fn inspect_shows_each_node_with_its_plugin() {
    let folder = TestFolder::new();
    let (file, bytes) = folder.file("tree.cdenc", "unknown\u{1b}encoding");
    let out = crossdock(&["inspect", text(&file)]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let stdout = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<Vec<&str>> =
        stdout.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
    let cells = |line: &[&str]| {
        line.iter().filter(|cell| !cell.is_empty()).map(|c| c.to_string()).collect::<Vec<_>>()
    };
    let size = format!("{} B", bytes.len());
    assert_eq!(
        stdout.lines().next(),
        Some(&*format!("an encoded array, version 1: 3 nodes, 2 buffers, {size}"))
    );
    assert_eq!(cells(&lines[1]), ["node", "values", "metadata", "buffers", "decoded by", "type"]);
    assert_eq!(cells(&lines[2]), ["fastlanes.for", "3", "18d00f", "-", "encodings", "int32, nullable"]);
    assert_eq!(cells(&lines[3]), ["unknown?encoding", "3", "-", "12 B", "no plugin", "int32, nullable"]);
    assert_eq!(cells(&lines[4]), ["vortex.bool", "3", "-", "1 B", "encodings", "bool"]);
    assert!(
        stdout.lines().nth(3).unwrap().starts_with("  unknown") && stdout.contains("\n    vortex.bool"),
        "{stdout}"
    );
    let out = crossdock(&["inspect", text(&file), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["encoded_array"], &json["bytes"]), (&1.into(), &bytes.len().into()));
    let child = &json["nodes"][1];
    assert_eq!(
        (&child["encoding"], &child["plugin"]),
        (&"unknown\u{1b}encoding".into(), &serde_json::Value::Null)
    );
    assert_eq!((&child["depth"], &child["children"], &child["length"]), (&1.into(), &1.into(), &3.into()));
    assert_eq!((&child["type"], &child["nullable"]), (&"int32".into(), &true.into()));
    assert_eq!(child["buffers"][0]["bytes"], 12);
    assert_eq!(json["nodes"][0]["metadata"], "18d00f");
}

#[test]
fn inspect_reports_a_missing_plugin_for_vortex_types() {
    let folder = TestFolder::new();
    let (file, _) = folder.file("tree.cdenc", "vortex.primitive");
    let alone = folder.at("alone");
    std::fs::create_dir(&alone).unwrap();
    let program = alone.join("crossdock");
    // Another process copies the file. If this process wrote it, programs that other tests start at
    // the same time could inherit the open file. The system does not execute a file that is open
    // for writing.
    let status = Command::new("cp").args([&built().join("crossdock"), &program]).status().unwrap();
    assert!(status.success());
    let out = Command::new(&program)
        .args(["inspect", text(&file)])
        .env_remove("CROSSDOCK_PLUGIN_PATH")
        .output()
        .unwrap();
    let stdout = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let line = stdout.lines().find(|line| line.starts_with("fastlanes.for")).unwrap();
    assert!(line.contains("no plugin") && line.contains("? (") && line.contains("encoded-array"), "{stdout}");
    assert!(stdout.lines().any(|line| line.contains("vortex.bool") && line.ends_with("bool")), "{stdout}");
}

#[test]
fn rejects_trees_with_an_unexpected_schema() {
    let session = session(Device::CPU);
    let open = |field: Field| {
        let tree = tree(&session, Device::CPU, "vortex.primitive", false);
        let capsules = vec![Capsule::new(tree.into_raw())];
        let format = session.capsule_format("encoded-array", Way::In).unwrap();
        format.read(capsules, Some(&Schema::new(vec![field])), &Options::new())
    };
    assert_eq!(open(Field::new("", DataType::Int32, true)).unwrap().schema().fields().len(), 1);
    for other in [Field::new("a", DataType::Int32, true), Field::new("", DataType::Int64, true)] {
        let message = open(other.clone()).err().unwrap().one_line();
        let kind = type_name(other.data_type());
        let expected = format!("expected ['{}': {kind}], but the array has ['': int32]", other.name());
        assert!(message.contains(&expected), "{message}");
    }
}
