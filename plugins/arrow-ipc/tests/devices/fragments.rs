//! Tests of the fragments and the row counts of files and streams.

use std::sync::Arc;

use crate::common::tables::everything;
use crate::common::{CODECS, FORMS, Rig, SOURCE_KINDS, SourceKind, peer_reads, peer_writes};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_plugin_api::{Code, Device, Selection};
use crossdock_test_support::{Random, devices};

/// 12 batches of 4 MiB, whose values are positions in the table.
fn large() -> Vec<RecordBatch> {
    let batch = |i: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(i << 19..(i + 1) << 19));
        RecordBatch::try_from_iter([("v", column)]).unwrap()
    };
    (0..12).map(batch).collect()
}

#[test]
fn fragments_of_a_file_contain_each_batch_once() {
    let bytes = peer_writes(&large(), FILE, "none");
    for device in devices().iter().copied() {
        let rig = Rig::new();
        for how in [SourceKind::Mapped, SourceKind::ReadAt] {
            let fragments = rig.fragments(&bytes, how).unwrap();
            // Four batches have slightly more than 16 MiB, because of their metadata.
            let rows: Vec<_> = fragments.iter().map(|fragment| fragment.n_rows.unwrap() >> 19).collect();
            assert_eq!(rows, [4, 4, 4]);
            let mut next = 0;
            for fragment in &fragments {
                assert!((16 << 20..17 << 20).contains(&fragment.bytes), "{}", fragment.bytes);
                let selection = Selection { row_count: true, ..Selection::default() };
                let (n_rows, batches) =
                    rig.read_piece(&bytes, how, device, &selection, Some(&fragment.token)).unwrap();
                assert_eq!(n_rows, fragment.n_rows);
                for batch in batches {
                    let values = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
                    assert_eq!(values.values()[..], (next..next + (1 << 19)).collect::<Vec<_>>());
                    next += 1 << 19;
                }
            }
            assert_eq!(next, 12 << 19);
            // Rows are positions in the fragment.
            let selection = Selection { rows: Some(vec![1..3]), row_count: true, ..Selection::default() };
            let token = fragments[1].token.as_slice();
            let (n_rows, batches) = rig.read_piece(&bytes, how, device, &selection, Some(token)).unwrap();
            let values = batches[0].column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            assert_eq!((n_rows, values.values()[..].to_vec()), (Some(2), vec![(4 << 19) + 1, (4 << 19) + 2]));
        }
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn single_fragment_of_a_small_input_is_the_whole_input() {
    let tables = [everything(100, true), everything(33, false), everything(70, true)];
    for (form, codec) in FORMS.into_iter().flat_map(|form| CODECS.map(|codec| (form, codec))) {
        let bytes = peer_writes(&tables, form, codec);
        for device in devices().iter().copied() {
            let rig = Rig::new();
            for how in [SourceKind::Mapped, SourceKind::ReadAt] {
                let fragments = rig.fragments(&bytes, how).unwrap();
                assert_eq!(fragments.len(), 1);
                assert_eq!(fragments[0].n_rows, (form == FILE).then_some(203));
                let token = Some(fragments[0].token.as_slice());
                let (_, batches) = rig.read_piece(&bytes, how, device, &Selection::default(), token).unwrap();
                assert_eq!(batches, peer_reads(&bytes), "{form} {codec} {device} {how:?}");
            }
            rig.host.assert_nothing_leaked();
        }
    }
}

#[test]
fn file_without_batches_has_no_fragments() {
    let empty = everything(3, false).slice(0, 0);
    let mut bytes = Vec::new();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut bytes, &empty.schema()).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let rig = Rig::new();
    assert!(rig.fragments(&bytes, SourceKind::Mapped).unwrap().is_empty());
    let error = rig.fragments(&bytes, SourceKind::Pipe).err().unwrap();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("its length is unknown"), "{error}");
}

#[test]
fn number_of_rows_is_stated_only_on_request_and_only_for_files() {
    let tables = [everything(10, true), everything(20, false)];
    for form in FORMS {
        let bytes = peer_writes(&tables, form, "lz4");
        let rig = Rig::new();
        for how in SOURCE_KINDS {
            let n_rows = |rows: Option<Vec<std::ops::Range<u64>>>, row_count| {
                let selection = Selection { rows, row_count, ..Selection::default() };
                rig.read_piece(&bytes, how, Device::CPU, &selection, None).unwrap().0
            };
            let is_known = form == FILE && how != SourceKind::Pipe;
            assert_eq!(n_rows(None, false), None);
            assert_eq!(n_rows(None, true), is_known.then_some(30), "{form} {how:?}");
            assert_eq!(n_rows(Some(vec![0..3, 8..12, 29..90]), true), is_known.then_some(8));
            assert_eq!(n_rows(Some(vec![30..31]), true), is_known.then_some(0));
        }
    }
}

#[test]
fn compression_of_the_input_is_stated_on_request() {
    let tables = [everything(10, true), everything(20, false)];
    for (form, codec) in FORMS.into_iter().flat_map(|form| CODECS.map(|codec| (form, codec))) {
        let bytes = peer_writes(&tables, form, codec);
        let rig = Rig::new();
        for how in SOURCE_KINDS {
            let options = |write_options| {
                let selection = Selection { write_options, ..Selection::default() };
                rig.open_piece(&bytes, how, Device::CPU, &selection, None).unwrap().write_options()
            };
            assert!(options(false).is_empty());
            let expected = Some(codec).filter(|codec| *codec != "none" && how != SourceKind::Pipe);
            assert_eq!(options(true).get("compression"), expected, "{form} {how:?}");
        }
    }
}

#[test]
fn malformed_message_leaves_the_number_of_rows_unknown() {
    let mut bytes = peer_writes(&large()[..2], FILE, "none");
    // The metadata of the second record batch.
    let begin = bytes.len() - (4 << 20) - 500;
    let at = (begin..bytes.len()).find(|at| bytes[*at..].starts_with(&[0xff; 4])).unwrap_or(begin);
    bytes[at + 8..at + 40].fill(0xee);
    let rig = Rig::new();
    let selection = Selection { row_count: true, ..Selection::default() };
    let opened = rig.open_piece(&bytes, SourceKind::Mapped, Device::CPU, &selection, None).unwrap();
    assert_eq!(opened.honoured().n_rows, None);
    assert_eq!(rig.fragments(&bytes, SourceKind::Mapped).err().unwrap().code(), Code::BAD_DATA);
}

#[test]
fn changed_tokens_are_errors() {
    let tables = [everything(10, true), everything(20, false)];
    let bytes = peer_writes(&tables, FILE, "none");
    let stream = peer_writes(&tables, STREAM, "none");
    let rig = Rig::new();
    let fragments = rig.fragments(&bytes, SourceKind::Mapped).unwrap();
    let open = |bytes: &[u8], token: &[u8]| {
        let selection = Selection::default();
        rig.open_piece(bytes, SourceKind::Mapped, Device::CPU, &selection, Some(token)).map(drop)
    };
    let mut random = Random::new(5);
    for _ in 0..2000 {
        let mut token = random.pick(&fragments).token.clone();
        let at = random.below(token.len());
        token[at] ^= 1 << random.below(8);
        assert_eq!(open(&bytes, &token).unwrap_err().code(), Code::BAD_DATA);
        assert_eq!(open(&stream, &token).unwrap_err().code(), Code::BAD_DATA);
    }
    open(&bytes, &fragments[0].token).unwrap();
}
