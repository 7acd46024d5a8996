//! Tests the reports of the command and the library about conversions with the shipped plugins.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Int8Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use crossdock::Host;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock_tests::{built, built_file, command, crossdock, sample};
use serde_json::Value;

const SAMPLE_ROWS: u64 = 27_004;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let out = crossdock(arguments);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Collects the names of all fields, including fields of nested objects.
fn names(value: &Value, to: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            to.insert(name.clone());
            names(value, to);
        }),
        Value::Array(values) => values.iter().for_each(|value| names(value, to)),
        _ => {}
    }
}

fn assert_documented(command: &str, value: &Value) {
    let help = String::from_utf8(crossdock(&[command, "--help"]).stdout).unwrap();
    let words: BTreeSet<_> = help.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut fields = BTreeSet::new();
    names(value, &mut fields);
    for field in fields {
        assert!(words.contains(field.as_str()), "crossdock {command} --help does not mention '{field}'");
    }
}

#[test]
fn convert_keeps_the_compression_of_its_input_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, stream, both] =
        ["a.arrow", "b.arrow", "c.arrows", "d.arrow"].map(|name| folder.path().join(name));
    let convert = |arguments: &[&str]| {
        let out = crossdock(&[&["convert", "--quiet"], arguments].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    for codec in ["none", "lz4", "zstd"] {
        convert(&["--compression", codec, text(&sample()), text(&first)]);
        convert(&[text(&first), text(&second)]);
        assert!(bytes(&first) == bytes(&second), "{codec}");
        // The format of the output may be another one of the plugin, and there may be several
        // inputs.
        convert(&[text(&first), text(&stream)]);
        convert(&[text(&stream), text(&second)]);
        assert!(bytes(&first) == bytes(&second), "{codec}");
        convert(&[text(&first), text(&stream), text(&both)]);
        convert(&["--limit", "27004", text(&both), text(&second)]);
        assert!(bytes(&first) == bytes(&second), "{codec}");
    }
    convert(&["--compression", "none", text(&first), text(&second)]);
    assert!(bytes(&second).len() > bytes(&first).len());
}

#[test]
fn convert_reports_every_stage_as_documented_json() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.arrows");
    let sample = sample();
    let report = json(&["convert", text(&sample), text(&output), "--via", "arrow-c-device", "--json"]);
    let stages = report["stages"].as_array().unwrap();
    let stage = |i: usize| (stages[i]["stage"].as_str().unwrap(), stages[i]["format"].as_str().unwrap());
    assert_eq!(stages.len(), 3);
    assert_eq!(stage(0), ("read", "arrow-ipc-file"));
    assert_eq!(stage(1), ("via", "arrow-c-device"));
    assert_eq!(stage(2), ("write", "arrow-ipc-stream"));
    assert!(stages.iter().all(|stage| stage["rows"] == SAMPLE_ROWS), "{report}");
    assert_eq!(stages[2]["bytes"], std::fs::metadata(&output).unwrap().len());
    assert_eq!(report["leaks"], Value::Array(Vec::new()));
    let total = report["time_ns"].as_u64().unwrap();
    let sum: u64 = stages.iter().map(|stage| stage["time_ns"].as_u64().unwrap()).sum();
    assert!(0 < sum && sum <= total, "{sum} ns in stages, {total} ns in all");
    assert_documented("convert", &report);
}

#[test]
fn conversion_on_another_device_reports_copied_bytes() {
    let sample = sample();
    let arguments = ["convert", text(&sample), "/dev/null", "--to", "arrow-ipc-stream", "--json"];
    let copied = |device: &str| {
        let report = json(&[&arguments[..], &["--device", device]].concat());
        let sum = |way: &str| -> u64 {
            let stages = report["stages"].as_array().unwrap();
            stages.iter().map(|stage| stage["copied_bytes"][way].as_u64().unwrap()).sum()
        };
        ["h2d", "d2h"].map(sum)
    };
    assert_eq!(copied("cpu"), [0, 0]);
    let [h2d, d2h] = copied("untouchable");
    assert!(h2d > 1_000_000 && d2h > 1_000_000, "{h2d} and {d2h} bytes");
}

#[test]
fn report_is_printed_on_stderr_if_data_is_written_to_stdout() {
    let out = crossdock(&["convert", text(&sample()), "-", "--json"]);
    let report: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(report["stages"][1]["bytes"], out.stdout.len());
}

