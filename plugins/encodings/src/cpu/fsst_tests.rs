use super::*;
use crate::cpu::coded::decoded_bytes;
use proptest::prelude::*;

/// A table of symbols of 1 to 8 bytes.
fn table(n: usize) -> (Vec<u8>, Vec<u8>) {
    let symbols = (0..n).flat_map(|i| (0..8).map(move |j| (i * 31 + j * 7) as u8)).collect();
    (symbols, (0..n).map(|i| (i % 8 + 1) as u8).collect())
}

/// Decodes one value by the format's definition.
fn decode_by_definition(symbols: &[u8], lengths: &[u8], codes: &[u8]) -> Vec<u8> {
    let (mut out, mut codes) = (Vec::new(), codes.iter());
    while let Some(code) = codes.next() {
        match code {
            255 => out.extend(codes.next()),
            code => {
                let at = usize::from(*code) * 8;
                out.extend_from_slice(&symbols[at..at + usize::from(lengths[usize::from(*code)])]);
            }
        }
    }
    out
}

/// The codes, offsets, lengths and decoded bytes of all values.
fn column(n: usize, values: &[Vec<u8>]) -> (Vec<u8>, Vec<u32>, Vec<u64>, Vec<u8>) {
    let (symbols, lengths) = table(n);
    let plain: Vec<_> = values.iter().map(|codes| decode_by_definition(&symbols, &lengths, codes)).collect();
    let ends = values.iter().scan(0, |at, v| {
        *at += v.len() as u32;
        Some(*at)
    });
    let offsets = std::iter::once(0).chain(ends).collect();
    (values.concat(), offsets, plain.iter().map(|p| p.len() as u64).collect(), plain.concat())
}

fn message_of<T>(result: Result<T>) -> String {
    result.err().map(|e| e.message().to_owned()).unwrap_or_else(|| "nothing".to_owned())
}

fn symbols(n: usize) -> Symbols {
    let (symbols, lengths) = table(n);
    Symbols::read(&symbols, &lengths).unwrap()
}

proptest! {
    #[test]
    fn decoded_values_equal_those_of_a_simple_model(
        n in 1usize..=255,
        seeds in proptest::collection::vec(proptest::collection::vec(any::<(u8, bool)>(), 0..60), 0..120),
    ) {
        let values: Vec<Vec<u8>> = seeds.iter().map(|seeds| {
            // A quarter of the codes are escapes.
            let code = |seed: &(u8, bool)| match seed {
                (byte, true) if byte % 2 == 0 => vec![255, *byte],
                (byte, _) => vec![(usize::from(*byte) % n) as u8],
            };
            seeds.iter().flat_map(code).collect()
        }).collect();
        let (codes, offsets, lengths, plain) = column(n, &values);
        let mut out = vec![0xaa; plain.len()];
        symbols(n).decode(&codes, &offsets, &lengths, &mut out, &mut |_, _| Ok(())).unwrap();
        prop_assert_eq!(out, plain);
    }

    #[test]
    fn random_bytes_never_panic(
        n in 0usize..=255, codes in proptest::collection::vec(any::<u8>(), 0..3000), cuts: [u16; 4], size in 0u64..20_000
    ) {
        let mut offsets: Vec<u64> = cuts.iter().map(|c| u64::from(*c) % (codes.len() as u64 + 2)).collect();
        offsets.sort_unstable();
        let lengths = [size / 3, size / 3, size - 2 * (size / 3)];
        let _ = symbols(n).decode(&codes, &offsets, &lengths, &mut vec![0; size as usize], &mut |_, _| Ok(()));
    }
}

#[test]
fn decodes_value_counts_around_block_and_group_sizes() {
    for n in [0usize, 1, 7, 8, 9, 1023, 1024, 1025, 2048, 5000] {
        for step in [0usize, 1, 3] {
            let mut values: Vec<Vec<u8>> = (0..n).map(|i| vec![(i * step % 251) as u8]).collect();
            if let Some(last) = values.last_mut() {
                last.extend([255, 9]);
            }
            let (codes, offsets, lengths, plain) = column(251, &values);
            let mut out = vec![0xaa; plain.len()];
            symbols(251).decode(&codes, &offsets, &lengths, &mut out, &mut |_, _| Ok(())).unwrap();
            assert_eq!(out, plain, "{n} {step}");
        }
    }
}

#[test]
fn decodes_slices() {
    let values: Vec<Vec<u8>> = (0..300u32).map(|i| vec![(i % 200) as u8; (i % 5) as usize]).collect();
    let (codes, offsets, lengths, plain) = column(200, &values);
    let before: u64 = lengths[..100].iter().sum();
    let within: u64 = lengths[100..200].iter().sum();
    let mut out = vec![0; within as usize];
    symbols(200)
        .decode(&codes, &offsets[100..=200], &lengths[100..200], &mut out, &mut |_, _| Ok(()))
        .unwrap();
    assert_eq!(out, plain[before as usize..(before + within) as usize]);
}

