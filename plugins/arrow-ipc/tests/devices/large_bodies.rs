//! Tests bodies that are loaded in many parts, on every device and from every kind of source.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{CODECS, FORMS, Rig, SourceKind, peer_reads, peer_writes};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt8Array};
use crossdock_arrow_ipc::STREAM;
use crossdock_memory::{Code, Copies, Device, Result};
use crossdock_plugin_api::{
    BatchStream, ByteSource, CallSettings, CancelFlag, Importer, Input, ReadRequest, Source,
};
use crossdock_test_support::devices;

/// Creates a batch with six different buffers without nulls. The smallest has a few bytes, and the
/// largest is larger than a part.
fn batch(seed: i64) -> RecordBatch {
    batch_of(700_001 + seed as usize, seed)
}

fn batch_of(rows: usize, seed: i64) -> RecordBatch {
    let numbers = |step: i64| -> ArrayRef {
        Arc::new((0..rows as i64).map(|i| (i * step + seed) % 7919).collect::<Int64Array>())
    };
    let bytes: ArrayRef = Arc::new((0..rows).map(|i| (i / 3) as u8).collect::<UInt8Array>());
    RecordBatch::try_from_iter([("a", numbers(3)), ("b", bytes), ("c", numbers(104_729)), ("d", numbers(-5))])
        .unwrap()
}

#[test]
fn loads_bodies_of_many_parts_on_every_device() {
    let tables = [batch(0), batch(1), batch(2)];
    for codec in CODECS {
        let from = peer_writes(&tables, FORMS[0], codec);
        for device in devices().iter().copied() {
            for how in [SourceKind::Mapped, SourceKind::ReadAt] {
                for byte_budget in [0, 1] {
                    let rig = Rig::new();
                    let settings = CallSettings { byte_budget, ..CallSettings::new(device) };
                    let (schema, batches) = rig.read_with(&from, how, &settings).unwrap();
                    assert!(batches.iter().all(|batch| batch.device() == device));
                    let out = rig.write(&schema, &batches, STREAM, codec).unwrap();
                    assert!(peer_reads(&out) == tables, "{codec} {device} {how:?} budget {byte_budget}");
                    drop(batches);
                    rig.host.assert_nothing_leaked();
                }
            }
        }
    }
}

#[test]
fn copies_mapped_bodies_to_the_device_once() {
    let from = peer_writes(&[batch(0)], FORMS[0], "none");
    for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
        let rig = Rig::new();
        let (_, batches) = rig.read_with(&from, SourceKind::Mapped, &CallSettings::new(device)).unwrap();
        let copied = rig.host.backend().ledger().copied();
        assert_eq!(copied.host_to_host.bytes, 0, "{device}");
        assert_eq!(copied.host_to_device.copies, 1, "{device}");
        assert!(copied.host_to_device.bytes >= batches[0].buffer_bytes(), "{device}");
    }
}

#[test]
fn invalid_part_is_rejected_without_leaks() {
    for (codec, magic) in [("lz4", [0x04, 0x22, 0x4d, 0x18]), ("zstd", [0x28, 0xb5, 0x2f, 0xfd])] {
        let mut from = peer_writes(&[batch(0), batch(1)], FORMS[1], codec);
        // The frame of the last buffer is damaged, so the error occurs while the other buffers are
        // being copied.
        let at = from.windows(4).rposition(|window| window == magic).unwrap();
        from[at..at + 4].fill(0);
        for device in devices().iter().copied() {
            for how in [SourceKind::Mapped, SourceKind::ReadAt] {
                let rig = Rig::new();
                let error = rig.read_with(&from, how, &CallSettings::new(device)).err().unwrap();
                assert!(
                    error.message().contains("record batch 1") || error.message().contains(codec),
                    "{error}"
                );
                rig.host.assert_nothing_leaked();
            }
        }
    }
}

#[test]
fn releases_batches_that_were_read_ahead() {
    let from = peer_writes(&[batch(0), batch(1), batch(2)], FORMS[0], "lz4");
    for device in devices().iter().copied() {
        for how in [SourceKind::Mapped, SourceKind::ReadAt] {
            let rig = Rig::new();
            let settings = CallSettings::new(device);
            let mut stream = rig.open(&from, how, &settings).unwrap();
            drop(settings.enter(|call| stream.next(call)).unwrap());
            drop(stream);
            rig.host.assert_nothing_leaked();
        }
    }
}