#[test]
fn plan_reports_every_column_as_documented_json() {
    let sample = sample();
    let plan = json(&["plan", text(&sample), "--to", "arrow-c-device", "--json"]);
    assert_eq!((&plan["plugin"], &plan["format"]), (&"arrow-c-device".into(), &"arrow-c-device".into()));
    assert_eq!((&plan["rows"], &plan["bytes_moved"]), (&SAMPLE_ROWS.into(), &0.into()));
    let columns = plan["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 21);
    assert!(columns.iter().all(|column| column["verdict"] == "zero-copy" && column["to"] == "cpu"), "{plan}");
    let year = &columns[0];
    assert_eq!(
        (&year["name"], &year["type"], &year["bytes"]),
        (&"year".into(), &"int16".into(), &54_008.into())
    );
    assert_documented("plan", &plan);
    let plan = json(&["plan", text(&sample), "--to", "arrow-ipc", "--device", "untouchable", "--json"]);
    let sum: u64 = plan["columns"].as_array().unwrap().iter().map(|c| c["bytes"].as_u64().unwrap()).sum();
    assert!(sum > 1_000_000 && plan["bytes_moved"] == sum, "{plan}");
}

#[test]
fn plan_names_columns_that_are_decoded_on_the_host() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/vortex/golden_files/0.93.0-compact.vortex");
    let plan = |device: &str| json(&["plan", file, "--to", "arrow-ipc", "--device", device, "--json"]);
    let encodings = |plan: &Value, name: &str| {
        let column = plan["columns"].as_array().unwrap().iter().find(|column| column["name"] == name);
        column.unwrap()["decoded_on_host"].clone()
    };
    let (on_cpu, on_device) = (plan("cpu"), plan("untouchable"));
    assert_documented("plan", &on_device);
    for (column, expected) in [
        ("i1", vec![]),
        ("i4", vec!["vortex.pco"]),
        // The decoder of the values also decodes the bits of the nulls, on the same device.
        ("i4_null", vec!["vortex.pco"]),
        ("string_any", vec!["vortex.zstd"]),
        ("struct", vec!["vortex.pco", "vortex.zstd"]),
    ] {
        assert_eq!(encodings(&on_device, column), serde_json::json!(expected), "{column}");
        assert_eq!(encodings(&on_cpu, column), serde_json::json!([]), "{column}");
    }
    let text = crossdock(&["plan", file, "--to", "arrow-ipc", "--device", "untouchable"]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("decoded on the host: vortex.pco"));
}

#[test]
fn progress_is_monotonic_and_ends_at_the_total() {
    let stream = crossdock(&["convert", text(&sample()), "-", "--quiet"]).stdout;
    let host = Host::builder().plugins(built()).build().unwrap();
    let session = host.session().open().unwrap();
    let file = || Input::open(sample(), session.cancel_flag()).unwrap();
    let file_bytes = std::fs::metadata(sample()).unwrap().len();
    let stream_bytes = stream.len() as u64;
    for (input, bytes) in [(file(), file_bytes), (Input::bytes(stream), stream_bytes)] {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let listener = reports.clone();
        session
            .conversion()
            .to("arrow-ipc-stream")
            .progress(Arc::new(move |done, total| listener.lock().unwrap().push((done, total))))
            .run(input, Output::Memory(VecSink::new()))
            .unwrap();
        let reports = reports.lock().unwrap();
        assert!(reports.len() >= 4, "at least once per batch: {reports:?}");
        assert!(reports.is_sorted_by_key(|(done, _)| *done), "{reports:?}");
        assert!(reports.iter().all(|(_, total)| *total == bytes), "{reports:?}");
        assert_eq!(reports.last().unwrap().0, bytes, "{reports:?}");
    }
}

#[test]
fn shipped_plugins_have_static_metadata() {
    let panics = if cfg!(panic = "unwind") { "unwind" } else { "abort" };
    for (file, name, formats) in [
        ("libcrossdock_arrow_ipc_plugin.so", "arrow-ipc", &["arrow-ipc-file", "arrow-ipc-stream"][..]),
        (
            "libcrossdock_arrow_c_device_plugin.so",
            "arrow-c-device",
            &["arrow-c-device", "arrow-c-device-stream", "arrow-c-data", "arrow-c-stream"],
        ),
    ] {
        let file = built_file(file);
        let about = json(&["inspect", text(&file), "--json"]);
        assert_eq!((&about["name"], &about["loads"]), (&name.into(), &true.into()), "{about}");
        assert_eq!(about["formats"], Value::from(formats), "{about}");
        assert_eq!(
            about["interfaces"],
            serde_json::json!(["crossdock.importer/1", "crossdock.exporter/1"]),
            "{about}"
        );
        assert_eq!((&about["licence"], &about["panic"]), (&"Apache-2.0".into(), &panics.into()), "{about}");
        assert!(about["toolchain"].as_str().unwrap().starts_with("rustc 1."), "{about}");
        let words = String::from_utf8(crossdock(&["inspect", text(&file)]).stdout).unwrap();
        assert!(words.contains(name) && words.contains("loads here   yes"), "{words}");
    }
}

