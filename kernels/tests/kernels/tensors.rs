//! Tests the kernels of tensors: conversion of booleans, and strided copies.

use crate::common::{bit, buffer, noise, on_every_device};
use crossdock_kernels::*;

#[test]
fn unpacks_any_range_of_bits() {
    on_every_device(|s| {
        let bytes = noise();
        let bits = buffer(s, &bytes);
        for first in 0..20 {
            for len in [0, 1, 5, 7, 8, 9, 16, 17, 100] {
                for invert in [false, true] {
                    let mut to = s.memory().alloc(s, 110).unwrap();
                    s.fill(&mut to, 0, 110, 0x77).unwrap();
                    unpack_bits(s, &bits, first, len, invert, &mut to, 2).unwrap();
                    let to = to.freeze(s).unwrap();
                    let view = to.host_view(s).unwrap();
                    for i in 0..len {
                        let expected = u8::from(bit(&bytes, first + i) != invert);
                        assert_eq!(view[2 + i], expected, "{first} {len} {i}");
                    }
                    assert!(view[..2].iter().chain(&view[2 + len..]).all(|byte| *byte == 0x77));
                }
            }
        }
    });
}

#[test]
fn packs_bytes_and_clears_unused_bits() {
    on_every_device(|s| {
        let bytes: Vec<u8> = noise().iter().map(|byte| if byte % 3 == 0 { 0 } else { *byte }).collect();
        let from = buffer(s, &bytes);
        for first in 0..5 {
            for len in [0, 1, 7, 8, 9, 16, 33] {
                for invert in [false, true] {
                    let mut to = s.memory().alloc(s, 10).unwrap();
                    s.fill(&mut to, 0, 10, 0x77).unwrap();
                    pack_bytes(s, &from, first, len, invert, &mut to, 1).unwrap();
                    let to = to.freeze(s).unwrap();
                    let view = to.host_view(s).unwrap();
                    let n = len.div_ceil(8);
                    for i in 0..n * 8 {
                        let expected = i < len && (bytes[first + i] != 0) != invert;
                        assert_eq!(bit(&view[1..], i), expected, "{first} {len} {i}");
                    }
                    assert!(view[..1].iter().chain(&view[1 + n..]).all(|byte| *byte == 0x77));
                }
            }
        }
    });
}

/// The elements of a tensor according to the definition of strides.
fn expected(bytes: &[u8], first: i64, width: usize, dims: &[Dim]) -> Vec<u8> {
    match dims.split_first() {
        None => bytes[first as usize..][..width].to_vec(),
        Some((dim, rest)) => {
            (0..dim.size as i64).flat_map(|i| expected(bytes, first + i * dim.stride, width, rest)).collect()
        }
    }
}

#[test]
fn gathers_tensors_of_any_strides() {
    let bytes: Vec<u8> = (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let d = |size, stride| Dim { size, stride };
    on_every_device(|s| {
        let from = buffer(s, &bytes);
        for width in [1, 2, 4, 8, 3, 16] {
            let w = width as i64;
            let shapes: [(i64, Vec<Dim>); 12] = [
                (0, vec![]),
                (5, vec![d(7, w)]),
                (5, vec![d(7, 3 * w)]),
                (900, vec![d(7, -2 * w)]),
                (9, vec![d(7, 0)]),
                (9, vec![d(0, w), d(3, w)]),
                (0, vec![d(5, 4 * w), d(4, w)]),
                (0, vec![d(4, w), d(5, 4 * w)]),
                (1, vec![d(3, w), d(1, 99_999), d(4, 12 * w), d(2, 3 * w)]),
                (1000, vec![d(3, -20 * w), d(4, 5 * w), d(2, -w)]),
                (7, vec![d(2, 0), d(3, 7), d(2, 1)]),
                (0, vec![d(1, -5), d(6, 2 * w), d(1, i64::MIN)]),
            ];
            for (first, dims) in shapes {
                let wanted = expected(&bytes, first, width, &dims);
                let mut to = s.memory().alloc(s, wanted.len() + 4).unwrap();
                s.fill(&mut to, 0, wanted.len() + 4, 0x55).unwrap();
                gather(s, &from, first as usize, width, &dims, &mut to, 3).unwrap();
                let to = to.freeze(s).unwrap();
                let view = to.host_view(s).unwrap();
                assert_eq!(&view[3..3 + wanted.len()], wanted, "{width} {dims:?}");
                assert!(view[..3].iter().chain(&view[3 + wanted.len()..]).all(|byte| *byte == 0x55));
            }
        }
    });
}

#[test]
fn rejects_tensor_outside_its_buffer() {
    on_every_device(|s| {
        let from = buffer(s, &[1; 40]);
        let d = |size, stride| Dim { size, stride };
        let cases = [
            (0, vec![d(6, 8)]),
            (33, vec![d(1, 8)]),
            (0, vec![d(2, -8)]),
            (32, vec![d(6, -8)]),
            (0, vec![d(3, i64::MAX)]),
            (0, vec![d(2, 16), d(4, 8)]),
            (usize::MAX, vec![d(2, 8)]),
        ];
        for (first, dims) in cases {
            let mut to = s.memory().alloc(s, 100).unwrap();
            assert!(gather(s, &from, first, 8, &dims, &mut to, 0).is_err(), "{first} {dims:?}");
        }
        let mut to = s.memory().alloc(s, 100).unwrap();
        let huge = [d(usize::MAX, 8), d(2, 8)];
        assert!(gather(s, &from, 0, 8, &huge, &mut to, 0).is_err());
    });
}
