//! References for kernels that convert, sum and join integers.

use crossdock_kernels::{BlockCodes, Checks, Deltas, Halves, IntType, Integers, LeftParts, Source, Words};
use crossdock_memory::Buffer;

use super::Case;
use super::decode::{some_steps, stepped, words};
use crate::common::bit;

fn types() -> impl Iterator<Item = IntType> {
    [1, 2, 4, 8]
        .into_iter()
        .flat_map(|width_bytes| [true, false].map(|signed| IntType { width_bytes, signed }))
}

/// Returns number `i`.
fn number(bytes: &[u8], i: usize, of: IntType) -> i128 {
    let word = &bytes[i * of.width_bytes..][..of.width_bytes];
    match (of.width_bytes, of.signed) {
        (1, false) => word[0].into(),
        (1, true) => (word[0] as i8).into(),
        (2, false) => u16::from_le_bytes(word.try_into().unwrap()).into(),
        (2, true) => i16::from_le_bytes(word.try_into().unwrap()).into(),
        (4, false) => u32::from_le_bytes(word.try_into().unwrap()).into(),
        (4, true) => i32::from_le_bytes(word.try_into().unwrap()).into(),
        (8, false) => u64::from_le_bytes(word.try_into().unwrap()).into(),
        (8, true) => i64::from_le_bytes(word.try_into().unwrap()).into(),
        _ => i128::from_le_bytes(word.try_into().unwrap()),
    }
}

/// Random integers in a buffer, beginning at any address: the numbers, the buffer, and the byte at
/// which the integers begin.
fn some_integers(case: &Case<'_>, of: IntType) -> (Vec<i128>, Buffer, usize) {
    let (skip, width) = (case.below(9), of.width_bytes);
    let bytes = case.bytes((skip + case.n) * width);
    let numbers = (skip..skip + case.n).map(|i| number(&bytes, i, of)).collect();
    (numbers, case.buffer(&bytes), skip * width)
}

/// A validity bitmap that begins at any bit and has most bits set, or no bitmap.
fn some_validity(case: &Case<'_>) -> Option<(Vec<u8>, Buffer, usize)> {
    if case.below(2) == 0 {
        return None;
    }
    let first = case.below(20);
    let bits: Vec<u8> =
        case.bytes((first + case.n).div_ceil(8)).iter().map(|b| b | case.word() as u8).collect();
    let buffer = case.buffer(&bits);
    Some((bits, buffer, first))
}

fn is_valid(validity: &Option<(Vec<u8>, Buffer, usize)>, i: usize) -> bool {
    validity.as_ref().is_none_or(|(bits, _, first)| bit(bits, first + i))
}

pub fn widen(case: &Case<'_>) {
    for of in types() {
        let (numbers, buffer, at) = some_integers(case, of);
        let from = Integers { buffer: &buffer, at, len: case.n, of };
        for width in [1, 2, 4, 8] {
            let steps = if case.below(2) == 0 { vec![] } else { some_steps(case, width) };
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let place = Words { at: to.at, len: case.n, width_bytes: width };
            checks.widen(from, &mut to.buffer, place, &steps).unwrap();
            checks.run(case.s).unwrap();
            let expected: Vec<u64> = numbers.iter().map(|n| stepped(*n as u64, width, &steps)).collect();
            case.expect(to, &words(&expected, width), &format!("{of:?} to {width} bytes, {steps:?}"));
        }
        widen_long(case, of, 16);
        widen_long(case, of, 32);
    }
    widen_long(case, IntType { width_bytes: 16, signed: true }, 32);
}

fn widen_long(case: &Case<'_>, of: IntType, width: usize) {
    let (numbers, buffer, at) = some_integers(case, of);
    let from = Integers { buffer: &buffer, at, len: case.n, of };
    let mut to = case.target(case.n * width);
    let mut checks = Checks::new();
    checks.widen_long(from, &mut to.buffer, to.at, width).unwrap();
    checks.run(case.s).unwrap();
    let long = |n: &i128| [n.to_le_bytes(), (n >> 127).to_le_bytes()].concat()[..width].to_vec();
    let expected: Vec<u8> = numbers.iter().flat_map(long).collect();
    case.expect(to, &expected, &format!("{of:?} to {width} bytes"));
}