#[test]
fn batches_are_ready_after_their_event() {
    let tables = [batch(4)];
    for codec in CODECS {
        let from = peer_writes(&tables, FORMS[0], codec);
        for device in devices().iter().copied() {
            let rig = Rig::new();
            let (_, batches) = rig.read_with(&from, SourceKind::ReadAt, &CallSettings::new(device)).unwrap();
            // This stream has no ordering to the stream that copied the batch.
            let other = rig.host.memory().create_stream(device).unwrap();
            let column = batches[0].column(2).unwrap().buffers()[1].as_ref().unwrap();
            let expected = tables[0].column(2).to_data();
            let expected = expected.buffers()[0].as_slice();
            let mut seen = vec![0; expected.len()];
            let mut copies = Copies::new();
            copies.push_to_host(&mut seen, column, 0).unwrap();
            copies.submit(&other).unwrap();
            assert!(seen == expected, "{codec} {device}");
        }
    }
}

/// A source whose large reads, which read bodies, take long.
struct Slow {
    bytes: Vec<u8>,
    large_reads: AtomicUsize,
    /// Set by the large read with this number, while the second batch is being read.
    cancel: CancelFlag,
    cancel_at: usize,
}

impl ByteSource for Slow {
    fn name(&self) -> &str {
        "slow bytes"
    }
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        if to.len() >= 64 << 10 {
            std::thread::sleep(Duration::from_millis(20));
            if self.large_reads.fetch_add(1, Ordering::SeqCst) == self.cancel_at {
                self.cancel.cancel();
            }
        }
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let n = to.len().min(rest.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

fn open_slow(rig: &Rig, settings: &CallSettings, cancel: &CancelFlag) -> (Arc<Slow>, Box<dyn BatchStream>) {
    let batches = [batch(0), batch_of(3_000_000, 1), batch(2)];
    let bytes = peer_writes(&batches, FORMS[0], "none");
    // The body of the first batch has three parts on host devices, and nine parts on a GPU.
    let cancel_at = if settings.device == Device::UNTOUCHABLE { 4 } else { 11 };
    let slow = Arc::new(Slow { bytes, large_reads: AtomicUsize::new(0), cancel: cancel.clone(), cancel_at });
    let source = Input::Source(Source::new(slow.clone()));
    let request = ReadRequest::new(STREAM);
    (slow, settings.enter(|call| rig.plugin.open(call, source, &request)).unwrap())
}

/// The loads of the body of the second batch, which has 72 MiB, have more parts on a GPU.
const FEW_READS: usize = 24;

#[test]
fn cancelled_call_ends_its_loads() {
    for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
        let rig = Rig::new();
        let cancel = CancelFlag::new();
        let settings = CallSettings { cancel: cancel.clone(), ..CallSettings::new(device) };
        let (slow, mut stream) = open_slow(&rig, &settings, &cancel);
        let next = settings.enter(|call| stream.next(call));
        let error = match next {
            Ok(batch) => {
                drop(batch);
                settings.enter(|call| stream.next(call)).err().unwrap()
            }
            Err(error) => error,
        };
        assert_eq!(error.code(), Code::CANCELLED, "{error}");
        let n = slow.large_reads.load(Ordering::SeqCst);
        assert!(n < FEW_READS, "{n} reads, on {device}");
        drop(stream);
        assert_eq!(slow.large_reads.load(Ordering::SeqCst), n, "reads after the call");
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn dropped_reader_ends_its_loads() {
    for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
        let rig = Rig::new();
        let settings = CallSettings::new(device);
        let (slow, mut stream) = open_slow(&rig, &settings, &CancelFlag::new());
        drop(settings.enter(|call| stream.next(call)).unwrap());
        let before = slow.large_reads.load(Ordering::SeqCst);
        drop(stream);
        let n = slow.large_reads.load(Ordering::SeqCst) - before;
        assert!(n <= 2 * std::thread::available_parallelism().unwrap().get(), "{n} reads, on {device}");
        assert_eq!(Arc::strong_count(&slow), 1, "a load outlives the reader");
        rig.host.assert_nothing_leaked();
    }
}
