//! Tests that isolated plugins write the same bytes as plugins in the host's process.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema;
use crossdock::api::{ByteSink, CancelFlag, Error as ApiError, Options, Result as ApiResult};
use crossdock::memory::Backend;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Error, Session, WriteOptions};
use crossdock_arrays::DeviceBatch;
use crossdock_tests::{built, command, crossdock, sample};

use crate::equivalence::{assert_same, read, sessions};

#[test]
fn isolated_plugin_writes_the_same_files() {
    if crate::skips("isolated_plugin_writes_the_same_files") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for compression in ["none", "lz4", "zstd"] {
        let (direct, isolated) = (path("direct.arrows"), path("isolated.arrows"));
        let sample = sample().to_str().unwrap().to_string();
        let convert = |isolate: &[&str], to: &str| {
            let arguments = ["convert", "--quiet", "--compression", compression, &sample, to];
            let out = crossdock(&[&arguments[..], isolate].concat());
            assert!(out.status.success(), "{out:?}");
        };
        convert(&[], &direct);
        convert(&["--isolate"], &isolated);
        assert!(std::fs::read(&direct).unwrap() == std::fs::read(&isolated).unwrap(), "{compression}");
    }
}

#[test]
fn isolated_plugin_writes_the_same_bytes_from_memory_of_the_host() {
    if crate::skips("isolated_plugin_writes_the_same_bytes_from_memory_of_the_host") {
        return;
    }
    const ROWS: usize = 300_000;
    let (_host, direct, isolated) = sessions();
    let numbers = |seed: i64| -> ArrayRef {
        Arc::new((0..ROWS as i64).map(|i| (i % 7 != seed).then_some(i * seed)).collect::<Int64Array>())
    };
    let texts: ArrayRef = Arc::new((0..ROWS).map(|i| Some("ab".repeat(i % 9))).collect::<StringArray>());
    // Buffers of many sizes, of which some are too short to be written from shared memory.
    let lengths = [ROWS, 10, 5_000, 0, ROWS, 40_000];
    let batches = lengths.into_iter().zip(1..).map(|(rows, seed)| {
        let columns = [("a", numbers(seed)), ("b", texts.clone()), ("c", numbers(seed + 1))];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
            .unwrap()
            .slice(0, rows)
    });
    let mut bytes = Vec::new();
    let mut file = StreamWriter::try_new(&mut bytes, &batches.clone().next().unwrap().schema()).unwrap();
    batches.for_each(|batch| file.write(&batch).unwrap());
    file.finish().unwrap();
    let batches = read(&direct, Input::bytes(bytes));
    for (format, compression) in
        [("arrow-ipc-stream", "none"), ("arrow-ipc-file", "none"), ("arrow-ipc-file", "lz4")]
    {
        let options = WriteOptions {
            to: Some(format.into()),
            options: Options::new().with("compression", compression),
        };
        let expected = written(&direct, &options, &batches, 1);
        for at_once in [1, batches.len()] {
            let actual = written(&isolated, &options, &batches, at_once);
            assert!(expected.len() > 1_000_000 && expected == actual, "{format} {compression} {at_once}");
        }
    }
}

/// Writes batches to memory, each `at_once` in one call.
pub fn written(
    session: &Session,
    options: &WriteOptions,
    batches: &[DeviceBatch],
    at_once: usize,
) -> Vec<u8> {
    let sink = VecSink::new();
    let mut writer = session.write(Output::Memory(sink.clone()), batches[0].schema(), options).unwrap();
    let mut n_written = 0;
    for batches in batches.chunks(at_once) {
        writer.write_all(batches, |_| n_written += 1).unwrap();
    }
    assert_eq!(n_written, batches.len());
    writer.finish().unwrap();
    sink.take()
}

/// A sink that runs `write` with the number of bytes before.
struct Counted<F>(usize, F);

impl<F: FnMut(usize) -> ApiResult<()> + Send> ByteSink for Counted<F> {
    fn name(&self) -> &str {
        "counted"
    }

    fn write(&mut self, bytes: &[u8]) -> ApiResult<()> {
        (self.1)(self.0)?;
        self.0 += bytes.len();
        Ok(())
    }
}

