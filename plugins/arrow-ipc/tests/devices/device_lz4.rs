//! Tests bodies with LZ4 that a device decompresses.

use std::sync::Arc;

use crate::common::{FORMS, Rig, SourceKind, peer_reads, peer_writes};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use crossdock_arrays::{import_batch, import_schema};
use crossdock_memory::{Device, Result};
use crossdock_plugin_api::{
    ByteSource, CallSettings, Error, Input, Plugin, ReadRequest, Selection, Source, Validate,
};
use crossdock_test_support::devices;

/// A batch whose buffers have about 100 blocks of 64 KiB together, one of which LZ4 cannot
/// compress.
fn batch(seed: i64) -> RecordBatch {
    let rows = 100_003 + seed;
    let numbers = |modulus: i64| -> ArrayRef {
        Arc::new((0..rows).map(|i| (i % 9 != 0).then_some((i * i + seed) % modulus)).collect::<Int64Array>())
    };
    let mut state = seed as u64;
    let random: Int64Array = (0..rows)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state ^ state >> 31).cast_signed()
        })
        .collect();
    let texts: StringArray = (0..rows).map(|i| Some(format!("text {}", i * 7 % 1000))).collect();
    let columns: [(&str, ArrayRef); 8] = [
        ("a", numbers(97)),
        ("b", numbers(12)),
        ("c", numbers(1_000_003)),
        ("d", numbers(5)),
        ("random", Arc::new(random)),
        ("text", Arc::new(texts)),
        ("e", numbers(2)),
        ("f", numbers(70_001)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The tables as Crossdock writes them, with independent blocks.
fn compressed(rig: &Rig, tables: &[RecordBatch], form: &str) -> Vec<u8> {
    let (schema, batches) =
        rig.read(&peer_writes(tables, form, "none"), SourceKind::Mapped, Device::CPU).unwrap();
    rig.write(&schema, &batches, form, "lz4").unwrap()
}

#[test]
fn device_receives_the_compressed_bytes_only() {
    let tables = [batch(0), batch(1), batch(2)];
    let all = Selection::default();
    let columns = ["c", "text", "random", "a", "f"].map(|name| vec![name.to_owned()]);
    let some = Selection { columns: Some(columns.to_vec()), ..Selection::default() };
    for form in FORMS {
        let from = compressed(&Rig::new(), &tables, form);
        for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
            for (selection, n_columns) in [(&all, 8), (&some, 5)] {
                let rig = Rig::new();
                let (schema, batches) =
                    rig.read_selected(&from, SourceKind::ReadAt, device, selection).unwrap();
                assert_eq!(schema.fields().len(), n_columns);
                let bytes: u64 = batches.iter().map(|batch| batch.buffer_bytes()).sum();
                let copied = rig.host.backend().ledger().copied().host_to_device.bytes;
                assert!(copied < bytes * 3 / 4, "{form} {device}: {copied} of {bytes} bytes were copied");
                let written = peer_reads(&rig.write(&schema, &batches, form, "none").unwrap());
                for (written, table) in written.iter().zip(&tables) {
                    for field in schema.fields() {
                        let name = field.name();
                        assert_eq!(
                            written.column_by_name(name),
                            table.column_by_name(name),
                            "{form} {device}"
                        );
                    }
                }
                drop(batches);
                rig.host.assert_nothing_leaked();
            }
        }
    }
}

/// The result of a read: the tables as bytes, or the error.
fn outcome(bytes: &[u8], device: Device, how: SourceKind) -> Result<Vec<u8>, String> {
    let rig = Rig::new();
    let mut settings = CallSettings::new(device);
    settings.validate = Validate::Full;
    let read = rig.read_with(bytes, how, &settings);
    let written = read.and_then(|(schema, batches)| rig.write(&schema, &batches, FORMS[0], "none"));
    rig.host.assert_nothing_leaked();
    written.map_err(|error| error.to_string())
}

#[test]
fn damaged_blocks_have_the_same_result_as_on_the_cpu() {
    let from = compressed(&Rig::new(), &[batch(3)], FORMS[0]);
    let devices: Vec<Device> = devices().iter().copied().filter(|device| *device != Device::CPU).collect();
    let mut errors = 0;
    for i in 0..40usize {
        let mut bad = from.clone();
        // The body begins after the schema and the metadata, and has almost all bytes.
        let at = 4096 + i * 7919 * 31 % (from.len() - 8192);
        bad[at] ^= 1 << (i % 8);
        let how = [SourceKind::Mapped, SourceKind::ReadAt][i % 2];
        let expected = outcome(&bad, Device::CPU, how);
        errors += usize::from(expected.is_err());
        for device in &devices {
            assert!(outcome(&bad, *device, how) == expected, "{device} byte {at}: {:?}", expected.err());
        }
    }
    assert!((5..40).contains(&errors), "{errors} of 40 reads failed");
}

/// Batches of 1.4 MB each, which a device decompresses only together.
fn small_batches(n: usize) -> Vec<RecordBatch> {
    let all = batch(0);
    (0..n).map(|i| all.slice(i * 1000, 20_000)).collect()
}

/// The number of kernels launched so far.
fn n_launches(rig: &Rig) -> u64 {
    rig.host.backend().ledger().accounts.iter().map(|account| account.launches).sum()
}

#[test]
fn small_batches_are_decompressed_together() {
    let tables = small_batches(36);
    let files = [
        ("arrow-rs", peer_writes(&tables, FORMS[0], "lz4")),
        ("Crossdock", compressed(&Rig::new(), &tables, FORMS[0])),
    ];
    for (writer, from) in files {
        for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
            for how in [SourceKind::Mapped, SourceKind::ReadAt, SourceKind::Pipe] {
                let rig = Rig::new();
                let (schema, mut batches) = rig.read_with(&from, how, &CallSettings::new(device)).unwrap();
                let launches = n_launches(&rig);
                // A launch has at most 24 bodies. This pipe is slower than the reader.
                assert!(
                    launches == 2 || how == SourceKind::Pipe,
                    "{writer} {device} {how:?}: {launches} launches"
                );
                let written = peer_reads(&rig.write(&schema, &batches, FORMS[0], "none").unwrap());
                assert!(written == tables, "{writer} {device} {how:?}");
                // A batch does not keep the memory of the others.
                batches.truncate(1);
                rig.host.stream(device).synchronize().unwrap();
                let bytes = batches[0].buffer_bytes();
                let live = rig.host.backend().ledger().live_bytes();
                assert!(live < 2 * bytes, "{writer} {device} {how:?}: {live} bytes for a batch of {bytes}");
                drop(batches);
                rig.host.assert_nothing_leaked();
            }
        }
    }
}

