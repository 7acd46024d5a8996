//! References for kernels on offsets, list-views, run ends, unions and dictionary keys.

use crossdock_kernels::{Checks, IntType, Jobs, Offsets};

use super::Case;
use crate::common::bit;

/// Encodes numbers as words of `width` bytes.
fn words(numbers: &[i64], width: usize) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()[..width].to_vec()).collect()
}

fn narrow(n: i64, width: usize) -> i64 {
    let unused = 64 - 8 * width;
    n << unused >> unused
}

/// Returns `n` ascending numbers from 0 on, with differences of at least `step`. In two of three
/// cases, some of the numbers are replaced by random numbers.
fn rising(case: &Case<'_>, n: usize, step: i64, width: usize, disorder: usize) -> Vec<i64> {
    let mut at = 0;
    let mut numbers: Vec<i64> = (0..n)
        .map(|_| {
            at += step + case.below(3) as i64;
            at
        })
        .collect();
    for _ in 0..disorder.min(n) {
        let i = case.below(n);
        numbers[i] = match case.below(3) {
            0 => numbers[i].wrapping_sub(case.below(8) as i64),
            1 => narrow(case.word() as i64, width),
            _ => -1 - case.below(4) as i64,
        };
    }
    numbers.iter().map(|n| narrow(*n, width)).collect()
}

const DISORDER: [usize; 4] = [0, 1, 2, 200];

pub fn offsets(case: &Case<'_>) {
    for (width, disorder) in [4, 8].into_iter().flat_map(|width| DISORDER.map(|d| (width, d))) {
        let skipped = case.below(3);
        let all = rising(case, skipped + case.n + 1, 0, width, disorder);
        let limit = *all.last().unwrap() as u64 - u64::from(case.below(4) == 0);
        let buffer = case.buffer(&words(&all, width));
        let offsets = Offsets { buffer: &buffer, width_bytes: width, first: skipped, len: case.n };
        let mut checks = Checks::new();
        let cell = checks.offsets(offsets, limit).unwrap();
        let findings = checks.run(case.s).unwrap();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let used = &all[skipped..];
        let wrong = |i: &usize| used[*i] < if *i == 0 { 0 } else { used[*i - 1] } || used[*i] > limit;
        let expected = (0..used.len()).find(wrong).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), expected, "n {} width {width}", case.n);
    }
}

pub fn rebase(case: &Case<'_>) {
    for width in [4, 8] {
        let numbers: Vec<i64> = (0..case.n).map(|_| narrow(case.word() as i64, width)).collect();
        let base = narrow(case.word() as i64, width);
        let mut to = case.target(case.n * width);
        case.s.copy(&mut to.buffer, to.at, &case.buffer(&words(&numbers, width)), 0, to.bytes).unwrap();
        let mut jobs = Jobs::new();
        jobs.rebase_offsets(&mut to.buffer, to.at, case.n, width, base).unwrap();
        jobs.launch(case.s).unwrap();
        let expected: Vec<i64> = numbers.iter().map(|n| n.wrapping_sub(base)).collect();
        case.expect(to, &words(&expected, width), "rebased");
    }
}

pub fn convert(case: &Case<'_>) {
    for (width, to_width, disorder) in [(4, 4, 1), (4, 8, 2), (8, 4, 0), (8, 4, 1), (8, 4, 200), (8, 8, 2)] {
        let numbers = rising(case, case.n + 1, 0, width, disorder);
        let base = if case.below(2) == 0 { numbers[0] } else { case.word() as i64 >> 20 };
        let buffer = case.buffer(&words(&numbers, width));
        let offsets = Offsets { buffer: &buffer, width_bytes: width, first: 0, len: case.n };
        let mut to = case.target((case.n + 1) * to_width);
        let mut checks = Checks::new();
        let cell = checks.convert_offsets(offsets, base, &mut to.buffer, to.at, to_width).unwrap();
        let findings = checks.run(case.s).unwrap();
        let expected: Vec<i64> = numbers.iter().map(|n| n.wrapping_sub(base)).collect();
        let lost = expected.iter().position(|n| narrow(*n, to_width) != *n).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), lost, "n {} {width} to {to_width}", case.n);
        case.expect(to, &words(&expected, to_width), "converted");
    }
}