/// The names of the recorded calls. Asserts that every call has ended.
fn recorded(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> = serde_json::from_str(&format!("{}]", text.trim_end_matches(",\n"))).unwrap();
    let events_of = |phase: &str| events.iter().filter(|event| event["ph"] == *phase).collect::<Vec<_>>();
    assert_eq!(events_of("B").len(), events_of("E").len());
    events_of("B").iter().map(|event| event["name"].as_str().unwrap().to_string()).collect()
}

#[test]
fn option_or_environment_variable_enables_recording_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let sample = sample();
    for (name, option) in [("a.json", true), ("b.json", false)] {
        let record = at(name);
        let mut command = command(&["convert", text(&sample), text(&at("out.arrows")), "--quiet"]);
        if option {
            command.arg("--trace").arg(&record).env("CROSSDOCK_TRACE", at("not.json"));
        } else {
            command.env("CROSSDOCK_TRACE", &record);
        }
        let out = command.output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        let names = recorded(&record);
        for name in
            ["arrow-ipc (read): importer.open", "arrow-ipc (write): writer.finish", "host: sink.write"]
        {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
    }
    assert!(!at("not.json").exists(), "the option takes precedence");
    let out =
        crossdock(&["convert", text(&sample), text(&at("out.arrow")), "--trace", "/none/such/trace.json"]);
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot record calls in '/none/such/trace.json'"), "{error}");
    assert!(!at("out.arrow").exists());
}

#[test]
fn inspect_describes_a_file_with_a_table() {
    let sample = sample();
    let table = json(&["inspect", "--json", text(&sample)]);
    assert_eq!((&table["format"], &table["plugin"]), (&"arrow-ipc-file".into(), &"arrow-ipc".into()));
    let columns = table["columns"].as_array().unwrap();
    assert_eq!(
        (columns.len(), &columns[11]["name"], &columns[11]["type"]),
        (21, &"tailnum".into(), &"string".into())
    );
    assert_documented("inspect", &table);
    let out = crossdock(&["inspect", text(&sample)]);
    let shown = String::from_utf8(out.stdout).unwrap();
    assert!(
        shown.starts_with("format       arrow-ipc-file\nread by      arrow-ipc\ncolumns      year: int16\n"),
        "{shown}"
    );
    // If no plugin recognises a file, `inspect` tries to read the file itself as a plugin.
    let out = crossdock(&["inspect", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("not-elf"), "{out:?}");
}

#[test]
fn column_names_with_commas_can_be_selected() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (written, chosen) = (path("written.arrow"), path("chosen.arrow"));
    let names = ["a,b", "a", "b\\"];
    let column = |name: &str| (name.to_owned(), Arc::new(Int8Array::from(vec![1])) as ArrayRef);
    let batch = RecordBatch::try_from_iter(names.map(column)).unwrap();
    let mut file = FileWriter::try_new(std::fs::File::create(&written).unwrap(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    file.finish().unwrap();
    let out = crossdock(&["convert", text(&written), text(&chosen), "-q", "--columns", r"b\\,a\,b"]);
    assert!(out.status.success(), "{out:?}");
    let columns = json(&["inspect", "--json", text(&chosen)])["columns"].clone();
    let actual: Vec<_> =
        columns.as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(actual, ["b\\", "a,b"]);
}

#[test]
fn conversion_without_mapping_writes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (sample, mapped, read) = (sample(), folder.path().join("a.arrow"), folder.path().join("b.arrow"));
    for (output, more) in [(&mapped, None), (&read, Some("--no-map"))] {
        let arguments = ["convert", text(&sample), text(output), "-q"];
        assert!(crossdock(&[&arguments[..], more.as_slice()].concat()).status.success());
    }
    assert!(std::fs::read(mapped).unwrap() == std::fs::read(read).unwrap());
}
