//! Tests each kernel against a simple reference on every device, at odd addresses.

use crate::common::{bit, buffer, noise, on_every_device};
use crossdock_kernels::*;
use crossdock_memory::Stream;

fn run_one<'a>(stream: &Stream, add: impl FnOnce(&mut Checks<'a>) -> usize) -> (Findings, usize) {
    let mut checks = Checks::new();
    let cell = add(&mut checks);
    (checks.run(stream).unwrap(), cell)
}

/// The first index with an error according to one check.
fn first_wrong<'a>(stream: &Stream, add: impl FnOnce(&mut Checks<'a>) -> usize) -> Option<u64> {
    let (findings, cell) = run_one(stream, add);
    findings.first_wrong(cell)
}

#[test]
fn counts_nulls_of_any_range() {
    on_every_device(|s| {
        let bytes = noise();
        let bits = buffer(s, &bytes);
        for first in 0..64 {
            for len in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
                let expected = (first..first + len).filter(|i| !bit(&bytes, *i)).count() as u64;
                let (findings, cell) = run_one(s, |checks| checks.null_count(&bits, first, len).unwrap());
                assert_eq!(findings.count(cell), expected, "{first} {len}");
            }
        }
    });
}

#[test]
fn shift_bits_clears_only_unused_bits() {
    on_every_device(|s| {
        let bytes = noise();
        let bits = buffer(s, &bytes);
        for first in 0..64 {
            for len in [1, 7, 8, 9, 100] {
                let mut to = s.memory().alloc(s, 40).unwrap();
                s.fill(&mut to, 0, 40, 0xff).unwrap();
                let mut jobs = Jobs::new();
                jobs.shift_bits(&bits, first, len, &mut to, 3).unwrap();
                jobs.launch(s).unwrap();
                let to = to.freeze(s).unwrap();
                let view = to.host_view(s).unwrap();
                let bytes_out = len.div_ceil(8);
                for i in 0..bytes_out * 8 {
                    assert_eq!(bit(&view[3..], i), i < len && bit(&bytes, first + i), "{first} {len} {i}");
                }
                assert!(view[..3].iter().chain(&view[3 + bytes_out..]).all(|byte| *byte == 0xff));
            }
        }
    });
}

#[test]
fn finds_first_wrong_offset_of_both_widths() {
    on_every_device(|s| {
        for (values, limit, expected) in [
            (&[0, 0, 5, 9][..], 9, None),
            (&[3, 3, 5, 9], 9, None),
            (&[0, 6, 5, 9], 9, Some(2)),
            (&[0, 1, 5, 10], 9, Some(3)),
            (&[-1, 1, 5, 9], 9, Some(0)),
            (&[7, 7, 7, 6], 9, Some(3)),
        ] {
            for width_bytes in [4, 8] {
                let narrow = values.iter().flat_map(|v: &i64| (*v as i32).to_ne_bytes());
                let wide = values.iter().flat_map(|v| v.to_ne_bytes());
                let bytes: Vec<u8> = if width_bytes == 4 { narrow.collect() } else { wide.collect() };
                let bytes = buffer(s, &bytes);
                let offsets = Offsets { buffer: &bytes, width_bytes, first: 0, len: 3 };
                let index = first_wrong(s, |checks| checks.offsets(offsets, limit).unwrap());
                assert_eq!(index, expected, "{values:?}");
            }
        }
    });
}

#[test]
fn rebase_offsets_changes_only_its_range() {
    on_every_device(|s| {
        let fill = |to: &mut [u8]| {
            let values = [100i64, 107, 107, 120].iter().flat_map(|v| v.to_ne_bytes());
            to.iter_mut().zip(values).for_each(|(to, byte)| *to = byte);
            Ok(())
        };
        let mut bytes = s.memory().alloc_with(s, 32, fill).unwrap();
        let mut jobs = Jobs::new();
        jobs.rebase_offsets(&mut bytes, 8, 2, 8, 100).unwrap();
        jobs.launch(s).unwrap();
        let bytes = bytes.freeze(s).unwrap();
        let view = bytes.host_view(s).unwrap();
        let words: Vec<i64> =
            view.chunks_exact(8).map(|w| i64::from_ne_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words, [100, 7, 7, 120]);
    });
}

#[test]
fn checks_valid_keys_of_every_type() {
    on_every_device(|s| {
        for width_bytes in [1usize, 2, 4, 8] {
            for signed in [false, true] {
                let keys: Vec<u8> =
                    [0i64, 3, -1, 4].iter().flat_map(|k| k.to_le_bytes()[..width_bytes].to_vec()).collect();
                let keys = buffer(s, &keys);
                let key_type = IntType { width_bytes, signed };
                let first = |validity: Option<u8>| {
                    let bits = validity.map(|bits| buffer(s, &[bits << 1]));
                    let validity = bits.as_ref().map(|bits| (bits, 1));
                    first_wrong(s, |checks| checks.indices(&keys, key_type, 0, 4, validity, 4).unwrap())
                };
                assert_eq!(first(None), Some(2), "{key_type:?}");
                assert_eq!(first(Some(0b1011)), Some(3), "{key_type:?}");
                assert_eq!(first(Some(0b0011)), None, "{key_type:?}");
            }
        }
    });
}

#[test]
fn checks_utf8_of_each_value() {
    on_every_device(|s| {
        let data = buffer(s, "aöb日".as_bytes());
        for (offsets, expected) in [
            ([0, 1, 3, 7], None),
            ([0, 2, 3, 7], Some(0)),
            ([1, 3, 5, 7], Some(1)),
            // If the offsets are wrong, text is not checked.
            ([0, 2, 900, 901], None),
            ([3, 1, -4, 7], None),
        ] {
            let bytes: Vec<u8> = offsets.iter().flat_map(|v: &i32| v.to_ne_bytes()).collect();
            let bytes = buffer(s, &bytes);
            let offsets = Offsets { buffer: &bytes, width_bytes: 4, first: 0, len: 3 };
            let index = first_wrong(s, |checks| {
                let checked = checks.offsets(offsets, 7).unwrap();
                checks.utf8(offsets, checked, &data, None).unwrap()
            });
            assert_eq!(index, expected);
        }
    });
}

#[test]
fn splits_many_checks_into_several_launches() {
    on_every_device(|s| {
        let bits = buffer(s, &[0b1010_1010; 40]);
        let mut checks = Checks::new();
        // These are more jobs than fit into one launch.
        let cells: Vec<usize> = (0..100).map(|i| checks.null_count(&bits, i, 2 * i).unwrap()).collect();
        let findings = checks.run(s).unwrap();
        for (i, cell) in cells.into_iter().enumerate() {
            assert_eq!(findings.count(cell), i as u64);
        }
    });
}

#[test]
fn rejects_range_outside_buffer() {
    on_every_device(|s| {
        let bits = buffer(s, &[0; 4]);
        let mut checks = Checks::new();
        checks.null_count(&bits, 0, 33).unwrap();
        assert!(checks.run(s).is_err());
        let offsets = Offsets { buffer: &bits, width_bytes: 4, first: 0, len: 1 };
        let mut checks = Checks::new();
        checks.offsets(offsets, 0).unwrap();
        assert!(checks.run(s).is_err());
        assert!(Checks::new().offsets(Offsets { width_bytes: 3, ..offsets }, 0).is_err());
    });
}
