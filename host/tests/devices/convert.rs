//! Tests of conversions with a linked-in plugin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::mini::{bytes, host, linked, linked_as_second};
use crate::common::{names, temporary};
use crossdock::api::{CancelFlag, Device, Options, Verdict};
use crossdock::convert::Report;
use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Error, Host, ReadOptions, Result, Session, Table, WriteOptions};
use crossdock_test_support::devices;

fn session(host: &Host, device: Device) -> Session {
    host.session().device(device).open().unwrap()
}

fn to_memory(session: &Session, values: &[i32], vias: &[&str]) -> Result<(Vec<u8>, Report)> {
    let sink = VecSink::new();
    let conversion =
        vias.iter().fold(session.conversion().to("mini"), |conversion, via| conversion.via(*via));
    let report = conversion.run(Input::bytes(bytes(values)), Output::Memory(sink.clone()))?;
    Ok((sink.take(), report))
}

#[test]
fn conversions_keep_values_on_every_device() {
    let values: Vec<i32> = (0..11).collect();
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        for vias in [&[][..], &["mini"], &["mini-capsules", "mini"]] {
            let (out, report) = to_memory(&session, &values, vias).unwrap();
            assert_eq!(out, bytes(&values));
            let kinds: Vec<_> = report.stages.iter().map(|stage| stage.kind).collect();
            assert_eq!(kinds.len(), vias.len() + 2, "{kinds:?}");
            assert!(report.stages.iter().all(|stage| (stage.rows, stage.batches) == (11, 3)), "{report:?}");
        }
        drop(session);
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn rows_of_several_files_are_converted_to_one_output() {
    let directory = temporary();
    let write = |name: &str, values: &[i32]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes(values)).unwrap();
        path
    };
    let files = [write("a.mini", &[1, 2, 3, 4, 5]), write("b.mini", &[]), write("c.mini", &[6, 7])];
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let sink = VecSink::new();
        let conversion = session.conversion().to("mini").via("mini").rows(vec![1..3, 5..9]).limit(4);
        let report = conversion.run_files(files.to_vec(), true, Output::Memory(sink.clone())).unwrap();
        assert_eq!(sink.take(), bytes(&[2, 3, 6, 7]));
        let stages: Vec<_> =
            report.stages.iter().map(|stage| (stage.kind, &*stage.format, stage.rows)).collect();
        assert_eq!(stages, [("read", "mini", 4), ("via", "mini-capsules", 4), ("write", "mini", 4)]);
        drop(session);
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn report_lists_the_copies_of_each_stage() {
    let host = host();
    let (_, report) = to_memory(&session(&host, Device::CPU), &[1, 2, 3], &["mini"]).unwrap();
    assert!(report.stages.iter().all(|stage| stage.copied.bytes() == 0), "{report:?}");
    let (_, report) = to_memory(&session(&host, Device::UNTOUCHABLE), &[1, 2, 3], &["mini"]).unwrap();
    let [read, via, write] = &report.stages[..] else { panic!("{report:?}") };
    assert_eq!((read.copied.host_to_device.bytes, read.copied.device_to_host.bytes), (12, 0));
    assert_eq!(via.copied.bytes(), 0);
    assert_eq!((write.copied.host_to_device.bytes, write.copied.device_to_host.bytes), (0, 12));
}

/// The content of a file of the format that supports only host memory.
fn of_host(values: &[i32]) -> Vec<u8> {
    [b"HOST", &bytes(values)[4..]].concat()
}