#[test]
fn error_or_cancellation_while_a_table_is_written_ends_the_call() {
    if crate::skips("error_or_cancellation_while_a_table_is_written_ends_the_call") {
        return;
    }
    /// The table has ten times as many bytes.
    const FAIL_AT: usize = 10 << 20;
    let (_host, direct, isolated) = sessions();
    let column: ArrayRef = Arc::new(Int64Array::from_iter(0..1 << 17));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut bytes = Vec::new();
    let mut stream = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    stream.write(&batch).unwrap();
    stream.finish().unwrap();
    let batches = vec![read(&direct, Input::bytes(bytes)).remove(0); 100];
    let options = WriteOptions { to: Some("arrow-ipc-stream".into()), options: Options::new() };
    let write = |session: &Session, sink: Output| {
        let mut writer = session.write(sink, batches[0].schema(), &options).unwrap();
        let error = writer.write_all(&batches, |_| ()).unwrap_err();
        assert!(matches!(writer.finish(), Err(Error::Usage(_) | Error::Cancelled)));
        error
    };
    let full = |before| if before < FAIL_AT { Ok(()) } else { Err(ApiError::io("no space left")) };
    let error = write(&isolated, Output::to(Counted(0, full))).one_line();
    assert!(error.contains("'counted'") && error.contains("no space left"), "{error}");

    let flag = CancelFlag::new();
    let session = isolated.with_cancel_flag(flag.clone());
    let cancel = move |before| {
        if before >= FAIL_AT {
            flag.cancel();
        }
        Ok(())
    };
    let error = write(&session, Output::to(Counted(0, cancel)));
    assert!(matches!(error, Error::Cancelled), "{}", error.one_line());

    // The process still works.
    assert_eq!(written(&direct, &options, &batches, 100), written(&isolated, &options, &batches, 100));
}

#[test]
fn batches_whose_files_do_not_fit_in_one_message_are_written() {
    if crate::skips("batches_whose_files_do_not_fit_in_one_message_are_written") {
        return;
    }
    /// Each column has a file of its own, and a message has at most 250 files.
    const COLUMNS: usize = 130;
    let (_host, direct, isolated) = sessions();
    let batch = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap()).remove(0);
    let batch = batch.slice(0, 100).unwrap();
    let options = WriteOptions {
        to: Some("arrow-ipc-stream".into()),
        options: Options::new().with("compression", "lz4"),
    };
    // A file is only sent if the message has all of its arrays.
    let field = batch.schema().field(0).clone();
    let array = batch.into_columns().swap_remove(0);
    let one = DeviceBatch::try_new(Arc::new(Schema::new(vec![field])), array.len(), vec![array]).unwrap();
    let stream = written(&direct, &options, &[one], 1);
    let column = |_| {
        let batch = read(&isolated, Input::bytes(stream.clone())).remove(0);
        let field = batch.schema().field(0).clone();
        (field, batch.len(), batch.into_columns().swap_remove(0))
    };
    let batch = |_| {
        let columns = (0..COLUMNS).map(column).collect::<Vec<_>>();
        let rows = columns[0].1;
        let (fields, arrays): (Vec<_>, Vec<_>) =
            columns.into_iter().map(|(field, _, array)| (field, array)).unzip();
        DeviceBatch::try_new(Arc::new(Schema::new(fields)), rows, arrays).unwrap()
    };
    let batches = (0..3).map(batch).collect::<Vec<_>>();
    assert_eq!(written(&direct, &options, &batches, 3), written(&isolated, &options, &batches, 3));
}

#[test]
fn batches_are_written_within_a_small_memory_limit() {
    let test = "batches_are_written_within_a_small_memory_limit";
    if crate::skips(test) || crate::skips_memory_limit(test) {
        return;
    }
    /// Two messages, with 4 MiB each, fit into the limit.
    const LIMIT_BYTES: usize = 9 << 20;
    let (_host, direct, _) = sessions();
    let limited = crate::host(&built(), crate::marked("limited"));
    let backend = Backend::builder().limit_bytes(LIMIT_BYTES).build();
    let limited = limited.backend(backend).build().unwrap();
    let isolated = limited.session().open().unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from_iter(0..400_000));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut bytes = Vec::new();
    let mut stream = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    (0..8).for_each(|_| stream.write(&batch).unwrap());
    stream.finish().unwrap();
    let batches = read(&direct, Input::bytes(bytes));
    let options = WriteOptions { to: Some("arrow-ipc-stream".into()), options: Options::new() };
    assert!(written(&direct, &options, &batches, 8) == written(&isolated, &options, &batches, 8));
}

