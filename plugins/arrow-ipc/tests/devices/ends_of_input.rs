//! Tests the ends of files and streams, and bytes that follow the end. The result must be the same
//! for every kind of source.

use std::sync::Arc;

use crate::common::tables::{everything, single, small};
use crate::common::{FORMS, Rig, SOURCE_KINDS, SourceKind, peer_reads, peer_writes, peer_writes_with};
use arrow_array::{Int32Array, Int64Array, RecordBatch};
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::IpcWriteOptions;
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::{Code, Device, Error};
use crossdock_plugin_api::{CallSettings, Plugin};
use crossdock_test_support::devices;

/// Writes batches in the format before Arrow 0.15, which has no continuation markers.
fn legacy(batches: &[RecordBatch], form: &str) -> Vec<u8> {
    let options = IpcWriteOptions::try_new(8, true, MetadataVersion::V4).unwrap();
    peer_writes_with(batches, form, options)
}

/// Returns the position of a file's footer.
fn footer(file: &[u8]) -> usize {
    let length = i32::from_le_bytes(file[file.len() - 10..file.len() - 6].try_into().unwrap());
    file.len() - 10 - length as usize
}

/// Returns the file without the end-of-stream marker before its footer.
fn without_marker(file: &[u8]) -> Vec<u8> {
    let (messages, footer) = file.split_at(footer(file));
    let messages = match messages.strip_suffix(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]) {
        Some(messages) => messages,
        None => messages.strip_suffix(&[0; 4]).unwrap(),
    };
    [messages, footer].concat()
}

#[track_caller]
fn assert_rows(rig: &Rig, bytes: &[u8], how: SourceKind, device: Device, expected: &[RecordBatch]) {
    let (schema, batches) = rig.read(bytes, how, device).unwrap_or_else(|e| panic!("{how:?}: {e}"));
    let out = rig.write(&schema, &batches, STREAM, "none").unwrap();
    assert_eq!(peer_reads(&out), expected, "{how:?} {device}");
}

fn read_error(rig: &Rig, bytes: &[u8], how: SourceKind) -> Error {
    let error = rig.read(bytes, how, Device::CPU).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::BAD_DATA, "{how:?}: {error}");
    assert!(!error.message().contains('\n'), "{error}");
    error
}

#[test]
fn rejects_file_truncated_between_messages() {
    let rig = Rig::new();
    for is_legacy in [false, true] {
        let write = |batches: &[RecordBatch]| match is_legacy {
            true => legacy(batches, FILE),
            false => peer_writes(batches, FILE, "none"),
        };
        let whole = write(&small());
        // The first of two batches ends at the same position as the only batch of a shorter file.
        for batches in [&small()[..1], &small()] {
            let end = footer(&without_marker(&write(batches)));
            let error = read_error(&rig, &whole[..end], SourceKind::Pipe);
            assert!(error.message().contains("expected the footer"), "{error}");
            for how in [SourceKind::Mapped, SourceKind::ReadAt] {
                read_error(&rig, &whole[..end], how);
            }
        }
    }
}

#[test]
fn reads_file_without_end_of_stream_marker() {
    let rig = Rig::new();
    for whole in [peer_writes(&small(), FILE, "none"), legacy(&small(), FILE)] {
        let file = without_marker(&whole);
        for how in SOURCE_KINDS {
            assert_rows(&rig, &whole, how, Device::CPU, &small());
            assert_rows(&rig, &file, how, Device::CPU, &small());
        }
        for end in footer(&file)..file.len() {
            for how in SOURCE_KINDS {
                read_error(&rig, &file[..end], how);
            }
        }
    }
}

