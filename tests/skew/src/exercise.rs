//! What today's host does with a fixture: everything that crosses, both ways.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock::api::{Device, Options, Validate, Verdict};
use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, WriteOptions};
use crossdock_memory_backend::Backend;

/// How much of the contract the fixture knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Knows {
    /// All of it.
    All,
    /// What nobody can do without.
    Least,
}

fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().fold(b"SKEW".to_vec(), |mut bytes, value| {
        bytes.extend(value.to_le_bytes());
        bytes
    })
}

/// Runs it all; a panic is a failure.
pub fn exercise(plugin: &Path, knows: Knows) {
    let backend = Backend::builder().untouchable(true).limit_bytes(1 << 20).build();
    let search = Search::nowhere().given(plugin);
    let host = Host::builder().backend(backend).search(search).threads(2).build();
    let host = host.unwrap_or_else(|error| panic!("{}: {}", plugin.display(), error.one_line()));
    let session = host.session().validate(Validate::Full).byte_budget(4096).open().unwrap();
    formats(&session, knows);
    bytes_come_and_go(&session);
    failures_have_words(&session);
    the_host_is_heard(&session, knows);
    a_plan_has_a_verdict_for_each_column(&session, knows);
    if knows == Knows::All {
        it_is_recognised_and_tells_of_progress(&session);
        capsules_come_and_go(&session);
    }
    drop(session);
    let left = host.settle();
    assert!(left.is_empty(), "{}: left behind: {left:?}", plugin.display());
}

fn formats(session: &Session, knows: Knows) {
    let plugin = session.plugin("skew-plugin").unwrap();
    for formats in [plugin.importer_formats(), plugin.exporter_formats()] {
        let names: Vec<_> =
            formats.iter().map(|f| (f.name.as_str(), f.description.as_str(), f.bytes)).collect();
        assert_eq!(names, [("skew", "int32 values", true), ("skew-capsules", "the same in memory", false)]);
        let options: Vec<_> =
            formats[0].options.iter().map(|o| (o.key.as_str(), o.description.as_str())).collect();
        if knows == Knows::All {
            assert_eq!(options, [("tell", "yes: fails, with what it was told"), ("other", "nothing")]);
            assert_eq!(formats[0].magics, [(0, b"SKEW".to_vec())]);
            assert_eq!(formats[0].endings, [".skew"]);
            assert_eq!(formats[1].capsules, ["arrow_schema", "arrow_device_array"]);
            assert_eq!(formats[1].device_types, [Device::CPU.r#type]);
        } else {
            assert!(options.is_empty() && formats[0].magics.is_empty() && formats[1].capsules.is_empty());
        }
    }
}

fn from(options: Options) -> ReadOptions {
    ReadOptions { from: Some("skew".into()), options, ..ReadOptions::default() }
}

fn to_skew() -> WriteOptions {
    WriteOptions { to: Some("skew".into()), ..WriteOptions::default() }
}

/// Seven values are three batches; what is written is what was read.
fn bytes_come_and_go(session: &Session) {
    let content = bytes(&[1, -2, 3, 4, 5, 6, 7]);
    let reader = session.read(Input::bytes(content.clone()), &from(Options::new())).unwrap();
    let schema = reader.schema().clone();
    assert_eq!((schema.fields().len(), schema.field(0).name().as_str()), (1, "v"));
    let sink = VecSink::new();
    let mut writer = session.write(Output::Memory(sink.clone()), &schema, &to_skew()).unwrap();
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

fn failures_have_words(session: &Session) {
    let said = |error: crossdock::Error| error.one_line();
    let mut cut = bytes(&[1, 2, 3, 4]);
    cut.pop();
    let mut reader = session.read(Input::bytes(cut), &from(Options::new())).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().len(), 3);
    let words = said(reader.next().err().unwrap());
    assert!(words.contains("skew-plugin 1.0.0") && words.contains("a value was cut short"), "{words}");

    let wrong = from(Options::new().with("colour", "red"));
    let words = said(session.read(Input::bytes(bytes(&[])), &wrong).err().unwrap());
    assert!(words.contains("skew-plugin 1.0.0") && words.contains("tell"), "{words}");

    let mut reader = session.read(Input::bytes(bytes(&[-1])), &from(Options::new())).unwrap();
    let output = Output::Memory(VecSink::new());
    let mut writer = session.write(output, &reader.schema().clone(), &to_skew()).unwrap();
    let words = said(writer.write(reader.next().unwrap().unwrap()).err().unwrap());
    assert!(words.contains("the value -1 cannot be written"), "{words}");
}

/// What stood in the call, the session's settings and the input arrives.
fn the_host_is_heard(session: &Session, knows: Knows) {
    let tell = from(Options::new().with("tell", "yes"));
    let words = session.read(Input::bytes(bytes(&[1, 2])), &tell).err().unwrap().one_line();
    let mut expected = "device 1, session's device 1, 12 bytes".to_owned();
    if knows == Knows::All {
        expected += ", limit 1048576, threads 2, budget 4096, validate 1";
    }
    assert!(words.contains(&expected), "expected '{expected}' in: {words}");
}

fn a_plan_has_a_verdict_for_each_column(session: &Session, knows: Knows) {
    let reader = session.read(Input::bytes(bytes(&[1])), &from(Options::new())).unwrap();
    let plan = session.plan_columns("skew", reader.schema(), Device::CPU, &Options::new()).unwrap();
    let plan: Vec<_> = plan.iter().map(|c| (c.name.as_str(), c.verdict, c.to, c.reason.as_str())).collect();
    let reason = if knows == Knows::All { "written out" } else { "" };
    assert_eq!(plan, [("v", Verdict::Converted, Device::CPU, reason)]);
}

fn it_is_recognised_and_tells_of_progress(session: &Session) {
    let heard = Arc::new(AtomicU64::new(0));
    let last = heard.clone();
    let progress = Arc::new(move |done, _| last.store(done, Ordering::SeqCst));
    let conversion = session.conversion().to("skew").progress(progress).via("skew-plugin");
    let sink = VecSink::new();
    conversion.run(Input::bytes(bytes(&[1, 2, 3, 4])), Output::Memory(sink.clone())).unwrap();
    assert_eq!((sink.take(), heard.load(Ordering::SeqCst)), (bytes(&[1, 2, 3, 4]), 20));
}

fn capsules_come_and_go(session: &Session) {
    let mut reader = session.read(Input::bytes(bytes(&[8, 9])), &from(Options::new())).unwrap();
    let schema = reader.schema().clone();
    let mut writer = session.write_capsules("skew-capsules", &schema, &Options::new()).unwrap();
    let capsules = writer.write(reader.next().unwrap().unwrap()).unwrap();
    assert!(writer.finish().unwrap().capsules.is_empty());
    let names: Vec<_> = capsules.iter().map(|c| c.name().to_str().unwrap()).collect();
    assert_eq!(names, ["arrow_schema", "arrow_device_array"]);

    let again = session.read_capsules("skew-capsules", capsules, None, &Options::new()).unwrap();
    let sink = VecSink::new();
    let mut writer = session.write(Output::Memory(sink.clone()), &schema, &to_skew()).unwrap();
    for batch in again {
        writer.write(batch.unwrap()).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(sink.take(), bytes(&[8, 9]));
}
