//! Bytes that are not what they say they are.

use crate::common::tables::{everything, small};
use crate::common::{CODECS, FORMS, How, Rig, WAYS, peer_reads, peer_writes};
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::{Code, Device, Error};
use crossdock_plugin_api::{CallSettings, Validate};
use crossdock_test_support::devices;

/// A failure is one line that blames the bytes, not the plugin.
fn assert_fair(error: &Error, what: &str) {
    let fair = [Code::BAD_DATA, Code::UNSUPPORTED, Code::OUT_OF_MEMORY];
    assert!(fair.contains(&error.code()), "{what}: {error:?}");
    assert!(
        error.message().starts_with("'test input': ") && !error.message().contains('\n'),
        "{what}: {error}"
    );
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let rig = Rig::new();
    let whole = peer_writes(&small(), FILE, "none");
    for end in 0..whole.len() {
        for how in WAYS {
            match rig.read(&whole[..end], how, Device::CPU) {
                Err(error) => assert_fair(&error, &format!("{end} {how:?}")),
                Ok(_) => panic!("{end} {how:?}"),
            }
        }
    }
    rig.host.assert_nothing_leaked();
}

#[test]
fn a_stream_cut_anywhere_is_an_error_or_ends_between_two_messages() {
    for codec in CODECS {
        let rig = Rig::new();
        let whole = peer_writes(&small(), STREAM, codec);
        let expected = rig.read(&whole, How::Mapped, Device::CPU).unwrap().1;
        let mut ends = 0;
        for end in 0..whole.len() {
            for how in WAYS {
                match rig.read(&whole[..end], how, Device::CPU) {
                    Err(error) => assert_fair(&error, &format!("{end} {how:?}")),
                    Ok((schema, batches)) => {
                        ends += 1;
                        let got = rig.write(&schema, &batches, STREAM, "none").unwrap();
                        let all = rig.write(&schema, &expected[..batches.len()], STREAM, "none").unwrap();
                        assert_eq!(got, all, "{end} {how:?}");
                    }
                }
            }
        }
        // After the schema, after the dictionary, after each batch, and in the end marker's place: not more.
        assert!((3..=5 * 3 + 12).contains(&ends), "{ends}");
        drop(expected);
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn flipped_bits_never_do_more_than_fail() {
    for form in FORMS {
        for codec in ["none", "lz4"] {
            let rig = Rig::new();
            let whole = peer_writes(&small(), form, codec);
            for bit in (codec.len() % 11..whole.len() * 8).step_by(11) {
                let mut bad = whole.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let how = WAYS[bit % 3];
                match rig.read(&bad, how, Device::CPU) {
                    Err(error) => assert_fair(&error, &format!("{form} {codec} bit {bit} {how:?}")),
                    // What passed full validation can be written.
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
fn flipped_bits_do_no_harm_where_contents_are_not_looked_at() {
    let rig = Rig::new();
    let settings = CallSettings::new(Device::CPU);
    assert_eq!(settings.validate, Validate::Layout);
    for form in FORMS {
        let whole = peer_writes(&[everything(9, true)], form, "none");
        // Not every bit, for the table is a large one.
        for bit in (0..whole.len() * 8).step_by(37) {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let what = format!("{form} bit {bit}");
            match rig.read_with(&bad, How::Mapped, &settings) {
                Err(error) => assert_fair(&error, &what),
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

/// Where the eight bytes of `value` lie, at multiples of eight, once in `bytes`.
fn place_of(bytes: &[u8], value: i64) -> usize {
    let found: Vec<usize> =
        (0..bytes.len() - 8).filter(|i| bytes[*i..i + 8] == value.to_le_bytes()).collect();
    assert_eq!(found.len(), 1, "{value} lies at {found:?}");
    found[0]
}

#[test]
fn lengths_that_lie_are_refused_before_memory_is_asked_for() {
    use std::sync::Arc;
    // Lengths that occur once: 1,237 rows, of 4,948 bytes.
    let column: arrow_array::Int32Array = (0..1237).collect();
    let whole = peer_writes(&[crate::common::tables::single(Arc::new(column))], STREAM, "none");
    let rig = Rig::new();
    let bytes = place_of(&whole, 4948);
    let offset = bytes - 8;
    for lie in [i64::MIN, -1, 4949 + 64, 1 << 40, i64::MAX] {
        for at in [bytes, offset] {
            let mut bad = whole.clone();
            bad[at..at + 8].copy_from_slice(&lie.to_le_bytes());
            for how in WAYS {
                let error = rig.read(&bad, how, Device::CPU).unwrap_err();
                assert_fair(&error, &format!("{lie} at {at} {how:?}"));
                assert!(error.message().contains("outside its message's body"), "{error}");
            }
        }
    }
    for at in (0..whole.len() - 8).filter(|i| whole[*i..i + 8] == 1237i64.to_le_bytes()) {
        for lie in [i64::MIN, -1, 1238, 1 << 40, i64::MAX] {
            let mut bad = whole.clone();
            bad[at..at + 8].copy_from_slice(&lie.to_le_bytes());
            assert_fair(&rig.read(&bad, How::Mapped, Device::CPU).unwrap_err(), &format!("{lie} at {at}"));
        }
    }
    // The body's own length: a pipe that promises a terabyte must not be believed.
    let body = place_of(&whole, 4992);
    for lie in [-1, 1 << 40, i64::MAX] {
        let mut bad = whole.clone();
        bad[body..body + 8].copy_from_slice(&lie.to_le_bytes());
        for how in WAYS {
            assert_fair(&rig.read(&bad, how, Device::CPU).unwrap_err(), &format!("{lie} {how:?}"));
        }
    }
    rig.host.assert_nothing_leaked();
    let peak =
        rig.host.backend().ledger().accounts.iter().flat_map(|a| &a.devices).map(|d| d.peak_bytes).max();
    assert!(peak.unwrap() < 100 << 20, "{peak:?}");
}

#[test]
fn metadata_that_claims_to_be_huge_is_refused() {
    let rig = Rig::new();
    for claim in [i32::MAX, 300 << 20, -2, i32::MIN] {
        for how in WAYS {
            let bad = [&[0xff; 4][..], &claim.to_le_bytes(), &[0; 100]].concat();
            assert_fair(&rig.read(&bad, how, Device::CPU).unwrap_err(), &format!("{claim} {how:?}"));
        }
    }
}

#[test]
fn what_is_no_arrow_ipc_is_refused_by_name() {
    let rig = Rig::new();
    for bad in [
        &b""[..],
        b"A",
        b"ARROW1",
        b"ARROW1\0\0ARROW1",
        b"PAR1 and more bytes",
        b"{\"json\": true, \"rows\": []}",
    ] {
        for how in WAYS {
            for device in devices().iter().copied() {
                assert_fair(&rig.read(bad, how, device).unwrap_err(), &format!("{bad:?} {how:?}"));
            }
        }
    }
}

#[test]
fn a_batch_before_the_failure_is_still_handed_out_and_the_failure_stays() {
    let rig = Rig::new();
    for codec in CODECS {
        for how in WAYS {
            let mut bad = peer_writes(&small(), STREAM, codec);
            bad.truncate(bad.len() - 20);
            let settings = CallSettings::new(Device::CPU);
            let mut stream = rig.open(&bad, how, &settings).unwrap();
            assert!(settings.enter(|call| stream.next(call)).unwrap().is_some(), "{codec} {how:?}");
            for _ in 0..2 {
                assert_fair(
                    &settings.enter(|call| stream.next(call)).err().unwrap(),
                    &format!("{codec} {how:?}"),
                );
            }
        }
    }
}

#[test]
fn the_whole_table_is_what_the_peer_wrote() {
    // The ground that the tests above stand on.
    let rig = Rig::new();
    let whole = peer_writes(&small(), FILE, "none");
    assert_eq!(peer_reads(&rig.convert(&whole, How::Mapped, Device::CPU, FILE, "none").unwrap()), small());
}
