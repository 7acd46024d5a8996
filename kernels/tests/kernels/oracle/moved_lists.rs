//! Lists that lie anywhere in their elements, put one after the other.

use crossdock_kernels::{Checks, IntType, Integers, Lists};

use super::Case;
use super::decode::words;
use crate::common::bit;

/// Lists at random: where each begins, how many elements it has, and how many there are.
struct SomeLists {
    begins: Vec<u64>,
    sizes: Vec<u64>,
    elements: u64,
}

/// Lists of up to `most` elements, most of them of none where that is 1; one after the other unless `anywhere`.
fn some_lists(case: &Case<'_>, most: usize, anywhere: bool) -> SomeLists {
    let sizes: Vec<u64> = (0..case.n).map(|_| case.below(most + 1) as u64 * case.below(2) as u64).collect();
    let end: u64 = sizes.iter().sum();
    let elements = end.min(if most < 9 { 100 } else { u64::MAX }).max(most as u64);
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
        for (ends, anywhere, lies) in
            [(false, false, 0), (true, false, 0), (true, true, 0), (false, true, 3), (true, true, 2)]
        {
            // A byte does not count far.
            let narrow = width == 1 || (width == 2 && case.n > 1000);
            let SomeLists { mut begins, sizes, elements } = some_lists(case, 8, anywhere || narrow);
            let mut rest: Vec<u64> = begins
                .iter()
                .zip(&sizes)
                .map(|(begin, size)| if ends { begin + size } else { *size })
                .collect();
            for _ in 0..lies.min(case.n) {
                let of = if case.below(2) == 0 { &mut begins } else { &mut rest };
                of[case.below(case.n)] = case.word() >> case.below(64);
            }
            let first = case.below(20);
            let bits = case.bytes((first + case.n).div_ceil(8));
            let held =
                [case.buffer(&words(&begins, width)), case.buffer(&words(&rest, width)), case.buffer(&bits)];
            let given = case.below(2) == 0;
            let of = IntType { width_bytes: width, signed };
            let numbers = |i: usize| Integers { buffer: &held[i], at: 0, len: case.n, of };
            let lists = Lists {
                begins: numbers(0),
                rest: numbers(1),
                ends,
                validity: given.then_some((&held[2], first)),
                elements: elements as usize,
            };
            let mut to = case.target((case.n + 1) * 4);
            let mut room = case.s.memory().alloc(case.s, lists.bytes_to_place()).unwrap();
            let mut checks = Checks::new();
            let cells = checks.place_lists(lists, &mut to.buffer, to.at, &mut room).unwrap();
            let found = checks.run(case.s).unwrap();

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
                let (begin, told) = (number(begins[i]), number(rest[i]));
                let end = if ends { told } else { begin + told };
                let right = begin >= 0 && told >= 0 && begin <= end && end <= i128::from(elements);
                let there = !given || bit(&bits, first + i);
                let size = if right && there { (end - begin) as u64 } else { 0 };
                wrong = wrong.or((there && !right).then_some(i as u64));
                moved = moved.or((size > 0 && begin != i128::from(before)).then_some(i as u64));
                offsets.push(before + size);
            }
            let what = format!("n {} width {width} signed {signed} ends {ends} lies {lies}", case.n);
            assert_eq!(found.first_wrong(cells.wrong), wrong, "{what}");
            assert_eq!(found.first_wrong(cells.moved), moved, "{what}");
            assert_eq!(found.number(cells.elements), offsets[case.n] as i64, "{what}");
            case.expect(to, &words(&offsets, 4), &what);
        }
    }
    too_many(case);
}

/// Of so many elements that offsets do not reach to them, or that no number holds how many, it is told that they are many.
fn too_many(case: &Case<'_>) {
    let each = [1u64 << 31, 1 << 62][case.below(2)];
    let held = [case.buffer(&words(&vec![0; case.n], 8)), case.buffer(&words(&vec![each; case.n], 8))];
    let of = IntType { width_bytes: 8, signed: false };
    let numbers = |i: usize| Integers { buffer: &held[i], at: 0, len: case.n, of };
    let lists =
        Lists { begins: numbers(0), rest: numbers(1), ends: false, validity: None, elements: each as usize };
    let mut to = case.target((case.n + 1) * 4);
    let mut room = case.s.memory().alloc(case.s, lists.bytes_to_place()).unwrap();
    let mut checks = Checks::new();
    let cells = checks.place_lists(lists, &mut to.buffer, to.at, &mut room).unwrap();
    let found = checks.run(case.s).unwrap();
    assert_eq!(found.first_wrong(cells.wrong), None);
    assert_eq!(found.number(cells.elements) > i64::from(i32::MAX), case.n > 0, "n {}", case.n);
}

pub fn name(case: &Case<'_>) {
    for (offset_width, width, most) in [(4, 4, 3), (4, 8, 1), (8, 4, 40), (8, 8, 5000)] {
        let most = if case.n > 10_000 { most.min(40) } else { most };
        let SomeLists { begins, sizes, .. } = some_lists(case, most, true);
        let mut offsets = vec![0];
        sizes.iter().for_each(|size| offsets.push(offsets[offsets.len() - 1] + size));
        let n = offsets[case.n] as usize;
        let first = case.below(20);
        let bits = case.bytes((first + case.n).div_ceil(8));
        let held = [
            case.buffer(&words(&begins, 8)),
            case.buffer(&words(&offsets, offset_width)),
            case.buffer(&bits),
        ];
        let given = case.below(2) == 0;
        let of = IntType { width_bytes: 8, signed: true };
        let numbers = Integers { buffer: &held[0], at: 0, len: case.n, of };
        let mut to = case.target(n * width);
        let mut checks = Checks::new();
        let validity = given.then_some((&held[2], first));
        let offsets_at = (&held[1], offset_width);
        checks.name_elements(numbers, offsets_at, validity, &mut to.buffer, to.at, (n, width)).unwrap();
        checks.run(case.s).unwrap();
        let rows = (0..case.n).flat_map(|i| {
            let there = !given || bit(&bits, first + i);
            (begins[i]..begins[i] + sizes[i]).map(move |row| if there { row } else { u64::MAX })
        });
        let rows: Vec<u64> = rows.collect();
        case.expect(to, &words(&rows, width), &format!("elements by {offset_width} bytes as {width}"));
    }
}