#[test]
fn large_body_is_decompressed_in_portions() {
    let numbers: ArrayRef = Arc::new((0..2_200_000).map(|i| i / 100).collect::<Int64Array>());
    let columns = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name, numbers.clone()));
    let tables = [RecordBatch::try_from_iter(columns).unwrap()];
    let from = compressed(&Rig::new(), &tables, FORMS[0]);
    let mut damaged = from.clone();
    let at = from.len() / 4 * 3;
    damaged[at..at + 64].fill(0xff);
    let expected = outcome(&damaged, Device::CPU, SourceKind::Mapped);
    assert!(expected.is_err());
    for device in devices().iter().copied().filter(|device| *device != Device::CPU) {
        let rig = Rig::new();
        let (schema, batches) = rig.read_with(&from, SourceKind::Mapped, &CallSettings::new(device)).unwrap();
        assert_eq!(n_launches(&rig), 2, "{device}");
        assert!(peer_reads(&rig.write(&schema, &batches, FORMS[0], "none").unwrap()) == tables, "{device}");
        drop(batches);
        rig.host.assert_nothing_leaked();
        assert!(outcome(&damaged, device, SourceKind::Mapped) == expected, "{device}");
    }
}

/// Bytes, of which the byte at `bad` cannot be read.
struct Unreadable {
    bytes: Vec<u8>,
    bad: usize,
}

impl ByteSource for Unreadable {
    fn name(&self) -> &str {
        "test input"
    }
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let begin = offset as usize;
        let n = to.len().min(self.bytes.len() - begin);
        if (begin..begin + n).contains(&self.bad) {
            return Err(Error::io("a bad sector"));
        }
        to[..n].copy_from_slice(&self.bytes[begin..][..n]);
        Ok(n)
    }
}

/// The batches before the end or an error, and the error.
type Beginning = (Vec<RecordBatch>, Option<String>);

fn beginning(rig: &Rig, source: Source, device: Device) -> Beginning {
    let importer = rig.plugin.importer().unwrap();
    let settings = CallSettings::new(device);
    let mut stream = settings
        .enter(|call| importer.open(call, Input::Source(source), &ReadRequest::new(FORMS[0])))
        .unwrap();
    let schema: SchemaRef = Arc::new(import_schema(&stream.schema().unwrap()).unwrap());
    let mut batches = Vec::new();
    let error = loop {
        match settings.enter(|call| stream.next(call)) {
            Ok(Some(batch)) => batches.push(import_batch(batch, &schema, &rig.host.memory()).unwrap()),
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    (peer_reads(&rig.write(&schema, &batches, FORMS[0], "none").unwrap()), error)
}

#[test]
fn batches_before_a_damaged_one_are_returned() {
    let tables = small_batches(12);
    let from = compressed(&Rig::new(), &tables, FORMS[0]);
    let mut errors = 0;
    for i in 0..12 {
        let at = from.len() / 4 + i * 7919;
        // Half of the sources cannot read a byte, the other half have wrong bytes.
        let source = || {
            let mut bytes = from.clone();
            let bad = if i % 2 == 0 { at } else { usize::MAX };
            if i % 2 == 1 {
                bytes[at..at + 16].fill(0xff);
            }
            Source::new(Arc::new(Unreadable { bytes, bad }))
        };
        let expected = beginning(&Rig::new(), source(), Device::CPU);
        errors += usize::from(expected.1.is_some());
        assert!((2..=12).contains(&expected.0.len()), "{} batches", expected.0.len());
        for device in devices().iter().copied() {
            let rig = Rig::new();
            assert!(beginning(&rig, source(), device) == expected, "{device} byte {at}: {:?}", expected.1);
            rig.host.assert_nothing_leaked();
        }
    }
    assert!(errors >= 8, "{errors} of 12 reads failed");
}
