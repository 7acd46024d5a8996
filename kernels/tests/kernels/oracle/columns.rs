//! References for kernels that fill nulls, convert units, and find distinct values.

use std::collections::HashMap;

use crossdock_kernels::{ByteValues, Checks, Jobs, NumberType, Offsets, Rescale, Source, slots_for};
use crossdock_memory::Buffer;

use super::Case;
use crate::common::bit;

pub fn fill_nulls(case: &Case<'_>) {
    for width in [1, 2, 4, 8, 16, 32] {
        let (bytes, first) = (case.bytes(case.n * width), case.below(9));
        let validity = case.bytes((first + case.n).div_ceil(8));
        let null: [u64; 4] = std::array::from_fn(|_| case.word());
        let (from, bits) = (case.buffer(&bytes), case.buffer(&validity));
        let mut target = case.target(case.n * width);
        let mut jobs = Jobs::new();
        let source = Source { buffer: Some(&from), at: 0, len: case.n };
        jobs.fill_nulls(source, width, (&bits, first), null, &mut target.buffer, target.at).unwrap();
        jobs.launch(case.s).unwrap();
        let words = null.map(u64::to_le_bytes);
        let expected: Vec<u8> = (0..case.n)
            .flat_map(|i| match bit(&validity, first + i) {
                true => &bytes[i * width..(i + 1) * width],
                false => &words.as_flattened()[..width],
            })
            .copied()
            .collect();
        case.expect(target, &expected, &format!("width {width}"));
    }
}

/// Compares equal lists, lists with one other number, and special floats.
pub fn check_equal(case: &Case<'_>) {
    for of in NumberType::ALL {
        let width = of.width_bytes();
        // Small integers are neither NaN nor -0 as floats.
        let bytes: Vec<u8> =
            (0..case.n).flat_map(|i| (i as u64 % 100).to_le_bytes()[..width].to_vec()).collect();
        let mut other = bytes.clone();
        let wrong = (case.n > 0 && case.below(3) > 0).then(|| case.below(case.n));
        if let Some(i) = wrong {
            other[i * width] ^= 1 << 6;
        }
        let (a, b) = (case.buffer(&bytes), case.buffer(&other));
        let source = |buffer| Source { buffer: Some(buffer), at: 0, len: case.n };
        let mut checks = Checks::new();
        let cell = checks.equal_numbers(source(&a), source(&b), *of).unwrap();
        let first = checks.run(case.s).unwrap().first_wrong(cell);
        assert_eq!(first, wrong.map(|i| i as u64), "{}: {}", of.name(), case.n);
    }
    let floats = |of: NumberType, sign: u8, high: u8| {
        let mut bytes = vec![0; of.width_bytes()];
        if let Some(last) = bytes.last_mut() {
            *last = sign | high;
        }
        case.buffer(&bytes)
    };
    for of in [NumberType::Float16, NumberType::Float32, NumberType::Float64] {
        for (a, b, expected) in [
            (floats(of, 0, 0), floats(of, 0x80, 0), None),
            (floats(of, 0, 0x7f), floats(of, 0, 0x7f), (of == NumberType::Float16).then_some(0)),
        ] {
            let source = |buffer| Source { buffer: Some(buffer), at: 0, len: 1 };
            let mut checks = Checks::new();
            let cell = checks.equal_numbers(source(&a), source(&b), of).unwrap();
            assert_eq!(checks.run(case.s).unwrap().first_wrong(cell), expected, "{}", of.name());
        }
    }
}

/// Converts numbers near the limits and others, with the exact arithmetic of `i128`.
pub fn rescale(case: &Case<'_>) {
    let n = case.n.min(1100);
    for (width, to_width) in [(4, 4), (4, 8), (8, 4), (8, 8)] {
        for mode in [Rescale::Multiply, Rescale::Divide, Rescale::Floor] {
            let factor = [1, 1000, 86_400_000_000_000, i64::MAX][case.below(4)];
            let numbers: Vec<i64> = (0..n)
                .map(|_| {
                    let near = [0, i64::MAX, i64::MIN, factor, -factor, i64::MAX / factor, i64::MIN / factor];
                    near[case.below(7)].wrapping_add(case.below(5) as i64 - 2) >> (case.below(2) * 32)
                })
                .collect();
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()[..width].to_vec()).collect();
            let first = case.below(9);
            let validity = case.bytes((first + n).div_ceil(8));
            let (from, bits) = (case.buffer(&bytes), case.buffer(&validity));
            let has_validity = case.below(2) == 0;
            let mut target = case.target(n * to_width);
            let mut checks = Checks::new();
            let source = Source { buffer: Some(&from), at: 0, len: n };
            let valid = has_validity.then_some((&bits, first));
            let cell = checks
                .rescale(source, width, valid, factor, mode, &mut target.buffer, target.at, to_width)
                .unwrap();
            let findings = checks.run(case.s).unwrap();
            let (mut expected, mut wrong) = (Vec::new(), None);
            for (i, number) in numbers.iter().enumerate() {
                let number = if width == 4 { i128::from(*number as i32) } else { i128::from(*number) };
                let factor = i128::from(factor);
                let result = match mode {
                    Rescale::Multiply => number * factor,
                    Rescale::Divide => number / factor,
                    Rescale::Floor => number.div_euclid(factor),
                };
                let loses = mode == Rescale::Divide && number % factor != 0;
                let fits = match to_width {
                    4 => i32::try_from(result).is_ok(),
                    _ => i64::try_from(result).is_ok(),
                };
                expected.extend_from_slice(&result.to_le_bytes()[..to_width]);
                let is_valid = !has_validity || bit(&validity, first + i);
                if (loses || !fits) && is_valid {
                    wrong = wrong.or(Some(i as u64));
                }
            }
            let what = format!("{width} to {to_width} bytes, {mode:?} {factor}");
            case.expect(target, &expected, &what);
            assert_eq!(findings.first_wrong(cell), wrong, "{what}");
        }
    }
}

