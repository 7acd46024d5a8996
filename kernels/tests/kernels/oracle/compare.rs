//! References for the comparison of values, and for the positions of set bits.

use std::cmp::Ordering;

use crossdock_kernels::{Accept, ByteValues, Checks, ComparedType, Jobs, Offsets, SelectedRows, Source};

use super::Case;
use super::bits::{bitmap, packed};
use super::numbers::{Value, interesting, value};
use super::values;
use crate::common::bit;

/// A random set of accepted results.
fn accept(case: &Case<'_>) -> Accept {
    Accept::from_bits(case.word())
}

pub fn numbers(case: &Case<'_>) {
    for of in ComparedType::all() {
        let width = of.width_bytes();
        let mut bytes = case.bytes(case.n * width);
        let number = |case: &Case<'_>| match of {
            ComparedType::Number(number) => interesting(case, number)[..width].to_vec(),
            // Words of few values, so that often only one word differs.
            _ => (0..width / 8).flat_map(|_| (case.word() % 3).wrapping_sub(1).to_le_bytes()).collect(),
        };
        for word in bytes.chunks_exact_mut(width) {
            if case.below(2) == 0 {
                word.copy_from_slice(&number(case));
            }
        }
        let (literal, accept) = (number(case), accept(case));
        let words = literal_words(&literal, of);
        let buffer = case.buffer(&bytes);
        let mut to = case.target(case.n.div_ceil(8));
        let mut jobs = Jobs::new();
        let from = Source { buffer: Some(&buffer), at: 0, len: case.n };
        jobs.compare_numbers(from, of, words, accept, &mut to.buffer, to.at).unwrap();
        jobs.launch(case.s).unwrap();
        let expected = bytes.chunks_exact(width).map(|word| accept.accepts(order(word, &literal, of)));
        case.expect(to, &packed(expected), &format!("{of:?}"));
    }
}

/// The literal as the arguments of the kernel.
fn literal_words(literal: &[u8], of: ComparedType) -> [u64; 4] {
    let mut words = [0; 4];
    match of {
        ComparedType::Number(number) => {
            words[0] = match value(literal, number) {
                Value::Int(n) => n as u64,
                Value::Float(x) => x.to_bits(),
            }
        }
        _ => {
            for (to, word) in words.iter_mut().zip(literal.chunks_exact(8)) {
                *to = u64::from_le_bytes(word.try_into().unwrap());
            }
        }
    }
    words
}

fn order(a: &[u8], b: &[u8], of: ComparedType) -> Option<Ordering> {
    let ComparedType::Number(number) = of else {
        // With the sign bit inverted, the bytes of signed integers are in order from the last to
        // the first.
        let key = |bytes: &[u8]| -> Vec<u8> {
            let mut key: Vec<u8> = bytes.iter().rev().copied().collect();
            key[0] ^= 0x80;
            key
        };
        return Some(key(a).cmp(&key(b)));
    };
    match (value(a, number), value(b, number)) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
        _ => unreachable!(),
    }
}

/// A short string of few letters, so that many strings are equal or have a common prefix.
fn word(case: &Case<'_>) -> Vec<u8> {
    (0..case.below(20)).map(|i| if i < 14 { b'a' } else { [b'a', b'b', 0xff][case.below(3)] }).collect()
}

pub fn bytes(case: &Case<'_>) {
    for (width_bytes, has_error) in [(4, false), (8, false), (4, true), (0, false)] {
        let words: Vec<Vec<u8>> = (0..case.n).map(|_| word(case)).collect();
        let (literal, accept) = (word(case), accept(case));
        let literal_buffer = case.buffer(&literal);
        let literal_source = Source { buffer: Some(&literal_buffer), at: 0, len: literal.len() };
        let mut to = case.target(case.n.div_ceil(8));
        let mut checks = Checks::new();
        if width_bytes == 0 {
            let size = case.below(18);
            let data: Vec<u8> = (0..case.n * size).map(|_| [b'a', b'b'][case.below(2)]).collect();
            let buffer = case.buffer(&data);
            let data_source = Source { buffer: Some(&buffer), at: 0, len: data.len() };
            let values = ByteValues::FixedSize { size, len: case.n, data: data_source };
            let cell =
                checks.compare_bytes(values, None, literal_source, accept, &mut to.buffer, to.at).unwrap();
            assert_eq!(checks.run(case.s).unwrap().first_wrong(cell), None);
            let of = |i: usize| accept.accepts(Some(data[i * size..(i + 1) * size].cmp(&literal[..])));
            case.expect(to, &packed((0..case.n).map(of)), "values of a fixed size");
            continue;
        }
        let data = words.concat();
        let mut offsets: Vec<i64> = vec![0];
        offsets.extend(words.iter().scan(0, |sum, word| {
            *sum += word.len() as i64;
            Some(*sum)
        }));
        for _ in 0..if has_error { 3 } else { 0 } {
            let i = case.below(offsets.len());
            offsets[i] = [-1, data.len() as i64 + 1, i64::from(i32::MAX)][case.below(3)];
        }
        let (bits, first) = bitmap(case, case.n);
        let validity = case.buffer(&bits);
        let bytes: Vec<u8> = offsets.iter().flat_map(|at| at.to_le_bytes()[..width_bytes].to_vec()).collect();
        let (buffer, of_data) = (case.buffer(&bytes), case.buffer(&data));
        let at = Offsets { buffer: &buffer, width_bytes, first: 0, len: case.n };
        let data_source = Source { buffer: Some(&of_data), at: 0, len: data.len() };
        let values = ByteValues::Offsets(at, data_source);
        let valid = Some((&validity, first));
        let cell =
            checks.compare_bytes(values, valid, literal_source, accept, &mut to.buffer, to.at).unwrap();
        let findings = checks.run(case.s).unwrap();
        let value = |i: usize| {
            let [begin, end] = [offsets[i], offsets[i + 1]].map(usize::try_from);
            data.get(begin.ok()?..end.ok()?)
        };
        let expected = |i: usize| value(i).is_some_and(|value| accept.accepts(Some(value.cmp(&literal))));
        case.expect(to, &packed((0..case.n).map(expected)), "values between offsets");
        let wrong = |i: &usize| bit(&bits, first + i) && value(*i).is_none();
        let wrong = (0..case.n).find(wrong).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), wrong, "n {} width {width_bytes}", case.n);
    }
}

