//! References for kernels on bitmaps and byte ranges.

use crossdock_kernels::{BitRange, Checks, Jobs, pack_bytes, unpack_bits};

use super::Case;
use crate::common::bit;

/// A random bitmap of `n` bits, and its first bit.
pub(super) fn bitmap(case: &Case<'_>, n: usize) -> (Vec<u8>, usize) {
    let first = case.below(70);
    let mut bytes = case.bytes((first + n).div_ceil(8) + case.below(3));
    if case.below(4) == 0 {
        bytes.fill(0xff);
    }
    (bytes, first)
}

/// Packs bits into a bitmap.
pub(super) fn packed(bits: impl ExactSizeIterator<Item = bool>) -> Vec<u8> {
    let mut bytes = vec![0; bits.len().div_ceil(8)];
    bits.enumerate().for_each(|(i, bit)| bytes[i / 8] |= u8::from(bit) << (i % 8));
    bytes
}

pub fn unpack(case: &Case<'_>) {
    for invert in [false, true] {
        let (bits, first) = bitmap(case, case.n);
        let mut to = case.target(case.n);
        unpack_bits(case.s, &case.buffer(&bits), first, case.n, invert, &mut to.buffer, to.at).unwrap();
        let expected: Vec<u8> = (0..case.n).map(|i| u8::from(bit(&bits, first + i) != invert)).collect();
        case.expect(to, &expected, "unpacked");
    }
}

pub fn pack(case: &Case<'_>) {
    for invert in [false, true] {
        let first = case.below(40);
        let bytes: Vec<u8> =
            case.bytes(first + case.n).iter().map(|b| if b % 3 == 0 { 0 } else { *b }).collect();
        let mut to = case.target(case.n.div_ceil(8));
        pack_bytes(case.s, &case.buffer(&bytes), first, case.n, invert, &mut to.buffer, to.at).unwrap();
        let expected = packed(bytes[first..].iter().map(|byte| (*byte != 0) != invert));
        case.expect(to, &expected, "packed");
    }
}

pub fn shift(case: &Case<'_>) {
    let maps: Vec<_> = (0..3).map(|_| bitmap(case, case.n)).collect();
    let buffers: Vec<_> = maps.iter().map(|(bits, _)| case.buffer(bits)).collect();
    let mut targets: Vec<_> = maps.iter().map(|_| case.target(case.n.div_ceil(8))).collect();
    let mut jobs = Jobs::new();
    for (((_, first), buffer), to) in maps.iter().zip(&buffers).zip(&mut targets) {
        jobs.shift_bits(buffer, *first, case.n, &mut to.buffer, to.at).unwrap();
    }
    jobs.launch(case.s).unwrap();
    for ((bits, first), to) in maps.iter().zip(targets) {
        case.expect(to, &packed((0..case.n).map(|i| bit(bits, first + i))), "shifted");
    }
}

pub fn merge(case: &Case<'_>) {
    let ((a, first_a), (b, first_b)) = (bitmap(case, case.n), bitmap(case, case.n));
    let (buffer_a, buffer_b) = (case.buffer(&a), case.buffer(&b));
    let mut to = case.target(case.n.div_ceil(8));
    let mut jobs = Jobs::new();
    jobs.merge_bits((&buffer_a, first_a), (&buffer_b, first_b), case.n, &mut to.buffer, to.at).unwrap();
    jobs.launch(case.s).unwrap();
    let expected = packed((0..case.n).map(|i| bit(&a, first_a + i) && bit(&b, first_b + i)));
    case.expect(to, &expected, "merged");
}

pub fn null_count(case: &Case<'_>) {
    let maps: Vec<_> = (0..5).map(|_| bitmap(case, case.n)).collect();
    let buffers: Vec<_> = maps.iter().map(|(bits, _)| case.buffer(bits)).collect();
    let mut checks = Checks::new();
    let mut cells = Vec::new();
    for ((_, first), buffer) in maps.iter().zip(&buffers) {
        cells.push(checks.null_count(buffer, *first, case.n).unwrap());
    }
    let findings = checks.run(case.s).unwrap();
    for ((bits, first), cell) in maps.iter().zip(cells) {
        let expected = (0..case.n).filter(|i| !bit(bits, first + i)).count() as u64;
        assert_eq!(findings.count(cell), expected, "{} from {first}", case.n);
    }
}

/// Concatenates parts of many lengths. Some parts have no bitmap. There are more parts than fit
/// into one launch.
pub fn concatenate(case: &Case<'_>) {
    for n_parts in [1, 2, 7, 130] {
        let lens: Vec<usize> = (0..n_parts).map(|_| case.below(2 * case.n / n_parts + 2)).collect();
        let maps: Vec<_> = lens.iter().map(|len| (case.below(4) > 0).then(|| bitmap(case, *len))).collect();
        let buffers: Vec<_> =
            maps.iter().map(|map| map.as_ref().map(|(bits, _)| case.buffer(bits))).collect();
        let parts: Vec<BitRange<'_>> = (0..n_parts)
            .map(|i| {
                let bits =
                    buffers[i].as_ref().zip(maps[i].as_ref()).map(|(buffer, (_, first))| (buffer, *first));
                BitRange { bits, len: lens[i] }
            })
            .collect();
        let all = lens.iter().sum::<usize>();
        let mut to = case.target(all.div_ceil(8));
        let mut jobs = Jobs::new();
        jobs.concatenate_bits(&parts, &mut to.buffer, to.at).unwrap();
        jobs.launch(case.s).unwrap();
        let part = |(map, len): (&Option<(Vec<u8>, usize)>, &usize)| -> Vec<bool> {
            (0..*len).map(|i| map.as_ref().is_none_or(|(bits, first)| bit(bits, first + i))).collect()
        };
        let bits: Vec<bool> = maps.iter().zip(&lens).flat_map(part).collect();
        case.expect(to, &packed(bits.into_iter()), "concatenated");
    }
}

pub fn copy_ranges(case: &Case<'_>) {
    let bytes = case.bytes(case.n + 50);
    let buffer = case.buffer(&bytes);
    // Consecutive pieces of the target, from random positions in the source.
    let mut to = case.target(case.n);
    let (mut jobs, mut expected) = (Jobs::new(), Vec::new());
    while expected.len() < case.n {
        let len = (1 + case.below(1 + case.n / 3)).min(case.n - expected.len());
        let first = case.below(bytes.len() - len + 1);
        jobs.copy_range(&buffer, first, len, &mut to.buffer, to.at + expected.len()).unwrap();
        expected.extend(&bytes[first..first + len]);
    }
    jobs.launch(case.s).unwrap();
    case.expect(to, &expected, "copied");
}