pub fn list_views(case: &Case<'_>) {
    for (width, disorder) in [4, 8].into_iter().flat_map(|width| DISORDER.map(|d| (width, d))) {
        let offsets = rising(case, case.n, 0, width, disorder);
        let sizes: Vec<i64> = rising(case, case.n, 0, width, disorder).iter().map(|n| n % 9).collect();
        let limit = offsets.iter().max().map_or(0, |max| max.saturating_add(8)) as u64;
        let limit = if case.below(3) == 0 { limit / 2 } else { limit };
        let (a, b) = (case.buffer(&words(&offsets, width)), case.buffer(&words(&sizes, width)));
        let mut checks = Checks::new();
        let cell = checks.list_views(&a, &b, width, 0, case.n, limit).unwrap();
        let findings = checks.run(case.s).unwrap();
        let outside = |(offset, size): (&i64, &i64)| {
            *offset < 0 || *size < 0 || i128::from(*offset) + i128::from(*size) > i128::from(limit)
        };
        let expected = offsets.iter().zip(&sizes).position(outside).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), expected, "n {} width {width}", case.n);
    }
}

pub fn run_ends(case: &Case<'_>) {
    for (width, disorder) in [2, 4, 8].into_iter().flat_map(|width| DISORDER.map(|d| (width, d))) {
        let ends = rising(case, case.n, 1, width, disorder);
        let last = ends.last().map_or(0, |last| (*last).max(0)) as u64;
        for covered in [last, last + 1] {
            let buffer = case.buffer(&words(&ends, width));
            let mut checks = Checks::new();
            let cell = checks.run_ends(&buffer, width, 0, case.n, covered).unwrap();
            let findings = checks.run(case.s).unwrap();
            let wrong = |i: &usize| ends[*i] <= if *i == 0 { 0 } else { ends[*i - 1] };
            let short = ends.last().copied().unwrap_or(0) < covered as i64;
            let expected = (0..case.n).find(wrong).or(short.then_some(case.n)).map(|i| i as u64);
            assert_eq!(findings.first_wrong(cell), expected, "n {} width {width} covered {covered}", case.n);
        }
    }
}

pub fn union(case: &Case<'_>) {
    let children = [(0i8, 5usize), (3, 1), (127, 1000), (60, 0)];
    for (dense, noise) in [(false, 0), (false, 1), (true, 0), (true, 1), (true, 50)] {
        let mut ids: Vec<u8> = (0..case.n).map(|_| [0, 3, 127][case.below(3)]).collect();
        let len = |id: u8| children.iter().find(|(known, _)| *known as u8 == id).map(|(_, len)| *len as i64);
        let mut offsets: Vec<i64> =
            ids.iter().map(|id| case.below(len(*id).unwrap() as usize) as i64).collect();
        for _ in 0..noise.min(case.n) {
            let i = case.below(case.n);
            if case.below(2) == 0 {
                ids[i] = case.word() as u8;
            } else {
                offsets[i] = narrow(case.word() as i64 >> case.below(60), 4);
            }
        }
        let (id_buffer, offset_buffer) = (case.buffer(&ids), case.buffer(&words(&offsets, 4)));
        let mut checks = Checks::new();
        let dense_offsets = dense.then_some(&offset_buffer);
        let cell = checks.union(&id_buffer, dense_offsets, 0, case.n, &children).unwrap();
        let findings = checks.run(case.s).unwrap();
        let wrong = |i: &usize| match len(ids[*i]) {
            None => true,
            Some(len) => dense && (offsets[*i] < 0 || offsets[*i] >= len),
        };
        let expected = (0..case.n).find(wrong).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cell), expected, "n {} dense {dense}", case.n);
    }
}

pub fn indices(case: &Case<'_>) {
    for width_bytes in [1usize, 2, 4, 8] {
        for (signed, noise) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
            let limit = 1 + case.below(100) as i64;
            let mut keys: Vec<i64> = (0..case.n).map(|_| case.below(limit as usize) as i64).collect();
            for _ in 0..noise.min(case.n) {
                let i = case.below(case.n);
                keys[i] = case.word() as i64 >> case.below(60);
            }
            let first = case.below(20);
            let bits = case.bytes((first + case.n).div_ceil(8));
            let (buffer, validity) = (case.buffer(&words(&keys, width_bytes)), case.buffer(&bits));
            let optional_validity = (case.below(2) == 0).then_some((&validity, first));
            let mut checks = Checks::new();
            let of = IntType { width_bytes, signed };
            let cell = checks.indices(&buffer, of, 0, case.n, optional_validity, limit as u64).unwrap();
            let findings = checks.run(case.s).unwrap();
            let wrong = |i: &usize| {
                let mut key = i128::from(narrow(keys[*i], width_bytes));
                if !signed && key < 0 {
                    key += 1 << (8 * width_bytes);
                }
                (key < 0 || key >= limit.into()) && (optional_validity.is_none() || bit(&bits, first + i))
            };
            let expected = (0..case.n).find(wrong).map(|i| i as u64);
            assert_eq!(findings.first_wrong(cell), expected, "n {} {of:?}", case.n);
        }
    }
}
