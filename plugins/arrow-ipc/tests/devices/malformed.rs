//! Tests malformed input.

use crate::common::tables::{everything, small};
use crate::common::{CODECS, FORMS, Rig, SOURCE_KINDS, SourceKind, peer_reads, peer_writes};
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::{Code, Device, Error};
use crossdock_plugin_api::{CallSettings, Validate};
use crossdock_test_support::devices;

/// Asserts that the error is one line, contains the name of the input, and has a code for invalid
/// input.
fn assert_input_error(error: &Error, what: &str) {
    let input_codes = [Code::BAD_DATA, Code::UNSUPPORTED, Code::OUT_OF_MEMORY];
    assert!(input_codes.contains(&error.code()), "{what}: {error:?}");
    assert!(
        error.message().starts_with("'test input': ") && !error.message().contains('\n'),
        "{what}: {error}"
    );
}

#[test]
fn rejects_files_truncated_at_any_byte() {
    let rig = Rig::new();
    let whole = peer_writes(&small(), FILE, "none");
    for end in 0..whole.len() {
        for how in SOURCE_KINDS {
            match rig.read(&whole[..end], how, Device::CPU) {
                Err(error) => assert_input_error(&error, &format!("{end} {how:?}")),
                Ok(_) => panic!("{end} {how:?}"),
            }
        }
    }
    rig.host.assert_nothing_leaked();
}