#[test]
fn rejects_invalid_tables() {
    let (bytes, lengths) = table(255);
    assert!(Symbols::read(&bytes, &lengths).is_ok());
    assert!(Symbols::read(&[], &[]).is_ok());
    assert!(
        message_of(Symbols::read(&bytes[..2039], &lengths)).contains("2039 bytes of symbols and 255 lengths")
    );
    assert!(message_of(Symbols::read(&bytes[..2032], &lengths)).contains("expected 8 bytes per symbol"));
    assert!(message_of(Symbols::read(&[0; 2048], &[1; 256])).contains("at most 255"));
    for wrong in [0, 9, 255] {
        let error = message_of(Symbols::read(&bytes[..16], &[8, wrong]));
        assert_eq!(error, format!("fsst: symbol 1 has {wrong} bytes, expected 1 to 8"));
    }
}

/// The error for 3005 values of one code each, after `change` was called with the codes, the
/// offsets and the lengths.
fn with(change: impl Fn(&mut Vec<u8>, &mut Vec<u32>, &mut Vec<u64>), out: isize) -> String {
    let values: Vec<Vec<u8>> = (0..3005u32).map(|i| vec![(i % 100) as u8]).collect();
    let (mut codes, mut offsets, mut lengths, plain) = column(100, &values);
    change(&mut codes, &mut offsets, &mut lengths);
    message_of(symbols(100).decode(
        &codes,
        &offsets,
        &lengths,
        &mut vec![0; plain.len().strict_add_signed(out)],
        &mut |_, _| Ok(()),
    ))
}

#[test]
fn rejects_unknown_codes_at_any_position() {
    assert_eq!(with(|_, _, _| (), 0), "nothing");
    for at in [0, 1, 7, 8, 1023, 1024, 2990, 3001, 3004] {
        for code in [100, 127, 128, 200, 254] {
            let error = with(|codes, _, _| codes[at] = code, 0);
            assert_eq!(
                error,
                format!("fsst: value {at} has code {code}, expected a code below 100 or the escape code 255")
            );
        }
    }
}

#[test]
fn rejects_escapes_without_a_literal() {
    let expected = |value| format!("fsst: value {value} ends in the middle of a code");
    for at in [0, 6, 7, 8, 1022, 1023, 1024, 2990, 3001, 3004] {
        assert_eq!(with(|codes, _, _| codes[at] = 255, 0), expected(at), "{at}");
    }
}

#[test]
fn rejects_wrong_value_lengths_even_if_their_sum_is_correct() {
    for at in [0, 5, 7, 8, 1023, 1024, 2990, 3001] {
        let error = with(
            |_, _, lengths| {
                lengths[at] += 1;
                lengths[at + 1] -= 1;
            },
            0,
        );
        let right = at % 100 % 8 + 1;
        assert_eq!(error, format!("fsst: value {at} decodes to {right} bytes, expected {}", right + 1));
    }
    assert!(with(|_, _, lengths| lengths[3004] += 1, 1).contains("value 3004 decodes to"));
    assert!(with(|_, _, lengths| lengths[17] = u64::MAX, 0).contains("value 17 decodes to 2 bytes"));
    assert!(with(|_, _, lengths| lengths[17] -= 1, 0).contains("value 17 decodes to 2 bytes, expected 1"));
}

#[test]
fn rejects_wrong_output_size() {
    assert!(with(|_, _, _| (), 1).contains("decoded bytes: expected"));
    assert!(with(|_, _, _| (), -1).contains("value 3004"));
    assert_ne!(with(|_, _, _| (), -9000), "nothing");
}

#[test]
fn rejects_descending_and_out_of_range_offsets() {
    let fall = with(|_, offsets, _| offsets[1500] = 1501 + 7, 0);
    assert_eq!(fall, "fsst: value 1500 has the codes from 1508 to 1501, expected ascending offsets");
    let leave = with(|_, offsets, _| offsets[3005] = 3006, 0);
    assert_eq!(leave, "fsst: values have the codes from 0 to 3006, expected at most 3005");
    assert!(with(|_, offsets, _| offsets.truncate(3005), 0).contains("expected 3006, got 3005"));
    let negative = symbols(9).decode(&[1, 2], &[-1i32, 2], &[5u8], &mut [0; 5], &mut |_, _| Ok(()));
    assert!(message_of(negative).contains("from -1 to 2"));
    assert!(
        message_of(symbols(9).decode::<u8, u8>(&[], &[], &[], &mut [], &mut |_, _| Ok(())))
            .contains("expected 1, got 0")
    );
}

#[test]
fn rejects_lengths_beyond_the_codes_before_allocation() {
    assert_eq!(decoded_bytes(&[3u32, 5], 8).unwrap(), 8);
    assert_eq!(
        message_of(decoded_bytes(&[3u32, 6], 8)),
        "2 values declare 9 decoded bytes, expected at most 8 for their codes"
    );
    assert!(decoded_bytes(&[u64::MAX, u64::MAX], usize::MAX - 1).is_err());
    assert!(decoded_bytes(&[-1i32], 1 << 40).is_err());
}
