use super::*;
use proptest::prelude::*;

/// A dictionary of tokens of 1 to 16 bytes.
fn dictionary(n: usize) -> (Vec<u8>, Vec<u32>) {
    let ends = (0..n).scan(0, |at, i| {
        *at += (i % 16 + 1) as u32;
        Some(*at)
    });
    let offsets: Vec<u32> = std::iter::once(0).chain(ends).collect();
    ((0..offsets[n]).map(|i| (i * 37 / 4) as u8).collect(), offsets)
}

fn token(n: usize, code: u16) -> Vec<u8> {
    let (bytes, offsets) = dictionary(n);
    let code = usize::from(code);
    bytes[offsets[code] as usize..offsets[code + 1] as usize].to_vec()
}

fn message_of<T>(result: Result<T>) -> String {
    result.err().map(|e| e.message().to_owned()).unwrap_or_else(|| "nothing".to_owned())
}

fn tokens(n: usize) -> Tokens {
    let (bytes, offsets) = dictionary(n);
    Tokens::read(&bytes, &offsets).unwrap()
}

proptest! {
    #[test]
    fn decoded_values_equal_those_of_a_simple_model(
        n in 1usize..2000,
        seeds in proptest::collection::vec(proptest::collection::vec(any::<u16>(), 0..40), 0..120),
    ) {
        let values: Vec<Vec<u16>> =
            seeds.iter().map(|v| v.iter().map(|s| (usize::from(*s) % n) as u16).collect()).collect();
        let (bytes, starts) = dictionary(n);
        let token = |code: &u16| {
            bytes[starts[usize::from(*code)] as usize..starts[usize::from(*code) + 1] as usize].to_vec()
        };
        let plain: Vec<Vec<u8>> = values.iter().map(|v| v.iter().flat_map(token).collect()).collect();
        let lengths: Vec<u32> = plain.iter().map(|p| p.len() as u32).collect();
        let ends = values.iter().scan(0, |at, v| { *at += v.len() as u64; Some(*at) });
        let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let mut out = vec![0xaa; plain.concat().len()];
        let mut progress = Vec::new();
        let mut on_progress = |bytes: &[u8], values| {
            progress.push((bytes.to_vec(), values));
            Ok(())
        };
        tokens(n).decode(&values.concat(), &offsets, &lengths, &mut out, &mut on_progress).unwrap();
        for (bytes, values) in &progress {
            prop_assert!(out.starts_with(bytes) && bytes.starts_with(&plain[..*values].concat()));
        }
        prop_assert_eq!(progress.last(), Some(&(out.clone(), values.len())));
        prop_assert_eq!(out, plain.concat());
    }

    #[test]
    fn random_codes_never_panic(
        n in 0usize..300, codes in proptest::collection::vec(0u16..310, 0..3000), size in 0u64..20_000
    ) {
        let _ = tokens(n).decode(&codes, &[0, codes.len() as u64], &[size], &mut vec![0; size as usize], &mut |_, _| Ok(()));
    }
}

#[test]
fn decodes_with_a_full_dictionary() {
    let n = 1 << 16;
    let (bytes, offsets) = dictionary(n);
    let tokens = Tokens::read(&bytes, &offsets).unwrap();
    let last = token(n, 65535);
    assert_eq!(last.len(), 16);
    let mut out = [0; 16];
    tokens.decode(&[65535u16], &[0u8, 1], &[16u8], &mut out, &mut |_, _| Ok(())).unwrap();
    assert_eq!(out, last[..]);
    let more = [&offsets[..], &[offsets[n] + 1]].concat();
    assert!(message_of(Tokens::read(&[&bytes[..], &[0]].concat(), &more)).contains("expected 1 to 65537"));
}

#[test]
fn rejects_invalid_dictionaries() {
    let (bytes, offsets) = dictionary(20);
    assert!(Tokens::read(&bytes, &offsets).is_ok());
    assert!(Tokens::read::<u32>(&bytes, &[]).is_err());
    assert!(Tokens::read(&[], &[0u8]).is_ok());
    let short = message_of(Tokens::read(&bytes[1..], &offsets));
    assert_eq!(
        short,
        "onpair: the tokens are bytes 0 to 146, expected a range within the dictionary's 145 bytes"
    );
    for (wrong, expected) in [
        ([3u8, 3], "spans bytes 3 to 3"),
        ([0, 17], "spans bytes 0 to 17"),
        ([4, 3], "tokens are bytes 4 to 3"),
    ] {
        assert!(message_of(Tokens::read(&bytes, &wrong)).contains(expected), "{wrong:?}");
    }
    let falls = message_of(Tokens::read(&bytes, &[0u8, 5, 3, 9]));
    assert_eq!(falls, "onpair: token 1 spans bytes 5 to 3, expected 1 to 16 bytes");
    let falls_late = message_of(Tokens::read(&bytes, &[0u8, 10, 26, 36, 5]));
    assert_eq!(falls_late, "onpair: token 3 spans bytes 36 to 5, expected 1 to 16 bytes");
    // The tokens of a slice may begin after byte 0.
    let moved: Vec<u32> = offsets.iter().map(|o| o + 9).collect();
    let tokens = Tokens::read(&[&[1; 9], &bytes[..]].concat(), &moved).unwrap();
    let mut out = [0; 3];
    tokens.decode(&[2u8], &[0u8, 1], &[3u8], &mut out, &mut |_, _| Ok(())).unwrap();
    assert_eq!(out, token(20, 2)[..]);
}

/// The error for 3000 values of one code each, after `change` was called with the codes, the
/// offsets and the lengths.
fn with(change: impl Fn(&mut Vec<u16>, &mut Vec<u32>, &mut Vec<u64>), out: isize) -> String {
    let mut codes: Vec<u16> = (0..3000).map(|i| i % 500).collect();
    let mut offsets: Vec<u32> = (0..=3000).collect();
    let mut lengths: Vec<u64> = codes.iter().map(|c| u64::from(c % 16) + 1).collect();
    let bytes: u64 = lengths.iter().sum();
    change(&mut codes, &mut offsets, &mut lengths);
    let mut out = vec![0; (bytes as usize).strict_add_signed(out)];
    message_of(tokens(500).decode(&codes, &offsets, &lengths, &mut out, &mut |_, _| Ok(())))
}

#[test]
fn rejects_unknown_codes_at_any_position() {
    assert_eq!(with(|_, _, _| (), 0), "nothing");
    for at in [0, 7, 8, 1023, 1024, 2990, 2999] {
        for code in [500, 65535] {
            let error = with(|codes, _, _| codes[at] = code, 0);
            assert_eq!(error, format!("onpair: value {at} has code {code}, expected a code below 500"));
        }
    }
    let negative = tokens(5).decode(&[-1i16], &[0u8, 1], &[1u8], &mut [0], &mut |_, _| Ok(()));
    assert!(message_of(negative).contains("has code -1"));
}

#[test]
fn rejects_wrong_lengths_and_output_sizes() {
    for at in [0, 7, 8, 1023, 1024, 2990] {
        let error = with(
            |_, _, lengths| {
                lengths[at] += 1;
                lengths[at + 1] -= 1;
            },
            0,
        );
        assert!(error.starts_with(&format!("onpair: value {at} decodes to")), "{error}");
    }
    assert!(with(|_, _, _| (), 1).contains("decoded bytes: expected"));
    assert!(with(|_, _, _| (), -1).contains("value 2999"));
    assert!(with(|_, offsets, _| offsets[9] = 3, 0).contains("expected ascending offsets"));
    assert!(with(|_, offsets, _| offsets[3000] = 3001, 0).contains("expected at most 3000"));
}
