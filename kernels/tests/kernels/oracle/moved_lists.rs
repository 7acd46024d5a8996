//! References for kernels that gather lists.

use crossdock_kernels::{Checks, IntType, Integers, Lists, Source};

use super::Case;
use super::decode::words;
use crate::common::bit;

/// Random lists: their begins and sizes, and the number of elements.
struct SomeLists {
    begins: Vec<u64>,
    sizes: Vec<u64>,
    elements: u64,
}

/// Creates lists of up to `max` elements. About half of the lists are empty. Unless `anywhere` is
/// set, the lists are contiguous.
fn some_lists(case: &Case<'_>, max: usize, anywhere: bool) -> SomeLists {
    let sizes: Vec<u64> = (0..case.n).map(|_| case.below(max + 1) as u64 * case.below(2) as u64).collect();
    let end: u64 = sizes.iter().sum();
    let elements = end.min(if max < 9 { 100 } else { u64::MAX }).max(max as u64);
    let mut at = 0;
    let begins = sizes.iter().map(|size| {
        at += size;
        let within = (elements - size) as usize + 1;
        if anywhere { case.below(within) as u64 } else { at - size }
    });
    SomeLists { begins: begins.collect(), elements: if anywhere { elements } else { end }, sizes }
}

pub fn place(case: &Case<'_>) {
    for (width, signed) in [(1, false), (2, true), (4, true), (4, false), (8, false)] {
        for (has_ends, anywhere, malformed) in
            [(false, false, 0), (true, false, 0), (true, true, 0), (false, true, 3), (true, true, 2)]
        {
            // Begins of a narrow type can only address few elements.
            let narrow = width == 1 || (width == 2 && case.n > 1000);
            let SomeLists { mut begins, sizes, elements } = some_lists(case, 8, anywhere || narrow);
            let mut ends_or_sizes: Vec<u64> = begins
                .iter()
                .zip(&sizes)
                .map(|(begin, size)| if has_ends { begin + size } else { *size })
                .collect();
            for _ in 0..malformed.min(case.n) {
                let of = if case.below(2) == 0 { &mut begins } else { &mut ends_or_sizes };
                of[case.below(case.n)] = case.word() >> case.below(64);
            }
            let first = case.below(20);
            let bits = case.bytes((first + case.n).div_ceil(8));
            let buffers = [
                case.buffer(&words(&begins, width)),
                case.buffer(&words(&ends_or_sizes, width)),
                case.buffer(&bits),
            ];
            let has_validity = case.below(2) == 0;
            let of = IntType { width_bytes: width, signed };
            let numbers = |i: usize| Integers { buffer: &buffers[i], at: 0, len: case.n, of };
            let lists = Lists {
                begins: numbers(0),
                ends_or_sizes: numbers(1),
                has_ends,
                validity: has_validity.then_some((&buffers[2], first)),
                elements: elements as usize,
            };
            let mut to = case.target((case.n + 1) * 4);
            let mut scratch = case.s.memory().alloc(case.s, lists.scratch_bytes()).unwrap();
            let mut checks = Checks::new();
            let cells = checks.place_lists(lists, &mut to.buffer, to.at, &mut scratch).unwrap();
            let findings = checks.run(case.s).unwrap();

            let number = |value: u64| {
                let unused = 64 - 8 * width;
                if signed {
                    i128::from((value << unused).cast_signed() >> unused)
                } else {
                    (value << unused >> unused).into()
                }
            };
            let (mut offsets, mut wrong, mut moved) = (vec![0u64], None, None);
            for i in 0..case.n {
                let before = offsets[i];
                let (begin, end_or_size) = (number(begins[i]), number(ends_or_sizes[i]));
                let end = if has_ends { end_or_size } else { begin + end_or_size };
                let in_range = begin >= 0 && end_or_size >= 0 && begin <= end && end <= i128::from(elements);
                let is_valid = !has_validity || bit(&bits, first + i);
                let size = if in_range && is_valid { (end - begin) as u64 } else { 0 };
                wrong = wrong.or((is_valid && !in_range).then_some(i as u64));
                moved = moved.or((size > 0 && begin != i128::from(before)).then_some(i as u64));
                offsets.push(before + size);
            }
            let what =
                format!("n {} width {width} signed {signed} ends {has_ends} malformed {malformed}", case.n);
            assert_eq!(findings.first_wrong(cells.wrong), wrong, "{what}");
            assert_eq!(findings.first_wrong(cells.moved), moved, "{what}");
            assert_eq!(findings.number(cells.elements), offsets[case.n] as i64, "{what}");
            case.expect(to, &words(&offsets, 4), &what);
        }
    }
    too_many(case);
}