pub fn narrow(case: &Case<'_>) {
    for every in [1, 50, usize::MAX] {
        let halves: Vec<[i128; 2]> = (0..case.n)
            .map(|_| {
                let low = (i128::from(case.word()) << 64 | i128::from(case.word())) >> case.below(128);
                let wrong = case.below(every) == 0 && every != usize::MAX;
                [low, if wrong { (low >> 127) ^ 1 << case.below(128) } else { low >> 127 }]
            })
            .collect();
        let bytes: Vec<u8> =
            halves.iter().flat_map(|[low, high]| [low.to_le_bytes(), high.to_le_bytes()].concat()).collect();
        let (buffer, validity) = (case.buffer(&bytes), some_validity(case));
        let mut to = case.target(case.n * 16);
        let mut checks = Checks::new();
        let valid = validity.as_ref().map(|(_, bits, first)| (bits, *first));
        let cell = checks.narrow(&buffer, 0, case.n, valid, &mut to.buffer, to.at).unwrap();
        let findings = checks.run(case.s).unwrap();
        let wrong = (0..case.n).find(|i| halves[*i][1] != halves[*i][0] >> 127 && is_valid(&validity, *i));
        assert_eq!(findings.first_wrong(cell), wrong.map(|i| i as u64), "n {} every {every}", case.n);
        let expected: Vec<u8> = halves.iter().flat_map(|[low, _]| low.to_le_bytes()).collect();
        case.expect(to, &expected, "32 bytes to 16");
    }
}

pub fn sum(case: &Case<'_>) {
    // The parts have all types. The factors are chosen so that the sums are far below, near or
    // beyond the limits.
    let types: Vec<IntType> = types().collect();
    for round in 0..24 {
        let n_parts = 1 + case.below(4);
        let parts: Vec<_> = (0..n_parts)
            .map(|_| {
                let of = types[case.below(types.len())];
                let room = 62usize.saturating_sub(8 * of.width_bytes);
                let bits = [room.saturating_sub(2), room + case.below(3), case.below(60)][round % 3].min(59);
                (some_integers(case, of), of, case.word() >> (63 - bits) | 1)
            })
            .collect();
        let validity = some_validity(case);
        let mut to = case.target(case.n * 8);
        let mut checks = Checks::new();
        let part_args: Vec<_> = parts
            .iter()
            .map(|((_, buffer, at), of, factor)| {
                (Integers { buffer, at: *at, len: case.n, of: *of }, *factor)
            })
            .collect();
        let valid = validity.as_ref().map(|(_, bits, first)| (bits, *first));
        let cell = checks.sum(&part_args, valid, &mut to.buffer, to.at).unwrap();
        let findings = checks.run(case.s).unwrap();
        let sums: Vec<i128> = (0..case.n)
            .map(|i| parts.iter().map(|((numbers, ..), _, factor)| numbers[i] * i128::from(*factor)).sum())
            .collect();
        let wrong = (0..case.n).find(|i| i64::try_from(sums[*i]).is_err() && is_valid(&validity, *i));
        assert_eq!(findings.first_wrong(cell), wrong.map(|i| i as u64), "n {}: {part_args:?}", case.n);
        let expected: Vec<u8> = sums.iter().flat_map(|sum| (*sum as i64).to_le_bytes()).collect();
        case.expect(to, &expected, &format!("{part_args:?}"));
    }
}

