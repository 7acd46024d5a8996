//! The reference of the hybrid of run lengths and bit-packed integers.

use crossdock_kernels::{Checks, HYBRID_PIECE_ROWS, Hybrid, HybridRun};

use super::Case;
use super::decode::low;

/// Appends `bits` bits of a value to a list of bits.
fn push_bits(to: &mut Vec<bool>, value: u64, bits: u32) {
    to.extend((0..bits).map(|bit| value >> bit & 1 == 1));
}

fn bytes_of(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << i);
    bits.chunks(8).map(byte).collect()
}

pub fn decode(case: &Case<'_>) {
    for (width, has_dictionary) in [1, 2, 4, 8].into_iter().flat_map(|w| [(w, false), (w, true)]) {
        let has_nulls = case.below(3) > 0;
        let is_valid: Vec<bool> = (0..case.n).map(|_| !has_nulls || case.below(4) > 0).collect();
        let n_values = is_valid.iter().filter(|valid| **valid).count();
        let limit = 1 + case.below(if width == 1 { 200 } else { 5000 });
        let dictionary = case.bytes(if has_dictionary { limit * width } else { 0 });
        let has_wrong = case.below(3) == 0;
        // The bytes of each value; `None` for a wrong code.
        let mut values: Vec<Option<Vec<u8>>> = Vec::new();
        let (mut bits, mut runs, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mean = 1 + case.below(700);
        while values.len() < n_values {
            let (first, len) = (values.len(), (1 + case.below(mean)).min(n_values - values.len()));
            let is_plain = case.below(4) == 0;
            let code_bits = (64 - (limit as u64).leading_zeros()).min(32);
            let most = if is_plain { 64 } else { 1 + case.below(32) as u32 };
            let n_bits = if case.below(3) == 0 { 0 } else { most.max(code_bits * u32::from(!is_plain)) };
            let value = |case: &Case<'_>| match is_plain {
                true => low(case.word(), if n_bits == 0 { 50 } else { n_bits as usize }),
                false if has_wrong && case.below(500) == 0 => limit as u64,
                false => case.below(limit) as u64,
            };
            let constant = value(case);
            // Bits before a run may belong to another page.
            let skipped = case.below(20);
            bits.extend((0..skipped).map(|bit| bit % 3 == 0));
            let at = if n_bits == 0 { constant } else { bits.len() as u64 };
            for _ in 0..len {
                let value = if n_bits == 0 { constant } else { value(case) };
                push_bits(&mut bits, value, n_bits);
                values.push(match is_plain {
                    true => Some(value.to_le_bytes()[..width].to_vec()),
                    false if value >= limit as u64 => None,
                    false if has_dictionary => Some(dictionary[value as usize * width..][..width].to_vec()),
                    false => Some(value.to_le_bytes()[..width].to_vec()),
                });
            }
            let run = HybridRun { first: first as u64, is_plain, bits: n_bits, at };
            runs.extend(run.word().unwrap().to_ne_bytes());
            ends.extend((values.len() as u32).to_ne_bytes());
        }
        let mut ranks = Vec::new();
        for piece in is_valid.chunks(HYBRID_PIECE_ROWS).scan(0u32, |before, rows| {
            let rank = *before;
            *before += rows.iter().filter(|valid| **valid).count() as u32;
            Some(rank)
        }) {
            ranks.extend(piece.to_ne_bytes());
        }
        let mut all = Vec::new();
        let mut part = |bytes: &[u8]| {
            let begin = all.len();
            all.extend(bytes);
            begin..all.len()
        };
        let ranges = [&bytes_of(&bits), &runs, &ends, &ranks, &dictionary].map(|bytes| part(bytes));
        let [bytes, runs, ends, ranks, dictionary] = ranges;
        let (buffer, validity) = (case.buffer(&all), case.buffer(&bytes_of(&is_valid)));
        let from = Hybrid {
            buffer: &buffer,
            bytes,
            runs,
            ends: ends.clone(),
            validity: has_nulls.then_some(&validity),
            ranks: if has_nulls { ranks } else { 0..0 },
            dictionary,
            limit: limit as u64,
        };
        let mut expected = Vec::new();
        let (mut next, mut first_wrong) = (values.iter(), None);
        for (row, valid) in is_valid.iter().enumerate() {
            let value = if *valid { next.next().unwrap().clone() } else { Some(vec![0; width]) };
            if value.is_none() {
                first_wrong = first_wrong.or(Some(row as u64));
            }
            expected.extend(value.unwrap_or_else(|| vec![0; width]));
        }
        let run = |from: Hybrid<'_>| {
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let cell = checks.decode_hybrid(from, &mut to.buffer, to.at, case.n, width).unwrap();
            (to, checks.run(case.s).unwrap().first_wrong(cell))
        };
        let (to, wrong) = run(from.clone());
        assert_eq!(wrong, first_wrong, "n {} width {width}", case.n);
        case.expect(to, &expected, &format!("decoded to {width} bytes"));
        // If the last run is missing, its first row is wrong.
        let n_runs = ends.len() / 4;
        if n_runs > 1 && first_wrong.is_none() {
            let covered = u32::from_ne_bytes(all[ends.end - 8..][..4].try_into().unwrap()) as usize;
            let (_, wrong) = run(Hybrid { ends: ends.start..ends.end - 4, ..from.clone() });
            let first = is_valid.iter().enumerate().filter(|(_, valid)| **valid).nth(covered);
            assert_eq!(wrong, first.map(|(row, _)| row as u64));
        }
        // The kernel stays within its ranges, whatever they contain.
        let wild = case.bytes(all.len());
        let wild = case.buffer(&wild);
        let (to, _) = run(Hybrid { buffer: &wild, ..from });
        let decoded = to.buffer.freeze(case.s).unwrap().host_view(case.s).unwrap().to_vec();
        assert!(decoded[..to.at].iter().chain(&decoded[to.at + to.bytes..]).all(|byte| *byte == 0x77));
    }
}
