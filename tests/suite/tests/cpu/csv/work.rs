//! Long inputs: memory stays bounded, work stops when asked, progress is told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow_schema::{DataType, Field, Schema};
use crossdock::api::CancelFlag;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock_plugin_api::{ByteSource, CallSettings, Device, Result as ApiResult};

use crate::csv::bench::{Bench, Text, words};

/// Rows without end, of a known pattern, of which the first is the header; `bytes` of them. Cancels when asked for the byte `cancel_at`.
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
fn an_input_of_any_length_is_read_within_the_limit_of_memory() {
    const LIMIT_BYTES: usize = 2 << 20;
    let bench = Bench::with_limit(LIMIT_BYTES);
    let n = 1_000_000;
    let plugin = bench.session.plugin("csv").unwrap();
    let options = crossdock_plugin_api::Options::new();
    let source = crossdock_plugin_api::Source::new(Arc::new(rows(n)));
    let call = CallSettings::new(Device::CPU);
    let input = crossdock_plugin_api::Input::Source(source);
    let mut stream = plugin.importer().unwrap().open(&call, "csv", input, None, &options).unwrap();
    let (mut got, mut batches) = (0, 0);
    while let Some(batch) = stream.next(&call).unwrap() {
        got += batch.array.array.length;
        batches += 1;
    }
    assert_eq!(got as u64, n);
    assert!(batches > 200, "{batches} batches of 21 MB");
    drop((stream, plugin));
    let ledger = bench.host.ledger();
    let peak: u64 = ledger.accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max().unwrap();
    assert!(0 < peak && peak <= LIMIT_BYTES as u64, "{peak} bytes");
    bench.end();
}

#[test]
fn a_limit_that_is_too_small_says_what_had_no_room() {
    let bench = Bench::with_limit(4_000);
    let error = bench.read("a\n1\n", &[]).unwrap_err();
    assert!(error.contains("4000"), "{error}");
    bench.end();
}

#[test]
fn a_wish_for_few_bytes_makes_small_batches() {
    let bench = Bench::new();
    let call = CallSettings { byte_budget: 10_000, ..CallSettings::new(Device::CPU) };
    let read = bench.read_as(Arc::new(rows(5_000)), None, &[], &call).unwrap();
    assert_eq!(read.rows(), 5_000);
    assert_eq!(read.batches.len(), 11, "of 105 kB");
    drop(read);
    bench.end();
}

#[test]
fn a_cancelled_call_stops_soon_and_says_so() {
    let bench = Bench::new();
    // While the first rows are read, and while batches are made.
    for cancel_at in [0, 10_000_000] {
        let source = Arc::new(Rows { cancel_at, ..rows(2_000_000) });
        let call = CallSettings { cancel: source.flag.clone(), ..CallSettings::new(Device::CPU) };
        let error = bench.read_as(source.clone(), None, &[], &call).unwrap_err();
        assert_eq!(error, "cancelled");
        let read = source.read.load(Ordering::Relaxed);
        assert!(read < cancel_at + (1 << 20), "{read} bytes were read after {cancel_at}");
    }
    bench.end();
}

#[test]
fn a_cancelled_conversion_leaves_nothing() {
    let bench = Bench::new();
    let sink = VecSink::new();
    bench.session.cancel_flag().cancel();
    let conversion = bench.session.conversion().from("csv").to("csv");
    let error = conversion.run(Input::bytes(b"a\n1\n".to_vec()), Output::Memory(sink)).err().unwrap();
    assert!(words(&error).contains("cancelled"), "{error}");
    bench.end();
}

#[test]
fn progress_goes_up_to_the_length() {
    let bench = Bench::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    let mut call = CallSettings::new(Device::CPU);
    call.progress = Some(Arc::new(move |done, total| listener.lock().unwrap().push((done, total))));
    let bytes = PATTERN.repeat(50_000);
    let total = bytes.len() as u64;
    let source = Arc::new(Text { bytes, step: usize::MAX, pipe: false });
    let schema = Schema::new(vec![
        Field::new("1234", DataType::Int16, false),
        Field::new("some words", DataType::Utf8, false),
        Field::new("5.25", DataType::Float64, false),
    ]);
    bench.read_as(source, Some(&schema), &[], &call).unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 3 && heard.is_sorted() && heard.iter().all(|(_, t)| *t == total), "{heard:?}");
    assert_eq!(heard.last().unwrap().0, total);
    drop(heard);
    bench.end();
}