pub fn join(case: &Case<'_>) {
    for (width, noise) in [(4, 0), (4, 100), (8, 0), (8, 100), (8, 1)] {
        let left_bits = 1 + case.below(16);
        let right_bits = 8 * width - left_bits;
        let lefts: Vec<u16> =
            (0..case.below(9)).map(|_| (case.word() & ((1 << left_bits) - 1)) as u16).collect();
        for from_dictionary in [true, false] {
            let limit = if from_dictionary { lefts.len() } else { 1 << left_bits };
            let codes: Vec<u16> = (0..case.n)
                .map(|_| {
                    if noise > 0 && case.below(noise) == 0 {
                        case.word() as u16
                    } else {
                        case.below(limit) as u16
                    }
                })
                .collect();
            let rights: Vec<u64> = (0..case.n).map(|_| case.word()).collect();
            let (code_bytes, skip) =
                (codes.iter().flat_map(|c| c.to_le_bytes()).collect::<Vec<_>>(), case.below(5));
            let code_buffer = case.buffer(&[vec![0; skip * 2], code_bytes].concat());
            let right_parts = case.buffer(&[vec![0; skip * width], words(&rights, width)].concat());
            let validity = some_validity(case);
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let halves = Halves {
                codes: (&code_buffer, skip * 2),
                rights: (&right_parts, skip * width),
                right_bits: right_bits as u32,
                len: case.n,
                width_bytes: width,
            };
            let left_parts = if from_dictionary { LeftParts::Dictionary(&lefts) } else { LeftParts::Inline };
            let valid = validity.as_ref().map(|(_, bits, first)| (bits, *first));
            let cell = checks.join(halves, left_parts, valid, &mut to.buffer, to.at).unwrap();
            let findings = checks.run(case.s).unwrap();
            let what = format!("n {}, {width} bytes, {right_bits} of the right, {left_parts:?}", case.n);
            let wrong = (0..case.n).find(|i| usize::from(codes[*i]) >= limit && is_valid(&validity, *i));
            assert_eq!(findings.first_wrong(cell), wrong.map(|i| i as u64), "{what}");
            let left = |code: u16| match from_dictionary {
                true => lefts.get(usize::from(code) % 8).copied().unwrap_or(0),
                false => code,
            };
            let expected: Vec<u64> = codes
                .iter()
                .zip(&rights)
                .map(|(code, right)| u64::from(left(*code)) << right_bits | right & ((1 << right_bits) - 1))
                .collect();
            case.expect(to, &words(&expected, width), &what);
        }
    }
}

/// The position, in the block, of the sum for lane `lane` and row `row`, according to the
/// transposition of FastLanes.
fn place(row: usize, lane: usize) -> usize {
    let at = row % 8 * 128 + [0, 4, 2, 6, 1, 5, 3, 7][row / 8] * 16 + lane;
    (0..1024).find(|i| i % 8 * 128 + [0, 4, 2, 6, 1, 5, 3, 7][i / 8 % 8] * 16 + i / 64 == at).unwrap()
}

pub fn sum_lanes(case: &Case<'_>) {
    for width in [1, 2, 4, 8] {
        let (first, lanes) = (case.below(2) * case.below(1024), 128 / width);
        let blocks = (first + case.n).div_ceil(1024) + case.below(2);
        let some = |n: usize| (0..n).map(|_| case.word()).collect::<Vec<u64>>();
        let (bases, deltas) = (some(blocks * lanes), some(blocks * 1024));
        let places: Vec<Vec<usize>> =
            (0..8 * width).map(|row| (0..lanes).map(|lane| place(row, lane)).collect()).collect();
        let mut values = vec![0u64; blocks * 1024];
        for block in 0..blocks {
            for lane in 0..lanes {
                let mut sum = bases[block * lanes + lane];
                for (row, places) in places.iter().enumerate() {
                    let at = row % 8 * 128 + [0, 4, 2, 6, 1, 5, 3, 7][row / 8] * 16 + lane;
                    sum = sum.wrapping_add(deltas[block * 1024 + at]);
                    values[block * 1024 + places[lane]] = sum;
                }
            }
        }
        let (bases, deltas) = (case.buffer(&words(&bases, width)), case.buffer(&words(&deltas, width)));
        let mut to = case.target(case.n * width);
        let mut checks = Checks::new();
        let from = Deltas { bases: (&bases, 0), deltas: (&deltas, 0), blocks, first };
        let place = Words { at: to.at, len: case.n, width_bytes: width };
        checks.sum_lanes(from, &mut to.buffer, place).unwrap();
        checks.run(case.s).unwrap();
        let expected = words(&values[first..first + case.n], width);
        case.expect(to, &expected, &format!("sums of {width} bytes from {first} on"));
    }
}