/// Expects a large total if the number of elements does not fit into 32-bit offsets, or if the sum
/// of the sizes overflows.
fn too_many(case: &Case<'_>) {
    let each = [1u64 << 31, 1 << 62][case.below(2)];
    let buffers = [case.buffer(&words(&vec![0; case.n], 8)), case.buffer(&words(&vec![each; case.n], 8))];
    let of = IntType { width_bytes: 8, signed: false };
    let numbers = |i: usize| Integers { buffer: &buffers[i], at: 0, len: case.n, of };
    let lists = Lists {
        begins: numbers(0),
        ends_or_sizes: numbers(1),
        has_ends: false,
        validity: None,
        elements: each as usize,
    };
    let mut to = case.target((case.n + 1) * 4);
    let mut scratch = case.s.memory().alloc(case.s, lists.scratch_bytes()).unwrap();
    let mut checks = Checks::new();
    let cells = checks.place_lists(lists, &mut to.buffer, to.at, &mut scratch).unwrap();
    let findings = checks.run(case.s).unwrap();
    assert_eq!(findings.first_wrong(cells.wrong), None);
    assert_eq!(findings.number(cells.elements) > i64::from(i32::MAX), case.n > 0, "n {}", case.n);
}

pub fn name(case: &Case<'_>) {
    for (offset_width, width, max) in [(4, 4, 3), (4, 8, 1), (8, 4, 40), (8, 8, 5000)] {
        let max = if case.n > 10_000 { max.min(40) } else { max };
        let SomeLists { begins, sizes, .. } = some_lists(case, max, true);
        let mut offsets = vec![0];
        sizes.iter().for_each(|size| offsets.push(offsets[offsets.len() - 1] + size));
        let n = offsets[case.n] as usize;
        let first = case.below(20);
        let bits = case.bytes((first + case.n).div_ceil(8));
        let buffers = [
            case.buffer(&words(&begins, 8)),
            case.buffer(&words(&offsets, offset_width)),
            case.buffer(&bits),
        ];
        let has_validity = case.below(2) == 0;
        let of = IntType { width_bytes: 8, signed: true };
        let numbers = Integers { buffer: &buffers[0], at: 0, len: case.n, of };
        let mut to = case.target(n * width);
        let mut checks = Checks::new();
        let validity = has_validity.then_some((&buffers[2], first));
        let offsets_at = (&buffers[1], offset_width);
        checks.name_elements(numbers, offsets_at, validity, &mut to.buffer, to.at, (n, width)).unwrap();
        checks.run(case.s).unwrap();
        let rows = (0..case.n).flat_map(|i| {
            let is_valid = !has_validity || bit(&bits, first + i);
            (begins[i]..begins[i] + sizes[i]).map(move |row| if is_valid { row } else { u64::MAX })
        });
        let rows: Vec<u64> = rows.collect();
        case.expect(to, &words(&rows, width), &format!("elements by {offset_width} bytes as {width}"));
    }
}

pub fn gather_bytes(case: &Case<'_>) {
    for (offset_width, max) in [(4, 3), (8, 40), (4, 5000)] {
        let max = if case.n > 10_000 { max.min(40) } else { max };
        let SomeLists { begins, sizes, .. } = some_lists(case, max, true);
        let mut offsets = vec![0];
        sizes.iter().for_each(|size| offsets.push(offsets[offsets.len() - 1] + size));
        let n = offsets[case.n] as usize;
        let end = begins.iter().zip(&sizes).map(|(begin, size)| begin + size).max().unwrap_or(0);
        // The last list may end after the data.
        let data = case.bytes((end as usize).saturating_sub(case.below(2)));
        let first = case.below(20);
        let bits = case.bytes((first + case.n).div_ceil(8));
        let buffers = [
            case.buffer(&words(&begins, 8)),
            case.buffer(&words(&offsets, offset_width)),
            case.buffer(&bits),
            case.buffer(&data),
        ];
        let has_validity = case.below(2) == 0;
        let of = IntType { width_bytes: 8, signed: true };
        let numbers = Integers { buffer: &buffers[0], at: 0, len: case.n, of };
        let source = Source { buffer: Some(&buffers[3]), at: 0, len: data.len() };
        let mut to = case.target(n);
        let mut checks = Checks::new();
        let validity = has_validity.then_some((&buffers[2], first));
        let offsets_at = (&buffers[1], offset_width);
        checks.gather_bytes(numbers, offsets_at, validity, source, &mut to.buffer, to.at, n).unwrap();
        checks.run(case.s).unwrap();
        let bytes = (0..case.n).flat_map(|i| {
            let is_valid = !has_validity || bit(&bits, first + i);
            let byte = |at: u64| if is_valid { data.get(at as usize).copied().unwrap_or(0) } else { 0 };
            (begins[i]..begins[i] + sizes[i]).map(byte).collect::<Vec<u8>>()
        });
        let bytes: Vec<u8> = bytes.collect();
        case.expect(to, &bytes, &format!("bytes of lists with offsets of {offset_width} bytes"));
    }
}