#[test]
fn batches_of_host_only_formats_are_moved_to_the_sessions_device() {
    let directory = temporary();
    let path = directory.path().join("in.minih");
    std::fs::write(&path, of_host(&[1, 2, 3, 4, 5])).unwrap();
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let input = || Input::bytes(of_host(&[1, 2, 3, 4, 5]));
        let whole = |reader| Table::from_reader(&session, reader).unwrap();
        let tables = [
            whole(session.read(input(), &ReadOptions::default()).unwrap()),
            whole(session.read_shared(input(), &ReadOptions::default()).unwrap()),
            Table::read(&session, &path).unwrap(),
        ];
        for table in &tables {
            assert_eq!((table.rows(), table.batches().len()), (5, 2));
            assert!(table.batches().iter().all(|batch| batch.device() == device), "{device}");
            let sink = VecSink::new();
            let to = WriteOptions { to: Some("mini".into()), ..WriteOptions::default() };
            table.write_to(Output::Memory(sink.clone()), &to).unwrap();
            assert_eq!(sink.take(), bytes(&[1, 2, 3, 4, 5]), "{device}");
        }
        let plan = session.plan(input(), &ReadOptions::default(), "mini", &Options::new()).unwrap();
        assert_eq!((plan.from, plan.columns[0].bytes), (device, Some(20)));
        drop((tables, session));
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn external_objects_are_moved_to_the_sessions_device() {
    for device in devices().iter().copied() {
        let host = host();
        let (on_cpu, on_device) = (session(&host, Device::CPU), session(&host, device));
        let mut reader = on_cpu.read(Input::bytes(bytes(&[1, 2])), &ReadOptions::default()).unwrap();
        let mut writer = on_cpu.write_capsules("mini", reader.schema(), &Options::new()).unwrap();
        let capsules = writer.write(reader.next().unwrap().unwrap()).unwrap();
        let mut back = on_device.read_capsules("mini", capsules, None, &Options::new()).unwrap();
        assert_eq!(back.next().unwrap().unwrap().device(), device);
    }
}

#[test]
fn report_counts_batches_that_were_moved_between_devices() {
    let host = host();
    let session = session(&host, Device::UNTOUCHABLE);
    let sink = VecSink::new();
    let conversion = session.conversion().to("mini-of-host").via("mini-of-host");
    let report =
        conversion.run(Input::bytes(of_host(&[1, 2, 3, 4, 5])), Output::Memory(sink.clone())).unwrap();
    assert_eq!(sink.take(), of_host(&[1, 2, 3, 4, 5]));
    let stages = report.stages.iter().map(|s| (s.kind, s.format.as_str(), s.rows, s.batches, s.bytes));
    assert_eq!(
        stages.collect::<Vec<_>>(),
        [
            ("read", "mini-of-host", 5, 2, 20),
            ("move", "untouchable", 5, 2, 20),
            ("via", "mini-of-host", 5, 2, 20),
            ("move", "cpu", 5, 2, 20),
            ("write", "mini-of-host", 5, 2, 24),
        ]
    );
    let copied: Vec<_> = report
        .stages
        .iter()
        .map(|s| (s.copied.host_to_device.bytes, s.copied.device_to_host.bytes))
        .collect();
    // The last move includes the copies that the host made for the intermediate format.
    assert_eq!(copied, [(0, 0), (20, 0), (0, 0), (20, 40), (0, 0)]);
}

#[test]
fn input_without_rows_converts_to_output_without_rows() {
    let host = host();
    for vias in [&[][..], &["mini"]] {
        let (out, report) = to_memory(&session(&host, Device::CPU), &[], vias).unwrap();
        assert_eq!(out, b"MINI");
        assert!(report.stages.iter().all(|stage| stage.rows == 0));
    }
}

#[test]
fn failed_conversion_keeps_the_old_file() {
    let directory = temporary();
    let out = directory.path().join("out.mini");
    std::fs::write(&out, "old content").unwrap();
    let host = host();
    let session = session(&host, Device::CPU);
    for (bad, message) in [(-666, "value -666"), (-667, "panicked")] {
        let output = Output::create(&out, session.cancel_flag()).unwrap();
        let values = [1, 2, 3, 4, bad];
        let error = session.conversion().run(Input::bytes(bytes(&values)), output).unwrap_err();
        assert!(matches!(error, Error::Plugin { .. }), "{error:?}");
        let line = error.one_line();
        assert!(line.contains("mini 0.1.0 could not write") && line.contains(message), "{line}");
        assert!(!line.contains('\n'));
        assert_eq!(names(directory.path()), ["out.mini"]);
        assert_eq!(std::fs::read(&out).unwrap(), b"old content");
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn cancelled_conversion_leaves_no_file() {
    let directory = temporary();
    let cancel = CancelFlag::new();
    let host = host();
    let session = host.session().cancel_flag(cancel.clone()).open().unwrap();
    let output = Output::create(directory.path().join("out.mini"), &cancel).unwrap();
    let conversion = session.conversion().progress(Arc::new(move |_, _| cancel.cancel()));
    let error = conversion.run(Input::bytes(bytes(&[1; 100])), output).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn progress_callback_receives_the_total() {
    let host = host();
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let receiver = seen.clone();
    let conversion =
        session(&host, Device::CPU).conversion().to("mini").progress(Arc::new(move |done, total| {
            receiver.0.store(done, Ordering::SeqCst);
            receiver.1.store(total, Ordering::SeqCst);
        }));
    conversion.run(Input::bytes(bytes(&[1; 9])), Output::Memory(VecSink::new())).unwrap();
    assert_eq!((seen.0.load(Ordering::SeqCst), seen.1.load(Ordering::SeqCst)), (40, 40));
}

#[test]
fn error_for_an_unknown_column_lists_the_known_columns() {
    let host = host();
    let session = session(&host, Device::CPU);
    let run = |columns: &[&str]| {
        let output = Output::Memory(VecSink::new());
        session
            .conversion()
            .to("mini")
            .columns(columns.iter().copied())
            .run(Input::bytes(bytes(&[1])), output)
    };
    assert!(run(&["v"]).is_ok());
    let error = run(&["w"]).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("'w'") && error.to_string().contains("columns are: v"), "{error}");
}

#[test]
fn error_for_an_unknown_format_names_the_option_and_the_known_formats() {
    let host = host();
    let session = session(&host, Device::CPU);
    let run = |conversion: crossdock::convert::Conversion, content: Vec<u8>| {
        conversion.run(Input::bytes(content), Output::Memory(VecSink::new())).unwrap_err()
    };
    let good = || bytes(&[1]);
    let cases = [
        (run(session.conversion().from("nope"), good()), "--from nope"),
        (run(session.conversion().to("nope"), good()), "--to nope"),
        (run(session.conversion().to("mini").via("nope"), good()), "--via nope"),
        (run(session.conversion().to("mini-capsules"), good()), "through capsules"),
    ];
    for (error, part) in cases {
        assert!(matches!(error, Error::Usage(_)), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = run(session.conversion().to("mini"), b"something else".to_vec());
    assert!(matches!(error, Error::Unrecognised(_)), "{error:?}");
    let error = run(session.conversion(), good());
    assert!(error.to_string().contains("pass --to NAME, with one of: mini (.mini)"), "{error}");
}

#[test]
fn rejects_options_that_the_format_does_not_support() {
    let host = host();
    let session = session(&host, Device::CPU);
    let conversion = session.conversion().to("mini").write_options(Options::new().with("colour", "red"));
    let error = conversion.run(Input::bytes(bytes(&[1])), Output::Memory(VecSink::new())).unwrap_err();
    assert!(error.one_line().contains("colour"), "{}", error.one_line());
}

#[test]
fn error_for_an_ambiguous_input_names_both_plugins_and_the_option() {
    let search = Search::nowhere().linked(linked()).linked(linked_as_second());
    let host = Host::builder().search(search).build().unwrap();
    let session = session(&host, Device::CPU);
    let input = || Input::bytes(bytes(&[1]));
    let error = session.read(input(), &ReadOptions::default()).err().unwrap();
    let message = error.to_string();
    assert!(message.contains("mini of mini, mini of second") && message.contains("--from"), "{message}");
    let from = ReadOptions { from: Some("second".into()), ..ReadOptions::default() };
    assert_eq!(session.read(input(), &from).unwrap().plugin().name(), "second");
}

#[test]
fn rejects_from_option_that_contradicts_the_first_bytes() {
    let host = host();
    let session = session(&host, Device::CPU);
    let options = ReadOptions { from: Some("mini".into()), ..ReadOptions::default() };
    let error = session.read(Input::bytes(b"ODD!".to_vec()), &options).err().unwrap().one_line();
    assert!(error.contains("--from mini: the first bytes of "), "{error}");
    assert!(error.contains(" are those of mini-odd; omit the option, or pass --from mini-odd"), "{error}");
}

#[test]
fn inputs_are_recognised_by_bytes_and_outputs_by_extension() {
    let directory = temporary();
    let path = directory.path().join("data.txt");
    std::fs::write(&path, bytes(&[5, 6])).unwrap();
    let host = host();
    let session = session(&host, Device::CPU);
    let input = Input::open(&path, session.cancel_flag()).unwrap();
    let out = directory.path().join("out.mini");
    let output = Output::create(&out, session.cancel_flag()).unwrap();
    session.conversion().run(input, output).unwrap();
    assert_eq!(std::fs::read(out).unwrap(), bytes(&[5, 6]));
}

#[test]
fn plan_has_a_verdict_and_bytes_for_each_column() {
    let host = host();
    let session = session(&host, Device::CPU);
    let input = Input::bytes(bytes(&[1, 2, 3, 4, 5]));
    let plan = session.plan(input, &ReadOptions::default(), "mini", &Options::new()).unwrap();
    assert_eq!((plan.rows, plan.batches, plan.columns.len()), (5, 2, 1));
    let column = &plan.columns[0];
    assert_eq!((column.name.as_str(), column.verdict, column.bytes), ("v", Verdict::Converted, Some(20)));
    assert_eq!(plan.bytes_moved(), 20);
}

#[test]
fn plan_through_capsules_tests_each_supported_column_separately() {
    let host = host();
    let session = session(&host, Device::CPU);
    let input = Input::bytes(b"ODD!".to_vec());
    let plan = session.plan_via(input, &ReadOptions::default(), "mini-capsules", &Options::new()).unwrap();
    let verdicts: Vec<_> = plan.columns.iter().map(|column| (column.name.as_str(), column.verdict)).collect();
    let expected =
        [("text", Verdict::Unsupported), ("v", Verdict::Converted), ("panic", Verdict::Unsupported)];
    assert_eq!(verdicts, expected);
    assert!(plan.columns[2].reason.contains("a column named panic"), "{:?}", plan.columns);
}

#[test]
fn rejects_a_batch_of_another_schema() {
    use arrow_schema::{DataType, Field, Schema};
    let host = host();
    let session = session(&host, Device::CPU);
    let batch =
        session.read(Input::bytes(bytes(&[1])), &ReadOptions::default()).unwrap().next().unwrap().unwrap();
    let other = Arc::new(Schema::new(vec![Field::new("w", DataType::Int32, false)]));
    let to = WriteOptions { to: Some("mini".into()), ..WriteOptions::default() };
    let mut writer = session.write(Output::Memory(VecSink::new()), &other, &to).unwrap();
    let error = writer.write(batch).err().unwrap();
    assert!(error.to_string().contains("expected column 'w', got 'v'"), "{error}");
    let error = writer.finish().err().unwrap();
    assert!(error.to_string().contains("an earlier batch was not written"), "{error}");
}

#[test]
fn capsule_formats_are_found_by_plugin_name_and_by_format_name() {
    let host = host();
    let session = session(&host, Device::CPU);
    let read = || session.read(Input::bytes(bytes(&[7, 8])), &ReadOptions::default()).unwrap();
    let schema = read().schema().clone();
    for name in ["mini", "mini-capsules"] {
        let mut writer = session.write_capsules(name, &schema, &Options::new()).unwrap();
        assert_eq!(writer.format(), "mini-capsules");
        let capsules = writer.write(read().next().unwrap().unwrap()).unwrap();
        let mut back = session.read_capsules(name, capsules, None, &Options::new()).unwrap();
        assert_eq!(back.next().unwrap().unwrap().len(), 2);
        assert_eq!(back.format(), "mini-capsules");
    }
    let error = session.write_capsules("nope", &schema, &Options::new()).err().unwrap();
    assert!(error.to_string().contains("nope"), "{error}");
}

#[test]
fn conversion_that_loses_rows_is_an_error() {
    let host = host();
    let session = session(&host, Device::CPU);
    let error = to_memory(&session, &[1, 2, 3, 4, 5], &["mini-capsules"]).err().unwrap();
    let message = error.one_line();
    assert!(message.contains("through mini") && message.contains("did not return 1 rows"), "{message}");
}

#[test]
fn reader_returns_an_error_at_each_call_after_a_failed_read() {
    let host = host();
    let session = session(&host, Device::CPU);
    let read = |bytes: &[u8]| session.read(Input::bytes(bytes.to_vec()), &ReadOptions::default()).unwrap();
    let mut damaged = bytes(&[1, 2, 3, 4]);
    damaged.extend([5, 6]);
    let mut reader = read(&damaged);
    assert_eq!(reader.next().unwrap().unwrap().len(), 4);
    assert!(reader.next().unwrap_err().one_line().contains("a value of 2 bytes, expected 4"));
    for _ in 0..2 {
        assert!(reader.next().unwrap_err().one_line().contains("an earlier read failed"));
    }
    let results: Vec<bool> = read(&damaged).map(|batch| batch.is_ok()).collect();
    assert_eq!(results, [true, false], "the iterator returns the error once and then ends");
    let mut reader = read(&bytes(&[1]));
    assert!(reader.next().unwrap().is_some());
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none());
}