pub fn take_blocks(case: &Case<'_>) {
    for round in 0..8 {
        let (width, code_width) = ([1, 2, 4, 8][round % 4], [1, 2][case.below(2)]);
        let begin_of = types().filter(|of| !of.signed).nth(case.below(4)).unwrap();
        // Vectors are loaded if `first` is a multiple of 16.
        let first = [0, case.below(1024), 16 * case.below(64)][case.below(3)];
        let blocks = (first + case.n).div_ceil(1024).max(1) + case.below(2);
        let zero = case.word() & low_bits(begin_of) >> 1;
        // The dictionaries have few values. Some are empty, and some have a wrong range.
        let (mut begins, mut end) = (Vec::new(), 0u64);
        for _ in 0..blocks {
            let error = if round > 5 && case.below(20) == 0 { case.word() } else { 0 };
            begins.push(zero.wrapping_add(end).wrapping_add(error) & low_bits(begin_of));
            end += [1, 2, 5, 9][case.below(4)];
        }
        let n_values = end as usize;
        let wrong_codes = round % 2 == 1;
        let codes: Vec<u64> =
            (0..case.n)
                .map(|_| {
                    if wrong_codes && case.below(300) == 0 {
                        case.word() & 0xff
                    } else {
                        case.below(2) as u64
                    }
                })
                .collect();
        let values: Vec<u64> = (0..n_values).map(|_| case.word()).collect();
        let buffers = [
            case.buffer(&words(&codes, code_width)),
            case.buffer(&words(&begins, begin_of.width_bytes)),
            case.buffer(&words(&values, width)),
        ];
        let validity = some_validity(case);
        let code_of = IntType { width_bytes: code_width, signed: false };
        let from = BlockCodes {
            codes: Integers { buffer: &buffers[0], at: 0, len: case.n, of: code_of },
            first,
            begins: Integers { buffer: &buffers[1], at: 0, len: blocks, of: begin_of },
            values: Source { buffer: Some(&buffers[2]), at: 0, len: n_values },
        };
        let mut to = case.target(case.n * width);
        let place = Words { at: to.at, len: case.n, width_bytes: width };
        let mut checks = Checks::new();
        let valid = validity.as_ref().map(|(_, bits, first)| (bits, *first));
        let cell = checks.take_blocks(from, valid, &mut to.buffer, place).unwrap();
        let findings = checks.run(case.s).unwrap();
        let part = |block: usize| {
            let place = |begin: &u64| usize::try_from(begin.checked_sub(begins[0])?).ok();
            let end = begins.get(block + 1).map_or(Some(n_values), place)?;
            values.get(place(&begins[block])?..end)
        };
        let taken: Vec<(Option<u64>, bool)> = (0..case.n)
            .map(|i| match part((first + i) / 1024) {
                None => (None, true),
                Some([only]) => (Some(*only), false),
                Some(part) => (part.get(codes[i] as usize).copied(), is_valid(&validity, i)),
            })
            .collect();
        let wrong = taken.iter().position(|(value, counts)| value.is_none() && *counts);
        assert_eq!(findings.first_wrong(cell), wrong.map(|i| i as u64), "n {} {from:?}", case.n);
        let expected: Vec<u64> = taken.iter().map(|(value, _)| value.unwrap_or(0)).collect();
        case.expect(to, &words(&expected, width), &format!("{from:?}"));
    }
}

/// A mask of all bits of an integer.
fn low_bits(of: IntType) -> u64 {
    u64::MAX >> (64 - 8 * of.width_bytes)
}
