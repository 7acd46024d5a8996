//! Tests memory limits, cancellation and progress with long inputs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow_schema::{DataType, Field, Schema};
use crossdock::api::CancelFlag;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock_plugin_api::{ByteSource, CallSettings, Device, ReadRequest, Result as ApiResult};

use crate::csv::fixture::{Fixture, Text, error_chain};

/// A source of `bytes` bytes: a header and repeated rows. It cancels the call during the read that
/// reaches the byte `cancel_at`.
struct Rows {
    bytes: u64,
    cancel_at: u64,
    flag: CancelFlag,
    read: AtomicU64,
}

const PATTERN: &[u8] = b"1234,some words,5.25\n";

impl ByteSource for Rows {
    fn name(&self) -> &str {
        "rows.csv"
    }
    fn len(&self) -> Option<u64> {
        None
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> ApiResult<usize> {
        let n = to.len().min((self.bytes - offset) as usize);
        for (i, byte) in to[..n].iter_mut().enumerate() {
            *byte = PATTERN[(offset as usize + i) % PATTERN.len()];
        }
        if offset >= self.cancel_at {
            self.flag.cancel();
        }
        self.read.store(offset + n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

fn rows(n: u64) -> Rows {
    let bytes = (1 + n) * PATTERN.len() as u64;
    Rows { bytes, cancel_at: u64::MAX, flag: CancelFlag::new(), read: AtomicU64::new(0) }
}

#[test]
fn long_input_is_read_within_the_memory_limit() {
    const LIMIT_BYTES: usize = 2 << 20;
    let fixture = Fixture::with_limit(LIMIT_BYTES);
    let n = 1_000_000;
    let plugin = fixture.session.plugin("csv").unwrap();
    let options = crossdock_plugin_api::Options::new();
    let source = crossdock_plugin_api::Source::new(Arc::new(rows(n)));
    let call = CallSettings::new(Device::CPU);
    let input = crossdock_plugin_api::Input::Source(source);
    let mut stream = plugin
        .importer()
        .unwrap()
        .open(&call, input, &ReadRequest::new("csv").with_options(&options))
        .unwrap();
    let (mut n_rows, mut batches) = (0, 0);
    while let Some(batch) = stream.next(&call).unwrap() {
        n_rows += batch.array.array.length;
        batches += 1;
    }
    assert_eq!(n_rows as u64, n);
    assert!(batches > 200, "{batches} batches of 21 MB");
    drop((stream, plugin));
    let ledger = fixture.host.ledger();
    let peak: u64 = ledger.accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max().unwrap();
    assert!(0 < peak && peak <= LIMIT_BYTES as u64, "{peak} bytes");
    fixture.assert_settled();
}

#[test]
fn error_names_the_exceeded_memory_limit() {
    let fixture = Fixture::with_limit(4_000);
    let error = fixture.read("a\n1\n", &[]).unwrap_err();
    assert!(error.contains("4000"), "{error}");
    fixture.assert_settled();
}

#[test]
fn small_byte_budget_gives_small_batches() {
    let fixture = Fixture::new();
    let call = CallSettings { byte_budget: 10_000, ..CallSettings::new(Device::CPU) };
    let read = fixture.read_as(Arc::new(rows(5_000)), None, &[], &call).unwrap();
    assert_eq!(read.rows(), 5_000);
    assert_eq!(read.batches.len(), 11, "batches of 105 kB of text");
    drop(read);
    fixture.assert_settled();
}

#[test]
fn cancelled_call_stops_soon_with_an_error() {
    let fixture = Fixture::new();
    // Cancels the call during the first read, or during a read of a later batch.
    for cancel_at in [0, 10_000_000] {
        let source = Arc::new(Rows { cancel_at, ..rows(2_000_000) });
        let call = CallSettings { cancel: source.flag.clone(), ..CallSettings::new(Device::CPU) };
        let error = fixture.read_as(source.clone(), None, &[], &call).unwrap_err();
        assert_eq!(error, "cancelled");
        let read = source.read.load(Ordering::Relaxed);
        assert!(read < cancel_at + (1 << 20), "{read} bytes were read after {cancel_at}");
    }
    fixture.assert_settled();
}

#[test]
fn cancelled_conversion_leaks_nothing() {
    let fixture = Fixture::new();
    let sink = VecSink::new();
    fixture.session.cancel_flag().cancel();
    let conversion = fixture.session.conversion().from("csv").to("csv");
    let error = conversion.run(Input::bytes(b"a\n1\n".to_vec()), Output::Memory(sink)).err().unwrap();
    assert!(error_chain(&error).contains("cancelled"), "{error}");
    fixture.assert_settled();
}

#[test]
fn progress_ends_at_the_input_length() {
    let fixture = Fixture::new();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let listener = reports.clone();
    let mut call = CallSettings::new(Device::CPU);
    call.progress = Some(Arc::new(move |done, total| listener.lock().unwrap().push((done, total))));
    let bytes = PATTERN.repeat(50_000);
    let total = bytes.len() as u64;
    let source = Arc::new(Text { bytes, step: usize::MAX, is_pipe: false });
    let schema = Schema::new(vec![
        Field::new("1234", DataType::Int16, false),
        Field::new("some words", DataType::Utf8, false),
        Field::new("5.25", DataType::Float64, false),
    ]);
    fixture.read_as(source, Some(&schema), &[], &call).unwrap();
    let reports = reports.lock().unwrap();
    assert!(
        reports.len() > 3 && reports.is_sorted() && reports.iter().all(|(_, t)| *t == total),
        "{reports:?}"
    );
    assert_eq!(reports.last().unwrap().0, total);
    drop(reports);
    fixture.assert_settled();
}