#[test]
fn reads_file_whose_schema_has_no_prefix() {
    let rig = Rig::new();
    for batches in [small(), vec![everything(20, true)]] {
        let whole = peer_writes(&batches, FILE, "none");
        let begin = whole.windows(4).position(|w| w == [0xff; 4]).unwrap();
        let length = i32::from_le_bytes(whole[begin + 4..begin + 8].try_into().unwrap()) as usize;
        let (head, schema, rest) =
            (&whole[..begin], &whole[begin + 8..begin + 8 + length], &whole[begin + 8 + length..]);
        // The schema is padded, so that the following messages keep their positions.
        let file = [head, schema, &[0; 8], rest].concat();
        for how in SOURCE_KINDS {
            assert_rows(&rig, &file, how, Device::CPU, &batches);
            read_error(&rig, &[head, &schema[..40], &[0; 8], &schema[40..], rest].concat(), how);
            read_error(&rig, &file[..begin + length], how);
            // The footer of a file without batches does not list the messages of this file.
            let schema = rig.read(&whole, SourceKind::Mapped, Device::CPU).unwrap().0;
            let empty = rig.write(&schema, &[], FILE, "none").unwrap();
            read_error(&rig, &[&file[..footer(&file)], &empty[footer(&empty)..]].concat(), how);
        }
    }
}

#[test]
fn reads_file_with_dictionaries_at_its_end_within_budget() {
    let rig = Rig::new();
    let whole = peer_writes(&small(), FILE, "none");
    let markers: Vec<_> =
        whole.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).map(|(i, _)| i).collect();
    let [_, dictionary, first, second, end] = markers[..] else { panic!("{markers:?}") };
    let places =
        [(first, dictionary), (second, second - first + dictionary), (dictionary, end - first + dictionary)];
    let mut tail = whole[end..].to_vec();
    for (from, to) in places.map(|(from, to)| ((from as i64).to_le_bytes(), (to as i64).to_le_bytes())) {
        let at = whole[end..].windows(8).position(|w| w == from).unwrap();
        tail[at..at + 8].copy_from_slice(&to);
    }
    let file = [&whole[..dictionary], &whole[first..end], &whole[dictionary..first], &tail].concat();
    for how in SOURCE_KINDS {
        assert_rows(&rig, &file, how, Device::CPU, &small());
    }
    let mut settings = CallSettings::new(Device::CPU);
    settings.byte_budget = 1;
    let error = rig.read_with(&file, SourceKind::Pipe, &settings).map(drop).unwrap_err();
    assert!(error.message().contains("is used before its first batch"), "{error}");
    assert_eq!(rig.read_with(&file, SourceKind::Mapped, &settings).unwrap().1.len(), 2);
}

#[test]
fn reads_file_without_batches_and_end_marker() {
    let rig = Rig::new();
    let table = everything(3, true);
    let schema = rig.read(&peer_writes(&[table], FILE, "none"), SourceKind::Mapped, Device::CPU).unwrap().0;
    let file = rig.write(&schema, &[], FILE, "none").unwrap();
    for bytes in [without_marker(&file), file] {
        for how in SOURCE_KINDS {
            let (read, batches) = rig.read(&bytes, how, Device::CPU).unwrap();
            assert_eq!((read, batches.len()), (schema.clone(), 0), "{how:?}");
        }
    }
}

#[test]
fn rejects_damaged_footer() {
    let rig = Rig::new();
    let whole = peer_writes(&small(), FILE, "none");
    let begin = footer(&whole);
    for at in [begin, whole.len() - 10, whole.len() - 8, whole.len() - 6, whole.len() - 1] {
        let mut bad = whole.clone();
        bad[at] ^= 0x55;
        for how in SOURCE_KINDS {
            read_error(&rig, &bad, how);
        }
    }
}

#[test]
fn rejects_footer_that_does_not_match_messages() {
    let rig = Rig::new();
    let (one, two) = (peer_writes(&small()[..1], FILE, "none"), peer_writes(&small(), FILE, "none"));
    // The file has the messages of two batches and the footer of a file with one batch.
    let bytes = [&two[..footer(&two)], &one[footer(&one)..]].concat();
    // The footer lists the second batch twice and the first batch not at all.
    let places: Vec<_> =
        two.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).map(|(i, _)| i).collect();
    let (first, second) = (places[2] as i64, places[3] as i64);
    let at = two.windows(8).rposition(|w| w == first.to_le_bytes()).unwrap();
    let mut twice = two.clone();
    twice[at..at + 8].copy_from_slice(&second.to_le_bytes());
    for how in SOURCE_KINDS {
        read_error(&rig, &bytes, how);
        read_error(&rig, &twice, how);
    }
}