#[test]
fn batch_from_a_pipe_is_written_before_the_next_one_arrives() {
    if crate::skips("batch_from_a_pipe_is_written_before_the_next_one_arrives") {
        return;
    }
    const VALUES: i64 = 1 << 17;
    // The last bytes of a batch stay in the output's buffer.
    const BYTES: usize = 512 << 10;
    let column: ArrayRef = Arc::new(Int64Array::from_iter(0..VALUES));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut child = command(&["convert", "--quiet", "--isolate", "-", "-", "--to", "arrow-ipc-stream"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = StreamWriter::try_new(child.stdin.take().unwrap(), &batch.schema()).unwrap();
    let mut output = child.stdout.take().unwrap();
    let (arrived, arrival) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; BYTES];
        output.read_exact(&mut bytes).unwrap();
        let _ = arrived.send(());
        output.read_to_end(&mut bytes).unwrap();
        bytes
    });
    input.write(&batch).unwrap();
    input.get_mut().flush().unwrap();
    arrival.recv_timeout(Duration::from_secs(60)).expect("the first batch was not written");
    input.write(&batch).unwrap();
    input.finish().unwrap();
    drop(input);
    let bytes = reader.join().unwrap();
    let batches = StreamReader::try_new(&bytes[..], None).unwrap().map(|batch| batch.unwrap());
    assert_eq!(batches.collect::<Vec<_>>(), [batch.clone(), batch]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn number_of_open_files_is_bounded_for_long_tables() {
    if crate::skips("number_of_open_files_is_bounded_for_long_tables") {
        return;
    }
    const BATCHES: usize = 800;
    let (_host, direct, isolated) = sessions();
    let batch = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap()).remove(0);
    let batch = batch.slice(0, batch.len().min(100)).unwrap();
    // The isolated process decompresses the batches, so each batch has its own memory file.
    let options = WriteOptions {
        to: Some("arrow-ipc-stream".into()),
        options: Options::new().with("compression", "lz4"),
    };
    let sink = VecSink::new();
    let mut writer = direct.write(Output::Memory(sink.clone()), batch.schema(), &options).unwrap();
    for _ in 0..BATCHES {
        writer.write(batch.clone()).unwrap();
    }
    writer.finish().unwrap();
    let (bytes, begin) = (sink.take(), Instant::now());
    let batches = loop {
        let batches = read(&isolated, Input::bytes(bytes.clone()));
        assert_eq!(batches.len(), BATCHES);
        // Counts only memory files of batches, because other tests in this process have files of
        // other kinds open.
        let open = crate::open_files("/memfd:crossdock-arrays");
        assert!(open < BATCHES, "{open} open files of {BATCHES} batches");
        // The limit applies to the process. A test that has just ended may have used all of it.
        if open > 0 {
            break batches;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no file of a batch is open");
    };
    // Batches can be passed to other processes even if their files are closed.
    for at_once in [1, BATCHES] {
        let bytes = written(&isolated, &options, &batches, at_once);
        assert_same(&read(&direct, Input::bytes(bytes)), &batches, &direct);
    }
}

#[test]
fn isolated_plugin_reads_and_writes_pipes() {
    if crate::skips("isolated_plugin_reads_and_writes_pipes") {
        return;
    }
    let bytes = std::fs::read(sample()).unwrap();
    let mut child = command(&["convert", "--quiet", "--isolate", "-", "-", "--to", "arrow-ipc-file"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || pipe.write_all(&sent));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(out.status.success());
    let (_, direct, _) = sessions();
    assert_same(&read(&direct, Input::bytes(bytes)), &read(&direct, Input::bytes(out.stdout)), &direct);
}