pub fn decimal_to_float(case: &Case<'_>) {
    let n = case.n.min(1100);
    for width in [4, 8, 16, 32] {
        for scale_up in [false, true] {
            // Numbers of at most 53 bits, whose conversion is exact.
            let numbers: Vec<i64> =
                (0..n).map(|_| case.word().cast_signed() >> (11 + case.below(53))).collect();
            let numbers: Vec<i64> =
                numbers.into_iter().map(|n| if width == 4 { (n as i32).into() } else { n }).collect();
            let extend = |n: &i64| {
                let bytes = i128::from(*n).to_le_bytes();
                let high = [if *n < 0 { 0xff } else { 0 }; 16];
                [bytes, high].as_flattened()[..width].to_vec()
            };
            let from = case.buffer(&numbers.iter().flat_map(extend).collect::<Vec<_>>());
            let mut target = case.target(n * 8);
            let mut jobs = Jobs::new();
            let source = Source { buffer: Some(&from), at: 0, len: n };
            jobs.decimal_to_float(source, width, 1000.0, scale_up, &mut target.buffer, target.at).unwrap();
            jobs.launch(case.s).unwrap();
            let float = |n: &i64| if scale_up { *n as f64 * 1000.0 } else { *n as f64 / 1000.0 };
            let expected: Vec<u8> = numbers.iter().flat_map(|n| float(n).to_le_bytes()).collect();
            case.expect(target, &expected, &format!("width {width}, {scale_up}"));
        }
    }
}

/// Numbers the distinct values of strings and of values of a fixed size, in order of their first
/// rows.
pub fn unique(case: &Case<'_>) {
    let n = case.n.min(3_000);
    for width in [0, 4, 8] {
        let first = case.below(9);
        let validity = case.bytes((first + n).div_ceil(8));
        let distinct = 1 + case.below(n.max(1));
        let size = 1 + case.below(12);
        let values: Vec<Vec<u8>> = (0..n)
            .map(|_| {
                let mut value = case.below(distinct).to_le_bytes().to_vec();
                value.resize(if width == 0 { size } else { value[0] as usize % 20 }, 7);
                value
            })
            .collect();
        let data = case.buffer(&values.concat());
        let ends = values.iter().scan(0usize, |end, value| {
            *end += value.len();
            Some(*end)
        });
        let offsets: Vec<u8> =
            std::iter::once(0).chain(ends).flat_map(|end| end.to_le_bytes()[..width].to_vec()).collect();
        let (offsets, bits) = (case.buffer(&offsets), case.buffer(&validity));
        let source = Source { buffer: Some(&data), at: 0, len: data.len().unwrap() };
        let of = match width {
            0 => ByteValues::FixedSize { size, len: n, data: source },
            _ => ByteValues::Offsets(
                Offsets { buffer: &offsets, width_bytes: width, first: 0, len: n },
                source,
            ),
        };
        let filled = |bytes: usize| {
            let mut buffer = case.s.memory().alloc(case.s, bytes).unwrap();
            case.s.fill(&mut buffer, 0, bytes, 0xff).unwrap();
            buffer
        };
        let (mut table, mut slots) = (filled(slots_for(n).unwrap() * 4), filled(n * 4));
        let mut checks = Checks::new();
        let cell = checks.find_equal(of, Some((&bits, first)), case.word(), &mut table, &mut slots).unwrap();
        assert_eq!(checks.run(case.s).unwrap().first_wrong(cell), None);
        let (table, slots) = (table.freeze(case.s).unwrap(), slots.freeze(case.s).unwrap());
        let mut marks = case.target(n.div_ceil(8));
        marks.at = 0;
        let mut jobs = Jobs::new();
        jobs.mark_first(&table, &slots, n, &mut marks.buffer).unwrap();
        jobs.launch(case.s).unwrap();

        let mut seen: HashMap<&[u8], u32> = HashMap::new();
        let (mut expected_marks, mut rows, mut codes) = (vec![0u8; n.div_ceil(8)], Vec::new(), Vec::new());
        for (i, value) in values.iter().enumerate() {
            if !bit(&validity, first + i) {
                codes.push(u32::MAX);
                continue;
            }
            let next = seen.len() as u32;
            let code = *seen.entry(value).or_insert(next);
            if code == next {
                expected_marks[i / 8] |= 1 << (i % 8);
                rows.push(i as u32);
            }
            codes.push(code);
        }
        case.expect(marks, &expected_marks, &format!("width {width}"));
        let rows_on_device = case.buffer(&rows.iter().flat_map(|row| row.to_le_bytes()).collect::<Vec<_>>());
        let mut numbered = filled(slots_for(n).unwrap() * 4);
        let mut jobs = Jobs::new();
        jobs.number_slots(&rows_on_device, rows.len(), &slots, n, &mut numbered).unwrap();
        jobs.launch(case.s).unwrap();
        let numbered = words(case, &numbered.freeze(case.s).unwrap());
        let slots = words(case, &slots);
        for (i, code) in codes.iter().enumerate() {
            let actual = if slots[i] == u32::MAX { u32::MAX } else { numbered[slots[i] as usize] };
            assert_eq!(actual, *code, "row {i} of {n}, width {width}");
        }
    }
}

fn words(case: &Case<'_>, buffer: &Buffer) -> Vec<u32> {
    let view = buffer.host_view(case.s).unwrap();
    view.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