#[test]
fn rejects_concatenated_files() {
    let rig = Rig::new();
    let file = peer_writes(&small(), FILE, "none");
    let stream = peer_writes(&small(), STREAM, "none");
    for how in SOURCE_KINDS {
        read_error(&rig, &[&file[..], &file].concat(), how);
        let error = read_error(&rig, &[&stream[..], &file].concat(), how);
        assert!(
            error.message().contains(&format!("at byte {}: an Arrow IPC file follows", stream.len())),
            "{error}"
        );
        assert_eq!(error.offset(), Some(stream.len() as u64), "{how:?}");
    }
}

#[test]
fn rejects_file_whose_schema_differs_from_its_footer() {
    let rig = Rig::new();
    let whole = peer_writes(&[single(Arc::new(Int32Array::from(vec![1, 2])))], FILE, "none");
    let at = whole.windows(6).position(|w| w == b"column").unwrap();
    let mut bad = whole.clone();
    bad[at] = b'C';
    for how in SOURCE_KINDS {
        let error = read_error(&rig, &bad, how);
        assert!(error.message().contains("[Column: int32], but its footer has [column: int32]"), "{error}");
    }
}

#[test]
fn reads_footer_of_any_version() {
    let rig = Rig::new();
    let mut file = peer_writes(&small(), FILE, "none");
    let begin = footer(&file);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let table = begin + word(begin);
    let vtable = table - word(table);
    let version = table + usize::from(u16::from_le_bytes([file[vtable + 4], file[vtable + 5]]));
    assert_eq!(file[version..version + 2], MetadataVersion::V5.0.to_le_bytes());
    for declared in [MetadataVersion::V1, MetadataVersion::V3, MetadataVersion::V4] {
        file[version..version + 2].copy_from_slice(&declared.0.to_le_bytes());
        for how in SOURCE_KINDS {
            assert_rows(&rig, &file, how, Device::CPU, &small());
        }
    }
}

#[test]
fn reads_concatenated_streams_as_one_table() {
    let other = vec![everything(9, true)];
    for device in devices().iter().copied() {
        let rig = Rig::new();
        for batches in [small(), other.clone()] {
            let stream = peer_writes(&batches, STREAM, "none");
            let cut = stream.len() - 8;
            let old = legacy(&batches, STREAM);
            let empty = {
                let schema = rig.read(&stream, SourceKind::Mapped, Device::CPU).unwrap().0;
                rig.write(&schema, &[], STREAM, "none").unwrap()
            };
            for bytes in [
                [&stream[..], &stream, &stream].concat(),
                [&stream[..cut], &stream[..cut], &stream[..cut]].concat(),
                [&stream[..], &[0; 8000], &stream, &[0; 12], &stream, &[0; 3]].concat(),
                [&stream[..], &stream[cut..], &stream, &empty, &stream].concat(),
                [&old[..], &old, &old].concat(),
                [&old[..], &stream, &old].concat(),
                [&empty[..], &stream, &peer_writes(&batches, STREAM, "lz4"), &stream].concat(),
            ] {
                let expected: Vec<_> = (0..3).flat_map(|_| batches.clone()).collect();
                for how in SOURCE_KINDS {
                    assert_rows(&rig, &bytes, how, device, &expected);
                }
            }
        }
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn second_stream_does_not_use_dictionaries_of_first() {
    let rig = Rig::new();
    let stream = peer_writes(&small(), STREAM, "none");
    // The second stream lacks its dictionary.
    let at = |n: usize| {
        stream.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).map(|(i, _)| i).nth(n).unwrap()
    };
    let without = [&stream[..at(1)], &stream[at(2)..]].concat();
    for how in SOURCE_KINDS {
        let error = read_error(&rig, &[&stream[..], &without].concat(), how);
        assert!(error.message().contains("is used before its first batch"), "{error}");
    }
}

#[test]
fn error_for_stream_with_another_schema_names_its_position() {
    let rig = Rig::new();
    let first = peer_writes(&[single(Arc::new(Int32Array::from(vec![1, 2])))], STREAM, "none");
    let second = peer_writes(&[single(Arc::new(Int64Array::from(vec![3, 4])))], STREAM, "none");
    for how in SOURCE_KINDS {
        let bytes = [&first[..], &second].concat();
        let error = read_error(&rig, &bytes, how);
        let expected = format!("the stream that begins at byte {}: its schema differs", first.len());
        assert!(error.message().contains(&expected), "{error}");
        assert!(error.message().contains("expected [column: int32], got [column: int64]"), "{error}");
        // The batches before the error must be returned.
        let settings = CallSettings::new(Device::CPU);
        let mut stream = rig.open(&bytes, how, &settings).unwrap();
        assert!(settings.enter(|call| stream.next(call)).unwrap().is_some());
        assert!(settings.enter(|call| stream.next(call)).is_err());
    }
}

#[test]
fn rejects_damaged_second_stream() {
    let rig = Rig::new();
    let stream = peer_writes(&small(), STREAM, "none");
    let second = |n: usize| stream.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).nth(n).unwrap().0;
    for how in SOURCE_KINDS {
        for bad in [
            &stream[..second(1) - 1],
            &stream[..20],
            &stream[..4],
            &stream[second(2)..],
            &legacy(&small(), STREAM)[..100],
        ] {
            read_error(&rig, &[&stream[..], bad].concat(), how);
        }
    }
}

