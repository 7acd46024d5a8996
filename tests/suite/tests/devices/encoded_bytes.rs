//! Encoded arrays in files: converted, recognised, shown, and refused where they were damaged.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use arrow_schema::{DataType, Field, Schema};
use crossdock::memory::Backend;
use crossdock::registry::Way;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, Table};
use crossdock_arrays::export_field;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{CancelFlag, Capsule, Device, EncodedArray, LogicalType, NodeParts, Options};
use crossdock_test_support::devices;
use crossdock_tests::{assert_nothing_left, assert_refused, built, command, crossdock};

/// 32-bit integers with nulls, as Vortex writes the type.
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

/// [1001, null, 996], with `child` in the place of the id of what holds the values, and types as Vortex or as Arrow writes them.
fn tree(session: &Session, device: Device, child: &str, of_arrow: bool) -> EncodedArray {
    let logical_type = |nullable| match of_arrow {
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
        // A reference of 1000: a protobuf's field 3, zigzag.
        node("fastlanes.for", true, &[0x18, 0xd0, 0x0f], 0, 1),
        node(child, true, &[], 1, 1),
        node("vortex.bool", false, &[], 1, 0),
    ];
    let values: Vec<u8> = [1i32, 7, -4].iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffers = [&values[..], &[0b101]].map(|bytes| buffer(session, device, bytes).to_encoded());
    EncodedArray::new(nodes, buffers.into()).unwrap()
}