#[test]
fn truncated_stream_is_rejected_or_ends_between_messages() {
    for codec in CODECS {
        let rig = Rig::new();
        let whole = peer_writes(&small(), STREAM, codec);
        let expected = rig.read(&whole, SourceKind::Mapped, Device::CPU).unwrap().1;
        let mut ends = 0;
        for end in 0..whole.len() {
            for how in SOURCE_KINDS {
                match rig.read(&whole[..end], how, Device::CPU) {
                    Err(error) => assert_input_error(&error, &format!("{end} {how:?}")),
                    Ok((schema, batches)) => {
                        ends += 1;
                        let got = rig.write(&schema, &batches, STREAM, "none").unwrap();
                        let all = rig.write(&schema, &expected[..batches.len()], STREAM, "none").unwrap();
                        assert_eq!(got, all, "{end} {how:?}");
                    }
                }
            }
        }
        // The stream may end after the schema, after the dictionary, after each batch, and before
        // the end marker.
        assert!((3..=5 * 3 + 12).contains(&ends), "{ends}");
        drop(expected);
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn flipped_bits_are_rejected_or_harmless() {
    for form in FORMS {
        for codec in ["none", "lz4"] {
            let rig = Rig::new();
            let whole = peer_writes(&small(), form, codec);
            for bit in (codec.len() % 11..whole.len() * 8).step_by(11) {
                let mut bad = whole.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let how = SOURCE_KINDS[bit % 3];
                match rig.read(&bad, how, Device::CPU) {
                    Err(error) => assert_input_error(&error, &format!("{form} {codec} bit {bit} {how:?}")),
                    // The read table has passed full validation, so writing it must succeed.
                    Ok((schema, batches)) => {
                        drop(rig.write(&schema, &batches, FORMS[bit % 2], CODECS[bit % 3]).unwrap())
                    }
                }
            }
            rig.host.assert_nothing_leaked();
        }
    }
}

#[test]
fn flipped_bits_are_harmless_without_full_validation() {
    let rig = Rig::new();
    let settings = CallSettings::new(Device::CPU);
    assert_eq!(settings.validate, Validate::Layout);
    for form in FORMS {
        let whole = peer_writes(&[everything(9, true)], form, "none");
        // Only some of the bits are flipped, because the table is large.
        for bit in (0..whole.len() * 8).step_by(37) {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let what = format!("{form} bit {bit}");
            match rig.read_with(&bad, SourceKind::Mapped, &settings) {
                Err(error) => assert_input_error(&error, &what),
                Ok((schema, batches)) => {
                    if let Err(error) = rig.write(&schema, &batches, form, "none") {
                        assert!(
                            [Code::BAD_DATA, Code::UNSUPPORTED].contains(&error.code()),
                            "{what}: {error:?}"
                        );
                    }
                }
            }
        }
    }
    rig.host.assert_nothing_leaked();
}

/// Errors are found in later batches while earlier batches are being validated.
#[test]
fn returns_the_batches_before_an_error() {
    use std::sync::Arc;
    const BATCHES: usize = 12;
    // With these lengths, several tasks validate each batch.
    let text = |i: usize| {
        let texts =
            (0..20_000).map(|row| if row == 7 { format!("batch {i:02} here") } else { "x".repeat(60) });
        crate::common::tables::single(Arc::new(arrow_array::StringArray::from_iter_values(texts)))
    };
    let whole = peer_writes(&(0..BATCHES).map(text).collect::<Vec<_>>(), STREAM, "none");
    let with_wrong_texts = |wrong: &[usize]| {
        let mut bytes = whole.clone();
        for i in wrong {
            let text = format!("batch {i:02} here");
            let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
            bytes[at] = 0xff;
        }
        bytes
    };
    let truncated = whole[..whole.len() - 100_000].to_vec();
    // Only the texts of a batch are in a frame, because compressed offsets would be longer.
    let mut compressed = peer_writes(&(0..BATCHES).map(text).collect::<Vec<_>>(), STREAM, "lz4");
    let frames = compressed.windows(4).enumerate().filter(|(_, magic)| *magic == [4, 0x22, 0x4d, 0x18]);
    let at = frames.map(|(at, _)| at).nth(5).unwrap();
    compressed[at] = 5;
    let cases = [
        (compressed, 5, "buffer 2: "),
        (with_wrong_texts(&[0]), 0, "record batch 0: "),
        (with_wrong_texts(&[5, 8]), 5, "record batch 5: "),
        (with_wrong_texts(&[BATCHES - 1]), BATCHES - 1, "record batch 11: "),
        (truncated, BATCHES - 1, "truncated"),
    ];
    let rig = Rig::new();
    for &device in devices() {
        for (bytes, n_correct, expected) in &cases {
            for how in SOURCE_KINDS {
                let mut settings = CallSettings::new(device);
                settings.validate = Validate::Full;
                let mut stream = rig.open(bytes, how, &settings).unwrap();
                let mut next = || settings.enter(|call| stream.next(call));
                for i in 0..*n_correct {
                    assert!(next().unwrap().is_some(), "{device} {how:?}: batch {i}");
                }
                for _ in 0..2 {
                    let error = next().map(|batch| batch.is_some()).unwrap_err();
                    assert_input_error(&error, &format!("{device} {how:?}"));
                    assert!(error.message().contains(expected), "{device} {how:?}: {error}");
                }
            }
        }
    }
    rig.host.assert_nothing_leaked();
}

/// Returns the position of `value`, which occurs exactly once at a multiple of eight bytes.
fn position_of(bytes: &[u8], value: i64) -> usize {
    let positions: Vec<usize> =
        (0..bytes.len() - 8).filter(|i| bytes[*i..i + 8] == value.to_le_bytes()).collect();
    assert_eq!(positions.len(), 1, "{value} is at {positions:?}");
    positions[0]
}

#[test]
fn rejects_wrong_lengths_before_allocation() {
    use std::sync::Arc;
    // The numbers of rows (1,237) and bytes (4,948) occur only once in the file.
    let column: arrow_array::Int32Array = (0..1237).collect();
    let whole = peer_writes(&[crate::common::tables::single(Arc::new(column))], STREAM, "none");
    let rig = Rig::new();
    let bytes = position_of(&whole, 4948);
    let offset = bytes - 8;
    for declared in [i64::MIN, -1, 4949 + 64, 1 << 40, i64::MAX] {
        for at in [bytes, offset] {
            let mut bad = whole.clone();
            bad[at..at + 8].copy_from_slice(&declared.to_le_bytes());
            for how in SOURCE_KINDS {
                let error = rig.read(&bad, how, Device::CPU).unwrap_err();
                assert_input_error(&error, &format!("{declared} at {at} {how:?}"));
                assert!(error.message().contains("expected a range within the body"), "{error}");
            }
        }
    }
    for at in (0..whole.len() - 8).filter(|i| whole[*i..i + 8] == 1237i64.to_le_bytes()) {
        for declared in [i64::MIN, -1, 1238, 1 << 40, i64::MAX] {
            let mut bad = whole.clone();
            bad[at..at + 8].copy_from_slice(&declared.to_le_bytes());
            assert_input_error(
                &rig.read(&bad, SourceKind::Mapped, Device::CPU).unwrap_err(),
                &format!("{declared} at {at}"),
            );
        }
    }
    // The file declares a body of one terabyte, which a reader of a pipe must not allocate.
    let body = position_of(&whole, 4992);
    for declared in [-1, 1 << 40, i64::MAX] {
        let mut bad = whole.clone();
        bad[body..body + 8].copy_from_slice(&declared.to_le_bytes());
        for how in SOURCE_KINDS {
            assert_input_error(
                &rig.read(&bad, how, Device::CPU).unwrap_err(),
                &format!("{declared} {how:?}"),
            );
        }
    }
    rig.host.assert_nothing_leaked();
    let peak =
        rig.host.backend().ledger().accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max();
    assert!(peak.unwrap() < 100 << 20, "{peak:?}");
}

#[test]
fn rejects_huge_declared_metadata() {
    let rig = Rig::new();
    for declared in [i32::MAX, 300 << 20, -2, i32::MIN] {
        for how in SOURCE_KINDS {
            let bad = [&[0xff; 4][..], &declared.to_le_bytes(), &[0; 100]].concat();
            assert_input_error(
                &rig.read(&bad, how, Device::CPU).unwrap_err(),
                &format!("{declared} {how:?}"),
            );
        }
    }
}

#[test]
fn error_for_other_format_names_that_format() {
    let rig = Rig::new();
    for bad in [
        &b""[..],
        b"A",
        b"ARROW1",
        b"ARROW1\0\0ARROW1",
        b"PAR1 and more bytes",
        b"{\"json\": true, \"rows\": []}",
    ] {
        for how in SOURCE_KINDS {
            for device in devices().iter().copied() {
                assert_input_error(&rig.read(bad, how, device).unwrap_err(), &format!("{bad:?} {how:?}"));
            }
        }
    }
}

#[test]
fn returns_batches_before_an_error_and_repeats_the_error() {
    let rig = Rig::new();
    for codec in CODECS {
        for how in SOURCE_KINDS {
            let mut bad = peer_writes(&small(), STREAM, codec);
            bad.truncate(bad.len() - 20);
            let settings = CallSettings::new(Device::CPU);
            let mut stream = rig.open(&bad, how, &settings).unwrap();
            assert!(settings.enter(|call| stream.next(call)).unwrap().is_some(), "{codec} {how:?}");
            for _ in 0..2 {
                assert_input_error(
                    &settings.enter(|call| stream.next(call)).err().unwrap(),
                    &format!("{codec} {how:?}"),
                );
            }
        }
    }
}

#[test]
fn arrow_rs_reads_the_unmodified_table() {
    // The other tests in this file require that the plugin and arrow-rs can read the unmodified
    // table.
    let rig = Rig::new();
    let whole = peer_writes(&small(), FILE, "none");
    assert_eq!(
        peer_reads(&rig.convert(&whole, SourceKind::Mapped, Device::CPU, FILE, "none").unwrap()),
        small()
    );
}