#[test]
fn ignores_other_bytes_after_a_stream() {
    let rig = Rig::new();
    let stream = peer_writes(&small(), STREAM, "none");
    for how in SOURCE_KINDS {
        for rest in [&b"x"[..], b"and so on, for more than a few bytes", &[0, 0, 0, 0, 0, 1, 2], &[0; 5]] {
            assert_rows(&rig, &[&stream[..], rest].concat(), how, Device::CPU, &small());
        }
    }
}

#[test]
fn identifies_streams_with_and_without_continuation_markers() {
    let rig = Rig::new();
    let recognised = |bytes: &[u8]| {
        let formats = rig.plugin.importer().unwrap().formats();
        formats.iter().filter(|f| f.matches(bytes, bytes)).map(|f| f.name.clone()).collect::<Vec<_>>()
    };
    let schema = single(Arc::new(Int32Array::from(vec![1])));
    for batches in [small(), vec![everything(3, true)], vec![schema]] {
        for form in FORMS {
            assert_eq!(recognised(&peer_writes(&batches, form, "none")), [form]);
            assert_eq!(recognised(&legacy(&batches, form)), [form]);
        }
    }
    // These bytes were written by Arrow C++ and Java.
    for head in [
        [0x1c, 1, 0, 0, 16, 0, 0, 0, 0, 0, 10, 0, 12, 0, 6, 0, 5, 0, 8, 0],
        [0x4c, 1, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 12, 0, 6, 0],
        [0x04, 2, 0, 0, 16, 0, 0, 0, 0, 0, 10, 0, 14, 0, 6, 0, 13, 0, 8, 0],
    ] {
        assert_eq!(recognised(&head), [STREAM]);
    }
    for other in [&[0; 64][..], b"a,b\n1,2\n3,4\n5,6\n7,8\n", b"PAR1\x15\x04\x15\x10", &[1; 64]] {
        assert_eq!(recognised(other), [""; 0]);
    }
}

/// Returns the rows that arrow-rs reads; `None` if the plugin returns an error.
fn outcome(rig: &Rig, bytes: &[u8], how: SourceKind) -> Option<Vec<RecordBatch>> {
    let (schema, batches) = rig.read(bytes, how, Device::CPU).ok()?;
    Some(peer_reads(&rig.write(&schema, &batches, STREAM, "none").ok()?))
}

#[test]
fn flipped_bit_has_same_result_for_every_source() {
    let rig = Rig::new();
    for form in FORMS {
        let whole = peer_writes(&[small()[0].slice(0, 2)], form, "none");
        let mut bytes = whole.clone();
        let mut differ = Vec::new();
        for at in 0..whole.len() {
            let bit = 1 << (at % 8);
            bytes[at] ^= bit;
            let outcomes = SOURCE_KINDS.map(|how| outcome(&rig, &bytes, how));
            if outcomes.iter().any(|one| *one != outcomes[0]) {
                let outcomes = SOURCE_KINDS
                    .map(|how| rig.read(&bytes, how, Device::CPU).map(|_| ()).map_err(|e| e.to_string()));
                differ.push((at, bit, outcomes));
            }
            bytes[at] ^= bit;
        }
        assert!(differ.is_empty(), "{form}, {} bytes: {differ:#?}", whole.len());
    }
}