fn shown(session: &Session, input: Input) -> String {
    let table = Table::from_reader(session, session.read(input, &ReadOptions::default()).unwrap()).unwrap();
    let batches = table.to_record_batches().unwrap();
    let words: String = batches.iter().map(|batch| format!("{:?}", batch.column(0))).collect();
    words.split_whitespace().filter_map(|word| word.strip_suffix(',')).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_tree_becomes_bytes_and_is_decoded_out_of_them_on_every_device() {
    for &device in devices() {
        let session = session(device);
        for (of_buffers, of_arrow) in [(Device::CPU, false), (device, false), (device, true)] {
            let array = tree(&session, of_buffers, "vortex.primitive", of_arrow);
            let bytes = session.encoded_to_bytes(array).unwrap();
            assert_eq!(shown(&session, Input::bytes(bytes.clone())), "1001 null 996", "{device}");
            let again = session.read_encoded(&Input::bytes(bytes.clone())).unwrap();
            let types = (0..3).map(|index| session.encoded_type(again.node(index).unwrap()).unwrap());
            let types: Vec<_> = types.map(|field| (field.data_type().clone(), field.is_nullable())).collect();
            assert_eq!(types[1..], [(DataType::Int32, true), (DataType::Boolean, false)]);
            assert_eq!(session.encoded_to_bytes(again).unwrap(), bytes, "{device}: not the same bytes again");
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

/// What is made for one piece of a session's work is the session's.
#[test]
fn plugins_that_a_piece_of_work_asked_for_first_decode_for_the_session_when_that_is_over() {
    let session = session(Device::CPU);
    let decoded = |by: &Session| {
        let array = tree(by, Device::CPU, "vortex.primitive", false);
        let capsule = Capsule::new(array.into_raw());
        let format = by.capsule_format("encoded-array", Way::In)?;
        let reader = format.read(vec![capsule], None, &Options::new())?;
        reader.map(|batch| batch.map(|batch| batch.len())).collect::<Result<Vec<_>, _>>()
    };
    let stopped = CancelFlag::new();
    let piece = session.with_cancel_flag(stopped.clone());
    assert!(!piece.plugins().is_empty());
    stopped.cancel();
    assert!(decoded(&piece).is_err(), "it was stopped");
    assert_eq!(decoded(&session).unwrap(), [3], "the piece is still there");
    drop(piece);
    assert_eq!(decoded(&session).unwrap(), [3], "the piece is gone");
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with such a tree, and its bytes.
    fn file(&self, name: &str, child: &str) -> (PathBuf, Vec<u8>) {
        let session = session(Device::CPU);
        let bytes = session.encoded_to_bytes(tree(&session, Device::CPU, child, false)).unwrap();
        std::fs::write(self.at(name), &bytes).unwrap();
        (self.at(name), bytes)
    }

    /// What the command converted a file to.
    fn converted(&self, from: &Path, more: &[&str]) -> String {
        let to = self.at("out.arrow");
        let out = crossdock(&[&["convert", text(from), text(&to), "--quiet"], more].concat());
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        shown(&session(Device::CPU), Input::open(to, &Default::default()).unwrap())
    }

    fn convert(&self, from: &Path, more: &[&str]) -> Output {
        crossdock(&[&["convert", text(from), text(&self.at("refused.arrow")), "--quiet"], more].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn files_of_trees_are_converted_whether_named_or_recognised() {
    let place = Place::new();
    let (named, bytes) = place.file("tree.cdenc", "vortex.primitive");
    let (recognised, _) = place.file("tree.bin", "vortex.primitive");
    let expected = "1001 null 996";
    assert_eq!(place.converted(&named, &["--from", "encodings"]), expected);
    assert_eq!(place.converted(&named, &[]), expected);
    assert_eq!(place.converted(&recognised, &[]), expected);
    let to = place.at("of-a-pipe.arrow");
    let mut child = command(&["convert", "-", text(&to), "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(shown(&session(Device::CPU), Input::open(to, &Default::default()).unwrap()), expected);
}

#[test]
fn files_that_are_damaged_are_refused_and_leave_nothing_behind() {
    let place = Place::new();
    let (file, bytes) = place.file("tree.cdenc", "vortex.primitive");
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        changed
    };
    let longer = [&bytes[..], b"\n"].concat();
    for (content, words) in [
        (bytes[..bytes.len() - 1].to_vec(), "truncated"),
        (bytes[..20].to_vec(), "truncated"),
        (longer, "something follows their end"),
        (with(8, 2), "in version 2, and only version 1 is read here"),
        (with(70, 1), "checksum"),
    ] {
        std::fs::write(&file, content).unwrap();
        let out = place.convert(&file, &[]);
        assert_refused(&out, &["tree.cdenc", words], &place.at("refused.arrow"));
        let out = crossdock(&["inspect", text(&file)]);
        assert_refused(&out, &["tree.cdenc", words], &place.at("refused.arrow"));
    }
}

#[test]
fn what_is_no_tree_is_told_from_one() {
    let place = Place::new();
    let other = place.at("other");
    std::fs::write(&other, "CDENC, as text").unwrap();
    assert_refused(
        &place.convert(&other, &["--from", "encodings"]),
        &["no bytes of an encoded array: they begin with"],
        &place.at("refused.arrow"),
    );
    let (file, _) = place.file("tree.cdenc", "vortex.primitive");
    let out = place.convert(&file, &["--from", "arrow-ipc-file"]);
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{words}");
    assert!(words.contains("those of encodings"), "{words}");
    assert_nothing_left(&place.at("refused.arrow"));
}

#[test]
fn inspect_shows_each_node_with_what_it_holds_and_who_decodes_it() {
    let place = Place::new();
    let (file, bytes) = place.file("tree.cdenc", "some\u{1b}body.else");
    let out = crossdock(&["inspect", text(&file)]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let words = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<Vec<&str>> = words.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
    let cells = |line: &[&str]| {
        line.iter().filter(|cell| !cell.is_empty()).map(|c| c.to_string()).collect::<Vec<_>>()
    };
    let size = format!("{} B", bytes.len());
    assert_eq!(
        words.lines().next(),
        Some(&*format!("an encoded array, version 1: 3 nodes, 2 buffers, {size}"))
    );
    assert_eq!(cells(&lines[1]), ["node", "values", "metadata", "buffers", "decoded by", "type"]);
    assert_eq!(cells(&lines[2]), ["fastlanes.for", "3", "18d00f", "-", "encodings", "Int32, nullable"]);
    assert_eq!(cells(&lines[3]), ["some?body.else", "3", "-", "12 B", "no plugin", "Int32, nullable"]);
    assert_eq!(cells(&lines[4]), ["vortex.bool", "3", "-", "1 B", "encodings", "Boolean"]);
    assert!(
        words.lines().nth(3).unwrap().starts_with("  some") && words.contains("\n    vortex.bool"),
        "{words}"
    );
    let out = crossdock(&["inspect", text(&file), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["encoded_array"], &json["bytes"]), (&1.into(), &bytes.len().into()));
    let child = &json["nodes"][1];
    assert_eq!(
        (&child["encoding"], &child["plugin"]),
        (&"some\u{1b}body.else".into(), &serde_json::Value::Null)
    );
    assert_eq!((&child["depth"], &child["children"], &child["length"]), (&1.into(), &1.into(), &3.into()));
    assert_eq!((&child["type"], &child["nullable"]), (&"Int32".into(), &true.into()));
    assert_eq!(child["buffers"][0]["bytes"], 12);
    assert_eq!(json["nodes"][0]["metadata"], "18d00f");
}

#[test]
fn inspect_without_the_plugin_that_reads_vortexs_types_says_so() {
    let place = Place::new();
    let (file, _) = place.file("tree.cdenc", "vortex.primitive");
    let alone = place.at("alone");
    std::fs::create_dir(&alone).unwrap();
    let program = alone.join("crossdock");
    // By another process: what this one has open to write, programs that other tests start at that moment have open too, and
    // nobody can run it until those let go.
    let copied = Command::new("cp").args([&built().join("crossdock"), &program]).status().unwrap();
    assert!(copied.success());
    let out = Command::new(&program)
        .args(["inspect", text(&file)])
        .env_remove("CROSSDOCK_PLUGIN_PATH")
        .output()
        .unwrap();
    let words = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let line = words.lines().find(|line| line.starts_with("fastlanes.for")).unwrap();
    assert!(line.contains("no plugin") && line.contains("? (") && line.contains("encoded-array"), "{words}");
    assert!(words.lines().any(|line| line.contains("vortex.bool") && line.ends_with("Boolean")), "{words}");
}

#[test]
fn a_tree_that_is_another_column_than_the_caller_expects_is_refused() {
    let session = session(Device::CPU);
    let open = |field: Field| {
        let tree = tree(&session, Device::CPU, "vortex.primitive", false);
        let capsules = vec![Capsule::new(tree.into_raw())];
        let format = session.capsule_format("encoded-array", Way::In).unwrap();
        format.read(capsules, Some(&Schema::new(vec![field])), &Options::new())
    };
    assert_eq!(open(Field::new("", DataType::Int32, true)).unwrap().schema().fields().len(), 1);
    for other in [Field::new("a", DataType::Int32, true), Field::new("", DataType::Int64, true)] {
        let words = open(other.clone()).err().unwrap().one_line();
        let expected =
            format!("expected ['{}': {}], the array has ['': Int32]", other.name(), other.data_type());
        assert!(words.contains(&expected), "{words}");
    }
}
