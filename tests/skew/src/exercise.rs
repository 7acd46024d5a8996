//! Exercises a fixture under the current host: every interface, in both directions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock::api::{Device, Options, Validate, Verdict};
use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, WriteOptions};
use crossdock_memory_backend::Backend;

/// The part of the ABI that a fixture implements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All fields of all structs.
    All,
    /// Only the fields that the host requires.
    Required,
}

fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().fold(b"SKEW".to_vec(), |mut bytes, value| {
        bytes.extend(value.to_le_bytes());
        bytes
    })
}

/// Runs all checks. Panics if a check fails.
pub fn exercise(plugin: &Path, coverage: Coverage) {
    let backend = Backend::builder().untouchable(true).limit_bytes(1 << 20).build();
    let search = Search::nowhere().with_path(plugin);
    let host = Host::builder().backend(backend).search(search).threads(2).build();
    let host = host.unwrap_or_else(|error| panic!("{}: {}", plugin.display(), error.one_line()));
    let session = host.session().validate(Validate::Full).byte_budget(4096).open().unwrap();
    formats(&session, coverage);
    bytes_round_trip(&session);
    failures_have_messages(&session);
    plugin_receives_settings(&session, coverage);
    plan_has_a_verdict_for_each_column(&session, coverage);
    if coverage == Coverage::All {
        plugin_is_recognised_and_reports_progress(&session);
        capsules_round_trip(&session);
    }
    drop(session);
    let leaks = host.settle();
    assert!(leaks.is_empty(), "{}: leaked: {leaks:?}", plugin.display());
}

fn formats(session: &Session, coverage: Coverage) {
    let plugin = session.plugin("skew-plugin").unwrap();
    for formats in [plugin.importer_formats(), plugin.exporter_formats()] {
        let names: Vec<_> =
            formats.iter().map(|f| (f.name.as_str(), f.description.as_str(), f.bytes)).collect();
        assert_eq!(names, [("skew", "int32 values", true), ("skew-capsules", "the same in memory", false)]);
        let options: Vec<_> =
            formats[0].options.iter().map(|o| (o.key.as_str(), o.description.as_str())).collect();
        if coverage == Coverage::All {
            assert_eq!([options[0].0, options[1].0], ["tell", "other"]);
            assert!(options[0].1.starts_with("yes: fails") && options[1].1 == "nothing", "{options:?}");
            assert_eq!(formats[0].magics, [(0, b"SKEW".to_vec())]);
            assert_eq!(formats[0].extensions, [".skew"]);
            assert_eq!(formats[1].capsules, ["arrow_schema", "arrow_device_array"]);
            assert_eq!(formats[1].device_types, [Device::CPU.r#type]);
        } else {
            assert!(options.is_empty() && formats[0].magics.is_empty() && formats[1].capsules.is_empty());
        }
    }
}

fn read_skew(options: Options) -> ReadOptions {
    ReadOptions { from: Some("skew".into()), options, ..ReadOptions::default() }
}

fn write_skew() -> WriteOptions {
    WriteOptions { to: Some("skew".into()), ..WriteOptions::default() }
}

/// Reads seven values as three batches, and asserts that writing them returns the same bytes.
fn bytes_round_trip(session: &Session) {
    let content = bytes(&[1, -2, 3, 4, 5, 6, 7]);
    let reader = session.read(Input::bytes(content.clone()), &read_skew(Options::new())).unwrap();
    let schema = reader.schema().clone();
    assert_eq!((schema.fields().len(), schema.field(0).name().as_str()), (1, "v"));
    let sink = VecSink::new();
    let mut writer = session.write(Output::Memory(sink.clone()), &schema, &write_skew()).unwrap();
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        rows.push(batch.len());
        assert!(writer.write(batch).unwrap().is_empty());
    }
    writer.finish().unwrap();
    assert_eq!(rows, [3, 3, 1]);
    assert_eq!(sink.take(), content);
}

fn failures_have_messages(session: &Session) {
    let message_of = |error: crossdock::Error| error.one_line();
    let mut cut = bytes(&[1, 2, 3, 4]);
    cut.pop();
    let mut reader = session.read(Input::bytes(cut), &read_skew(Options::new())).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().len(), 3);
    let message = message_of(reader.next().err().unwrap());
    assert!(message.contains("skew-plugin 1.0.0") && message.contains("a value was cut short"), "{message}");

    let wrong = read_skew(Options::new().with("colour", "red"));
    let message = message_of(session.read(Input::bytes(bytes(&[])), &wrong).err().unwrap());
    assert!(message.contains("skew-plugin 1.0.0") && message.contains("tell"), "{message}");

    let mut reader = session.read(Input::bytes(bytes(&[-1])), &read_skew(Options::new())).unwrap();
    let output = Output::Memory(VecSink::new());
    let mut writer = session.write(output, &reader.schema().clone(), &write_skew()).unwrap();
    let message = message_of(writer.write(reader.next().unwrap().unwrap()).err().unwrap());
    assert!(message.contains("the value -1 cannot be written"), "{message}");
}