/// Compares views that refer to more buffers than fit into one launch.
pub fn views(case: &Case<'_>) {
    for (n_data, noise) in [(0, 0), (3, 0), (400, 0), (400, 9)] {
        let case = &Case { n: case.n.min(3000), ..case.again() };
        let data: Vec<Vec<u8>> = (0..n_data).map(|_| values::text(case, 300, 5).into_bytes()).collect();
        let mut views: Vec<[u8; 16]> = (0..case.n).map(|_| values::view(case, &data)).collect();
        let accept = accept(case);
        let of = |view: &[u8; 16]| values::view_bytes(view, &data).map(<[u8]>::to_vec);
        let literal = views.first().and_then(of).unwrap_or_default();
        for _ in 0..noise.min(case.n) {
            let i = case.below(case.n);
            views[i][3 + 8 * case.below(2)] = 0x90;
        }
        let (buffer, literal_buffer) = (case.buffer(views.as_flattened()), case.buffer(&literal));
        let buffers: Vec<_> =
            data.iter().enumerate().map(|(i, bytes)| (i % 7 != 6).then(|| case.buffer(bytes))).collect();
        let slots: Vec<_> = buffers.iter().map(Option::as_ref).collect();
        let (bits, first) = bitmap(case, case.n);
        let validity = case.buffer(&bits);
        let mut to = case.target(case.n.div_ceil(8));
        case.s.fill(&mut to.buffer, to.at, to.bytes, 0).unwrap();
        let source = Source { buffer: Some(&literal_buffer), at: 0, len: literal.len() };
        let mut checks = Checks::new();
        let cell = checks
            .compare_views(
                &buffer,
                0,
                case.n,
                Some((&validity, first)),
                &slots,
                source,
                accept,
                &mut to.buffer,
                to.at,
            )
            .unwrap();
        let findings = checks.run(case.s).unwrap();
        let expected = |view| {
            values::view_bytes(view, &data).is_some_and(|value| accept.accepts(Some(value.cmp(&literal))))
        };
        case.expect(to, &packed(views.iter().map(expected)), "views");
        let wrong = |i: &usize| bit(&bits, first + i) && values::view_bytes(&views[*i], &data).is_none();
        let wrong = (0..case.n).find(wrong).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), wrong, "n {} of {n_data} buffers", case.n);
    }
}

/// Counts and places the set bits of sparse, dense, full and random bitmaps.
pub fn select(case: &Case<'_>) {
    for kind in 0..4 {
        for width in [4, 8] {
            let byte = |byte: &u8| match kind {
                0 => *byte,
                1 => 0xff,
                2 => byte & byte >> 1 & byte >> 2 & byte << 3,
                _ => byte | byte >> 1,
            };
            let bits: Vec<u8> = case.bytes(case.n.div_ceil(8)).iter().map(byte).collect();
            let buffer = case.buffer(&bits);
            let rows = SelectedRows { bits: &buffer, len: case.n };
            let expected: Vec<usize> = (0..case.n).filter(|i| bit(&bits, *i)).collect();
            let selected = rows.count(case.s).unwrap();
            assert_eq!(selected.n, expected.len(), "n {} kind {kind}", case.n);
            let mut to = case.target(expected.len() * width);
            let mut jobs = Jobs::new();
            jobs.place_bits(rows, &selected, &mut to.buffer, to.at, width).unwrap();
            jobs.launch(case.s).unwrap();
            let bytes: Vec<u8> = expected.iter().flat_map(|i| i.to_le_bytes()[..width].to_vec()).collect();
            case.expect(to, &bytes, "positions of set bits");
        }
    }
}
