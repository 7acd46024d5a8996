//! Tests bodies with LZ4 that a device decompresses.

use std::sync::Arc;

use crate::common::{FORMS, Rig, SourceKind, peer_reads, peer_writes};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use crossdock_memory::Device;
use crossdock_plugin_api::{CallSettings, Selection, Validate};
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
    let tables = [batch(0), batch(1)];
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
