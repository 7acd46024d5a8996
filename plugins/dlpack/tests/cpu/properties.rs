//! Tests that tensors with random dtypes, shapes, strides and slices keep their elements in a round
//! trip on every device.

use crate::common::*;
use crossdock_plugin_api::{Device, Options};
use crossdock_test_support::{DEVICES, Random, TestHost};

/// Creates a tensor within a larger block of memory. Its dimensions have any order, and its strides
/// may be negative, zero or greater than 1.
fn random_tensor(random: &mut Random, host: &TestHost, device: Device) -> (Spec, Vec<u8>) {
    let dtype = DTYPES[random.below(DTYPES.len())];
    let width = usize::from(dtype.bits) / 8;
    let ndim = 1 + random.below(4);
    let shape: Vec<i64> = (0..ndim).map(|_| [0, 1, 1, 2, 3, 4, 5][random.below(7)]).collect();
    let mut order: Vec<usize> = (0..ndim).collect();
    // Half of the tensors are in row-major order, and the others are in any order.
    if random.below(2) == 0 {
        (1..ndim).rev().for_each(|i| order.swap(i, random.below(i + 1)));
    }
    let (mut strides, mut stride, mut first) = (vec![0; ndim], 1, 0);
    for i in order.into_iter().rev() {
        let step = [1, 1, 1, 1, 2, 3][random.below(6)];
        strides[i] = stride * step;
        stride *= step * shape[i].max(1);
        match random.below(8) {
            0 => strides[i] = 0,
            1 => {
                first += strides[i] * (shape[i] - 1).max(0);
                strides[i] = -strides[i];
            }
            2 if shape[i] <= 1 => strides[i] = 1 << 40,
            _ => {}
        }
    }
    let before = random.below(4) as i64;
    let misaligned = i64::from(random.below(6) == 0);
    let memory = random.bytes((stride + before + 1) as usize * width + 1);
    let at = (before + first) * width as i64 + misaligned;
    let mut spec = Spec::new(host, device, dtype, &shape, &[]);
    spec.versioned = random.below(2) == 0;
    spec.strides = Some(strides.clone());
    let mut expected = Vec::new();
    if !shape.contains(&0) {
        spec.data = Some((bytes_on(host, device, &memory), at as u64));
        spec.byte_offset = random.below(at as usize + 1) as u64;
        let first = (before + first) * width as i64;
        let shifted = &memory[misaligned as usize..];
        expected = elements(shifted, first / width as i64, width, &shape, &strides);
    }
    (spec, expected)
}

#[test]
fn random_tensors_keep_their_elements_in_a_round_trip() {
    let host = TestHost::new();
    let instance = instance(&host);
    let mut random = Random::new(1);
    let (mut in_place, mut gathered) = (0, 0);
    for round in 0..3000 {
        let device = DEVICES[round % 2];
        let (spec, expected) = random_tensor(&mut random, &host, device);
        let bits = spec.dtype == BOOL && random.below(2) == 0;
        let options = if bits { Options::new().with("bools", "bits") } else { Options::new() };
        // Packed booleans are exported as 0 and 1.
        let expected: Vec<u8> =
            if bits { expected.iter().map(|byte| u8::from(*byte != 0)).collect() } else { expected };
        let what = format!("round {round}: {:?} {:?} {:?}", spec.dtype, spec.shape, spec.strides);
        let (schema, batches) =
            import(&host, &instance, device, vec![spec.capsule()], None, &options).expect(&what);
        let batch = &batches[0];
        let rows = spec.shape.as_ref().unwrap()[0] as usize;
        assert_eq!((batch.len(), schema.fields().len()), (rows, 1), "{what}");
        let mut values = &batch.columns()[0];
        while let Some(child) = values.children().first() {
            values = child;
        }
        if let (Some((memory, at)), Some(buffer)) = (&spec.data, &values.buffers()[1]) {
            if buffer.address() == memory.address() + at { in_place += 1 } else { gathered += 1 }
        }
        let (from, to) = slice(&mut random, rows);
        let part = batch.slice(from, to - from).unwrap();
        let out = export(&host, &instance, device, &part, "dlpack", &Options::new()).expect(&what);
        let mut shape = spec.shape.clone().unwrap();
        shape[0] = (to - from) as i64;
        assert_eq!((&out[0].shape, out[0].dtype), (&shape, spec.dtype), "{what}");
        let row = expected.len() / rows.max(1);
        assert_eq!(out[0].elements(&host, device), expected[from * row..to * row], "{what}");
        drop((out, part, batches));
        assert_eq!(spec.frees(), 1, "{what}");
    }
    assert!(in_place > 300 && gathered > 300, "{in_place} in place, {gathered} gathered");
    drop(instance);
    host.assert_nothing_leaked();
}

fn slice(random: &mut Random, rows: usize) -> (usize, usize) {
    let from = random.below(rows + 1);
    (from, from + random.below(rows - from + 1))
}