/// Asserts that the plugin receives the call's device, the session's settings, and the input. The
/// plugin returns them in an error message.
fn plugin_receives_settings(session: &Session, coverage: Coverage) {
    let report_settings = read_skew(Options::new().with("tell", "yes"));
    let message = session.read(Input::bytes(bytes(&[1, 2])), &report_settings).err().unwrap().one_line();
    let mut expected = "device 1, session's device 1, 12 bytes".to_owned();
    if coverage == Coverage::All {
        expected += ", limit 1048576, threads 2, budget 4096, validate 1";
    }
    assert!(message.contains(&expected), "expected '{expected}' in: {message}");
}

fn plan_has_a_verdict_for_each_column(session: &Session, coverage: Coverage) {
    let reader = session.read(Input::bytes(bytes(&[1])), &read_skew(Options::new())).unwrap();
    let plan = session.plan_columns("skew", reader.schema(), Device::CPU, &Options::new()).unwrap();
    let plan: Vec<_> = plan.iter().map(|c| (c.name.as_str(), c.verdict, c.to, c.reason.as_str())).collect();
    let reason = if coverage == Coverage::All { "written out" } else { "" };
    assert_eq!(plan, [("v", Verdict::Converted, Device::CPU, reason)]);
}

fn plugin_is_recognised_and_reports_progress(session: &Session) {
    let progress_bytes = Arc::new(AtomicU64::new(0));
    let last = progress_bytes.clone();
    let progress = Arc::new(move |done, _| last.store(done, Ordering::SeqCst));
    let conversion = session.conversion().to("skew").progress(progress).via("skew-plugin");
    let sink = VecSink::new();
    conversion.run(Input::bytes(bytes(&[1, 2, 3, 4])), Output::Memory(sink.clone())).unwrap();
    assert_eq!((sink.take(), progress_bytes.load(Ordering::SeqCst)), (bytes(&[1, 2, 3, 4]), 20));
}

fn capsules_round_trip(session: &Session) {
    let mut reader = session.read(Input::bytes(bytes(&[8, 9])), &read_skew(Options::new())).unwrap();
    let schema = reader.schema().clone();
    let mut writer = session.write_capsules("skew-capsules", &schema, &Options::new()).unwrap();
    let capsules = writer.write(reader.next().unwrap().unwrap()).unwrap();
    assert!(writer.finish().unwrap().capsules.is_empty());
    let names: Vec<_> = capsules.iter().map(|c| c.name().to_str().unwrap()).collect();
    assert_eq!(names, ["arrow_schema", "arrow_device_array"]);

    let again = session.read_capsules("skew-capsules", capsules, None, &Options::new()).unwrap();
    let sink = VecSink::new();
    let mut writer = session.write(Output::Memory(sink.clone()), &schema, &write_skew()).unwrap();
    for batch in again {
        writer.write(batch.unwrap()).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(sink.take(), bytes(&[8, 9]));
}
