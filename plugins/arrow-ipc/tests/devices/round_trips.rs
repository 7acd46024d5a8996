//! Tests round trips between arrow-rs and the plugin.

use crate::common::tables::everything;
use crate::common::{CODECS, FORMS, Rig, SOURCE_KINDS, SourceKind, peer_reads, peer_writes};
use crossdock_memory::Device;
use crossdock_test_support::devices;

#[test]
fn every_type_round_trips_in_all_forms_codecs_and_devices() {
    let tables = [everything(100, true), everything(33, false)];
    for form in FORMS {
        for codec in CODECS {
            for device in devices().iter().copied() {
                let rig = Rig::new();
                let from = peer_writes(&tables, form, codec);
                for how in SOURCE_KINDS {
                    for to in FORMS {
                        let out = rig.convert(&from, how, device, to, codec).unwrap();
                        assert_eq!(peer_reads(&out), tables, "{form} {codec} {device} {how:?} {to}");
                    }
                }
                rig.host.assert_nothing_leaked();
            }
        }
    }
}

#[test]
fn writes_only_the_rows_of_slices() {
    let rig = Rig::new();
    let table = everything(300, true);
    let from = peer_writes(std::slice::from_ref(&table), FORMS[1], "none");
    for device in devices().iter().copied() {
        let (schema, batches) = rig.read(&from, SourceKind::Mapped, device).unwrap();
        for (offset, len) in
            [(0, 0), (0, 1), (1, 1), (5, 20), (7, 64), (64, 100), (63, 237), (299, 1), (300, 0)]
        {
            let slice = batches[0].slice(offset, len).unwrap();
            let out = rig.write(&schema, &[slice], FORMS[1], "none").unwrap();
            let back = peer_reads(&out);
            assert_eq!(back, [table.slice(offset, len)], "{device} {offset} {len}");
        }
    }
}

#[test]
fn writes_only_the_bytes_of_slices() {
    let rig = Rig::new();
    let text: arrow_array::StringArray = (0..100_000).map(|i| Some(format!("value number {i}"))).collect();
    let views: arrow_array::StringViewArray = text.iter().collect();
    for array in [std::sync::Arc::new(text) as arrow_array::ArrayRef, std::sync::Arc::new(views)] {
        let from = peer_writes(&[crate::common::tables::single(array)], FORMS[0], "none");
        let (schema, batches) = rig.read(&from, SourceKind::Mapped, Device::CPU).unwrap();
        let out = rig.write(&schema, &[batches[0].slice(50_000, 10).unwrap()], FORMS[0], "none").unwrap();
        assert!(out.len() < 4_000, "{}", out.len());
    }
}

#[test]
fn tables_without_rows_batches_or_columns_round_trip() {
    use arrow_array::{RecordBatch, RecordBatchOptions};
    let none = std::sync::Arc::new(arrow_schema::Schema::empty());
    let rows = RecordBatchOptions::new().with_row_count(Some(7));
    let columnless = RecordBatch::try_new_with_options(none, vec![], &rows).unwrap();
    let rig = Rig::new();
    for form in FORMS {
        for how in SOURCE_KINDS {
            let table = everything(0, false);
            let out = rig.convert(
                &peer_writes(std::slice::from_ref(&table), form, "none"),
                how,
                Device::CPU,
                form,
                "lz4",
            );
            assert_eq!(peer_reads(&out.unwrap()), std::slice::from_ref(&table));
            let out = rig.convert(
                &peer_writes(std::slice::from_ref(&columnless), form, "none"),
                how,
                Device::CPU,
                form,
                "none",
            );
            assert_eq!(peer_reads(&out.unwrap()), std::slice::from_ref(&columnless));
            let (schema, batches) = rig.read(&peer_writes(&[table], form, "none"), how, Device::CPU).unwrap();
            assert_eq!(batches.len(), 1);
            let (same, none) =
                rig.read(&rig.write(&schema, &[], form, "zstd").unwrap(), how, Device::CPU).unwrap();
            assert_eq!((same, none.len()), (schema, 0));
        }
    }
}

#[test]
fn mapped_file_is_not_copied() {
    let rig = Rig::new();
    let from = peer_writes(&[everything(1000, true)], FORMS[0], "none");
    let before = rig.host.backend().ledger();
    let settings = crossdock_plugin_api::CallSettings::new(Device::CPU);
    let (_, batches) = rig.read_with(&from, SourceKind::Mapped, &settings).unwrap();
    assert_eq!(batches[0].len(), 1000);
    // The ledger of the host records no allocation, no copy and no kernel.
    assert_eq!(rig.host.backend().ledger(), before);
}

#[test]
fn full_sink_and_cancelled_call_return_their_errors() {
    use crossdock_plugin_api::{CallSettings, Code};
    let rig = Rig::new();
    let from = peer_writes(&[everything(100, true)], FORMS[0], "none");
    let (schema, batches) = rig.read(&from, SourceKind::Mapped, Device::CPU).unwrap();
    let whole = rig.write(&schema, &batches, FORMS[0], "none").unwrap().len();
    for max_bytes in [0, 10, 1000, whole / 2, whole - 1] {
        let sink = crate::common::LimitedSink { bytes: Default::default(), max_bytes };
        let error = rig.write_to(sink, &schema, &batches, FORMS[0], "none").unwrap_err();
        assert_eq!(error.code(), Code::IO);
        assert_eq!(error.message(), "'test output': no space left on device");
    }
    let settings = CallSettings::new(Device::CPU);
    let mut stream = rig.open(&from, SourceKind::Pipe, &settings).unwrap();
    settings.cancel.cancel();
    let error = settings.enter(|call| stream.next(call)).err().unwrap();
    assert_eq!(error.code(), Code::CANCELLED);
}
