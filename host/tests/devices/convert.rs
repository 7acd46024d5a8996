//! Conversions, with a plugin that is linked in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::mini::{bytes, host, linked, twin};
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
fn what_goes_in_comes_out_directly_and_through_capsules_on_every_device() {
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
fn the_report_tells_what_the_ledger_saw_copied_for_each_stage() {
    let host = host();
    let (_, report) = to_memory(&session(&host, Device::CPU), &[1, 2, 3], &["mini"]).unwrap();
    assert!(report.stages.iter().all(|stage| stage.copied.bytes() == 0), "{report:?}");
    let (_, report) = to_memory(&session(&host, Device::UNTOUCHABLE), &[1, 2, 3], &["mini"]).unwrap();
    let [read, via, write] = &report.stages[..] else { panic!("{report:?}") };
    assert_eq!((read.copied.host_to_device.bytes, read.copied.device_to_host.bytes), (12, 0));
    assert_eq!(via.copied.bytes(), 0);
    assert_eq!((write.copied.host_to_device.bytes, write.copied.device_to_host.bytes), (0, 12));
}

/// The content of a file of the format that knows host memory alone.
fn of_host(values: &[i32]) -> Vec<u8> {
    [b"HOST", &bytes(values)[4..]].concat()
}

#[test]
fn what_formats_of_host_memory_read_arrives_on_the_session_s_device() {
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
fn foreign_objects_in_host_memory_arrive_on_the_session_s_device() {
    for device in devices().iter().copied() {
        let host = host();
        let (here, there) = (session(&host, Device::CPU), session(&host, device));
        let mut reader = here.read(Input::bytes(bytes(&[1, 2])), &ReadOptions::default()).unwrap();
        let mut writer = here.write_capsules("mini", reader.schema(), &Options::new()).unwrap();
        let capsules = writer.write(reader.next().unwrap().unwrap()).unwrap();
        let mut back = there.read_capsules("mini", capsules, None, &Options::new()).unwrap();
        assert_eq!(back.next().unwrap().unwrap().device(), device);
    }
}

#[test]
fn a_conversion_tells_which_batches_were_moved_to_the_device_and_back() {
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
    // The host moves what goes through too, and tells it with what it moves to the output.
    assert_eq!(copied, [(0, 0), (20, 0), (0, 0), (20, 40), (0, 0)]);
}

#[test]
fn an_input_without_rows_converts_to_an_output_without_rows() {
    let host = host();
    for vias in [&[][..], &["mini"]] {
        let (out, report) = to_memory(&session(&host, Device::CPU), &[], vias).unwrap();
        assert_eq!(out, b"MINI");
        assert!(report.stages.iter().all(|stage| stage.rows == 0));
    }
}

#[test]
fn a_failure_in_the_middle_leaves_the_old_file_and_nothing_else() {
    let directory = temporary();
    let out = directory.path().join("out.mini");
    std::fs::write(&out, "what was there").unwrap();
    let host = host();
    let session = session(&host, Device::CPU);
    for (bad, words) in [(-666, "value -666"), (-667, "panicked")] {
        let output = Output::create(&out, session.cancel_flag()).unwrap();
        let values = [1, 2, 3, 4, bad];
        let error = session.conversion().run(Input::bytes(bytes(&values)), output).unwrap_err();
        assert!(matches!(error, Error::Plugin { .. }), "{error:?}");
        let line = error.one_line();
        assert!(line.contains("mini 0.1.0 could not write") && line.contains(words), "{line}");
        assert!(!line.contains('\n'));
        assert_eq!(names(directory.path()), ["out.mini"]);
        assert_eq!(std::fs::read(&out).unwrap(), b"what was there");
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_cancelled_conversion_says_so_and_leaves_no_file() {
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
fn progress_is_heard_with_the_total() {
    let host = host();
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let heard = seen.clone();
    let conversion =
        session(&host, Device::CPU).conversion().to("mini").progress(Arc::new(move |done, total| {
            heard.0.store(done, Ordering::SeqCst);
            heard.1.store(total, Ordering::SeqCst);
        }));
    conversion.run(Input::bytes(bytes(&[1; 9])), Output::Memory(VecSink::new())).unwrap();
    assert_eq!((seen.0.load(Ordering::SeqCst), seen.1.load(Ordering::SeqCst)), (40, 40));
}

#[test]
fn columns_that_are_not_there_are_named_with_those_that_are() {
    let host = host();
    let session = session(&host, Device::CPU);
    let run = |columns: &[&str]| {
        let columns = columns.iter().map(|name| name.to_string()).collect();
        let output = Output::Memory(VecSink::new());
        session.conversion().to("mini").columns(columns).run(Input::bytes(bytes(&[1])), output)
    };
    assert!(run(&["v"]).is_ok());
    let error = run(&["w"]).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("'w'") && error.to_string().contains("columns: v"), "{error}");
}

#[test]
fn unknown_names_and_formats_are_named_with_the_option_and_the_known_ones() {
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
    for (error, words) in cases {
        assert!(matches!(error, Error::Usage(_)), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = run(session.conversion().to("mini"), b"something else".to_vec());
    assert!(matches!(error, Error::Unrecognised(_)), "{error:?}");
    let error = run(session.conversion(), good());
    assert!(error.to_string().contains("--to: mini (.mini)"), "{error}");
}

#[test]
fn an_option_that_the_format_does_not_know_is_refused() {
    let host = host();
    let session = session(&host, Device::CPU);
    let conversion = session.conversion().to("mini").write_options(Options::new().with("colour", "red"));
    let error = conversion.run(Input::bytes(bytes(&[1])), Output::Memory(VecSink::new())).unwrap_err();
    assert!(error.one_line().contains("colour"), "{}", error.one_line());
}

#[test]
fn two_plugins_that_claim_one_input_are_an_error_that_names_both_and_the_way_out() {
    let search = Search::nowhere().linked(linked()).linked(twin());
    let host = Host::builder().search(search).build().unwrap();
    let session = session(&host, Device::CPU);
    let input = || Input::bytes(bytes(&[1]));
    let error = session.read(input(), &ReadOptions::default()).err().unwrap();
    let words = error.to_string();
    assert!(words.contains("mini of mini, mini of twin") && words.contains("--from"), "{words}");
    let from = ReadOptions { from: Some("twin".into()), ..ReadOptions::default() };
    assert_eq!(session.read(input(), &from).unwrap().plugin().name(), "twin");
}

#[test]
fn a_format_that_is_known_by_its_bytes_is_not_read_from_those_of_another() {
    let host = host();
    let session = session(&host, Device::CPU);
    let options = ReadOptions { from: Some("mini".into()), ..ReadOptions::default() };
    let error = session.read(Input::bytes(b"ODD!".to_vec()), &options).err().unwrap().one_line();
    assert!(error.contains("--from mini: the first bytes of "), "{error}");
    assert!(error.contains(" are those of mini-odd; leave --from out, or say --from mini-odd"), "{error}");
}

#[test]
fn an_input_is_known_by_its_bytes_whatever_its_name_and_an_output_by_its_ending() {
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
fn a_plan_gives_each_column_its_verdict_and_bytes() {
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
fn a_plan_by_capsules_tries_each_column_that_the_exporter_takes_alone() {
    let host = host();
    let session = session(&host, Device::CPU);
    let input = Input::bytes(b"ODD!".to_vec());
    let plan = session.plan_via(input, &ReadOptions::default(), "mini-capsules", &Options::new()).unwrap();
    let verdicts: Vec<_> = plan.columns.iter().map(|column| (column.name.as_str(), column.verdict)).collect();
    let expected =
        [("text", Verdict::Unsupported), ("v", Verdict::Converted), ("panic", Verdict::Unsupported)];
    assert_eq!(verdicts, expected);
    assert!(plan.columns[2].reason.contains("a column called panic"), "{:?}", plan.columns);
}

#[test]
fn a_batch_of_another_schema_is_not_written() {
    use arrow_schema::{DataType, Field, Schema};
    let host = host();
    let session = session(&host, Device::CPU);
    let batch =
        session.read(Input::bytes(bytes(&[1])), &ReadOptions::default()).unwrap().next().unwrap().unwrap();
    let other = Arc::new(Schema::new(vec![Field::new("w", DataType::Int32, false)]));
    let to = WriteOptions { to: Some("mini".into()), ..WriteOptions::default() };
    let mut writer = session.write(Output::Memory(VecSink::new()), &other, &to).unwrap();
    let error = writer.write(batch).err().unwrap();
    assert!(error.to_string().contains("expected a column 'w', got 'v'"), "{error}");
    let error = writer.finish().err().unwrap();
    assert!(error.to_string().contains("a batch before was not written"), "{error}");
}

#[test]
fn capsules_are_meant_by_a_plugin_s_name_as_by_a_format_s() {
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
fn rows_that_do_not_come_back_are_an_error_and_not_a_shorter_table() {
    let host = host();
    let session = session(&host, Device::CPU);
    let error = to_memory(&session, &[1, 2, 3, 4, 5], &["mini-capsules"]).err().unwrap();
    let words = error.one_line();
    assert!(words.contains("via mini") && words.contains("1 of the rows that went out have not"), "{words}");
}

#[test]
fn after_a_failure_a_reader_gives_nothing_more_and_says_so() {
    let host = host();
    let session = session(&host, Device::CPU);
    let read = |bytes: &[u8]| session.read(Input::bytes(bytes.to_vec()), &ReadOptions::default()).unwrap();
    let mut damaged = bytes(&[1, 2, 3, 4]);
    damaged.extend([5, 6]);
    let mut reader = read(&damaged);
    assert_eq!(reader.next().unwrap().unwrap().len(), 4);
    assert!(reader.next().unwrap_err().one_line().contains("a value of 2 bytes, expected 4"));
    for _ in 0..2 {
        assert!(reader.next().unwrap_err().one_line().contains("has failed before"));
    }
    let said: Vec<bool> = read(&damaged).map(|batch| batch.is_ok()).collect();
    assert_eq!(said, [true, false], "a failure once, and then the end");
    let mut reader = read(&bytes(&[1]));
    assert!(reader.next().unwrap().is_some());
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none());
}
