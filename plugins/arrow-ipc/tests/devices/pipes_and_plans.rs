//! Tests slow pipes, small budgets, progress and plans.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::tables::{everything, small};
use crate::common::{FORMS, Rig, SourceKind, peer_reads, peer_writes};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use crossdock_arrays::export_schema;
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::{Code, Device, Result};
use crossdock_plugin_api::{ByteSource, CallSettings, Input, Options, Plugin, ReadRequest, Source, Verdict};

/// A pipe that provides its first `open` bytes, and more bytes when `open` grows.
struct Gated {
    bytes: Vec<u8>,
    open: Mutex<usize>,
    opened: Condvar,
}

impl ByteSource for Gated {
    fn name(&self) -> &str {
        "gated"
    }
    fn len(&self) -> Option<u64> {
        None
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let offset = offset as usize;
        let mut open = self.open.lock().unwrap();
        while *open <= offset && offset < self.bytes.len() {
            open = self.opened.wait(open).unwrap();
        }
        let n = to.len().min(open.min(self.bytes.len()).saturating_sub(offset));
        to[..n].copy_from_slice(&self.bytes[offset..offset + n]);
        Ok(n)
    }
}

#[test]
fn returns_batches_of_a_slow_pipe_as_they_arrive() {
    let rig = Rig::new();
    let batches = small();
    // The first of two batches ends at the position where a stream of one batch has its end marker.
    let first = peer_writes(&batches[..1], STREAM, "none").len() - 8;
    let gated = Arc::new(Gated {
        bytes: peer_writes(&batches, STREAM, "none"),
        open: Mutex::new(first),
        opened: Condvar::new(),
    });
    let settings = CallSettings::new(Device::CPU);
    let importer = rig.plugin.importer().unwrap();
    let input = Input::Source(Source::new(gated.clone()));
    let mut stream = settings.enter(|call| importer.open(call, input, &ReadRequest::new(STREAM))).unwrap();
    // This hangs if the reader waits for the second batch.
    assert!(settings.enter(|call| stream.next(call)).unwrap().is_some());
    *gated.open.lock().unwrap() = usize::MAX;
    gated.opened.notify_all();
    assert!(settings.enter(|call| stream.next(call)).unwrap().is_some());
    assert!(settings.enter(|call| stream.next(call)).unwrap().is_none());
}

/// A source that records up to which byte it was read.
struct Recorded {
    bytes: Vec<u8>,
    end: AtomicUsize,
}

impl ByteSource for Recorded {
    fn name(&self) -> &str {
        "recorded"
    }
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len());
        to[..n].copy_from_slice(&rest[..n]);
        self.end.fetch_max(offset as usize + n, Ordering::SeqCst);
        Ok(n)
    }
}

#[test]
fn loads_next_compressed_batch_before_returning_one() {
    let rig = Rig::new();
    // The values are larger than the first read from a source.
    let values =
        |seed: i64| (0..50_000).map(move |i: i64| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
    let batch = |seed| {
        let column: ArrayRef = Arc::new(values(seed).collect::<Int64Array>());
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    };
    let batches = [batch(0), batch(1)];
    let first = peer_writes(&batches[..1], STREAM, "lz4").len() - 8;
    let source = Arc::new(Recorded { bytes: peer_writes(&batches, STREAM, "lz4"), end: AtomicUsize::new(0) });
    let settings = CallSettings::new(Device::CPU);
    let importer = rig.plugin.importer().unwrap();
    let input = Input::Source(Source::new(source.clone()));
    let mut stream = settings.enter(|call| importer.open(call, input, &ReadRequest::new(STREAM))).unwrap();
    assert!(settings.enter(|call| stream.next(call)).unwrap().is_some());
    let end = source.end.load(Ordering::SeqCst);
    assert!(end > first, "read up to byte {end}, but the second batch begins at {first}");
}

#[test]
fn cancelled_call_does_not_wait_for_a_silent_pipe() {
    let rig = Rig::new();
    let whole = peer_writes(&small(), STREAM, "none");
    let schema_only = whole.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).nth(1).unwrap().0;
    let gated = Arc::new(Gated { bytes: whole, open: Mutex::new(schema_only), opened: Condvar::new() });
    let settings = CallSettings::new(Device::CPU);
    let importer = rig.plugin.importer().unwrap();
    let input = Input::Source(Source::new(gated.clone()));
    let mut stream = settings.enter(|call| importer.open(call, input, &ReadRequest::new(STREAM))).unwrap();
    let cancel = settings.cancel.clone();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| cancel.cancel());
        settings.enter(|call| stream.next(call)).err().unwrap()
    });
    assert_eq!(error.code(), Code::CANCELLED);
    *gated.open.lock().unwrap() = usize::MAX;
    gated.opened.notify_all();
}

#[test]
fn reads_with_a_budget_of_one_byte() {
    let rig = Rig::new();
    let tables: Vec<_> = (0..6).map(|i| everything(50 + i, true)).collect();
    let mut settings = CallSettings::new(Device::CPU);
    settings.byte_budget = 1;
    for form in FORMS {
        let (schema, batches) =
            rig.read_with(&peer_writes(&tables, form, "lz4"), SourceKind::Mapped, &settings).unwrap();
        assert_eq!(peer_reads(&rig.write(&schema, &batches, form, "zstd").unwrap()), tables);
    }
}

#[test]
fn progress_ends_at_the_source_length() {
    let rig = Rig::new();
    let from = peer_writes(&small(), STREAM, "lz4");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut settings = CallSettings::new(Device::CPU);
    let log = seen.clone();
    settings.progress = Some(Arc::new(move |done, total| log.lock().unwrap().push((done, total))));
    rig.read_with(&from, SourceKind::Mapped, &settings).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted() && seen.len() == 3, "{seen:?}");
    assert_eq!(seen.last(), Some(&(from.len() as u64, from.len() as u64)));
}

#[test]
fn plan_returns_verdict_for_each_column() {
    let rig = Rig::new();
    let schema = export_schema(&small()[0].schema()).unwrap();
    let exporter = rig.plugin.exporter().unwrap();
    let settings = CallSettings::new(Device::CPU);
    let plan = |from: Device, codec: &str| {
        let options = Options::new().with("compression", codec);
        settings.enter(|call| exporter.plan(call, FILE, &schema, from, &options))
    };
    for (from, codec, verdict) in [
        (Device::CPU, "none", Verdict::ZeroCopy),
        (Device::UNTOUCHABLE, "none", Verdict::Copied),
        (Device::CPU, "zstd", Verdict::Converted),
    ] {
        let plan = plan(from, codec).unwrap();
        assert_eq!(plan.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["i", "s", "d", "t"]);
        assert!(
            plan.iter().all(|c| c.verdict == verdict && c.to == Device::CPU && !c.reason.is_empty()),
            "{plan:?}"
        );
    }
    assert_eq!(plan(Device::CPU, "brotli").unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn rejects_unexpected_schema() {
    let rig = Rig::new();
    let settings = CallSettings::new(Device::CPU);
    let open = |schema: &arrow_schema::Schema| {
        let source = Source::new(Arc::new(Gated {
            bytes: peer_writes(&small(), STREAM, "none"),
            open: Mutex::new(usize::MAX),
            opened: Condvar::new(),
        }));
        let expected = export_schema(schema).unwrap();
        let importer = rig.plugin.importer().unwrap();
        settings
            .enter(|call| {
                importer.open(
                    call,
                    Input::Source(source),
                    &ReadRequest::new(STREAM).with_schema(Some(&*expected)),
                )
            })
            .map(drop)
    };
    let schema = small()[0].schema();
    open(&schema).unwrap();
    let other = arrow_schema::Schema::new(schema.fields()[1..].to_vec());
    assert!(open(&other).unwrap_err().message().contains("another schema: expected"));
}
