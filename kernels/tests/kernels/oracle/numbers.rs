//! References for kernels that read, check and convert numbers.

use crossdock_kernels::{Checks, IntType, NumberType};

use super::Case;

const INTS: [IntType; 4] = [
    IntType { width_bytes: 4, signed: false },
    IntType { width_bytes: 4, signed: true },
    IntType { width_bytes: 8, signed: false },
    IntType { width_bytes: 8, signed: true },
];

/// Returns number `i`.
fn number(bytes: &[u8], i: usize, of: IntType) -> i64 {
    let word = &bytes[i * of.width_bytes..][..of.width_bytes];
    match (of.width_bytes, of.signed) {
        (4, true) => i32::from_le_bytes(word.try_into().unwrap()).into(),
        (4, false) => u32::from_le_bytes(word.try_into().unwrap()).into(),
        (_, true) => i64::from_le_bytes(word.try_into().unwrap()),
        (_, false) => u64::from_le_bytes(word.try_into().unwrap()).try_into().unwrap_or(i64::MAX),
    }
}

/// Reads several ranges in one launch.
pub fn read(case: &Case<'_>) {
    for of in INTS {
        let bytes = case.bytes((case.n + 9) * of.width_bytes);
        let buffer = case.buffer(&bytes);
        let mut checks = Checks::new();
        let first = case.below(8);
        let many = checks.numbers(&buffer, first * of.width_bytes, case.n, of).unwrap();
        let one = checks.numbers(&buffer, 0, 1, of).unwrap();
        let findings = checks.run(case.s).unwrap();
        assert_eq!(findings.number(one), number(&bytes, 0, of));
        for i in 0..case.n {
            assert_eq!(findings.number(many + i), number(&bytes, first + i, of), "{i} of {}: {of:?}", case.n);
        }
    }
}

pub fn check(case: &Case<'_>) {
    for of in INTS {
        let bytes = case.bytes(20 * of.width_bytes);
        let buffer = case.buffer(&bytes);
        let mut checks = Checks::new();
        let expected: Vec<_> = (0..20)
            .map(|i| {
                let value = number(&bytes, i, of);
                let (min, max) = match case.below(4) {
                    0 => (value, value),
                    1 => (value.saturating_add(1), i64::MAX),
                    2 => (i64::MIN, value.saturating_sub(1)),
                    _ => (0, case.n as i64),
                };
                let cell = checks.number_within(&buffer, i * of.width_bytes, of, min, max).unwrap();
                (cell, value < min || value > max)
            })
            .collect();
        let findings = checks.run(case.s).unwrap();
        for (cell, wrong) in expected {
            assert_eq!(findings.first_wrong(cell), wrong.then_some(0), "{of:?}");
        }
    }
}

/// Converts numbers of every kind between all pairs of types. The reference uses exact `f64` and
/// `i128` values.
pub fn cast(case: &Case<'_>) {
    let n = case.n.min(1100);
    for from in NumberType::ALL {
        let width = from.width_bytes();
        let mut bytes = case.bytes(n * width);
        for word in bytes.chunks_exact_mut(width) {
            if case.below(2) == 0 {
                word.copy_from_slice(&interesting(case, *from)[..width]);
            }
        }
        let buffer = case.buffer(&bytes);
        for to in NumberType::ALL {
            let mut target = case.target(n * to.width_bytes());
            let mut checks = Checks::new();
            let cell = checks.cast(&buffer, 0, *from, n, &mut target.buffer, target.at, *to).unwrap();
            let findings = checks.run(case.s).unwrap();
            let results: Vec<(Vec<u8>, bool)> =
                bytes.chunks_exact(width).map(|word| plain(value(word, *from), *to)).collect();
            let expected: Vec<u8> = results.iter().flat_map(|(word, _)| word.clone()).collect();
            let what = format!("{} to {}", from.name(), to.name());
            case.expect(target, &expected, &what);
            let lost = results.iter().position(|(_, fits)| !fits).map(|i| i as u64);
            assert_eq!(findings.first_wrong(cell), lost, "{what}");
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Value {
    Int(i128),
    Float(f64),
}

/// Numbers at and near limits.
pub(super) fn interesting(case: &Case<'_>, of: NumberType) -> [u8; 8] {
    let power = 2f64.powi(case.below(68) as i32);
    let x = [
        0.0,
        0.5,
        -0.5,
        1.5,
        f64::NAN,
        f64::INFINITY,
        power,
        power - 1.0,
        -power,
        -power - 1.0,
        65519.9,
        65520.0,
    ][case.below(12)];
    match of {
        NumberType::Float64 => x.to_le_bytes(),
        NumberType::Float32 => u64::from((x as f32).to_bits()).to_le_bytes(),
        NumberType::Float16 => {
            (case.word() & 0x83ff | [0, 0x7c00, 0x7800, 0x3c00][case.below(4)]).to_le_bytes()
        }
        _ => (x as i128 as u64).wrapping_add(case.below(3) as u64).to_le_bytes(),
    }
}

pub(super) fn value(word: &[u8], of: NumberType) -> Value {
    let mut wide = [0; 8];
    wide[..word.len()].copy_from_slice(word);
    let n = u64::from_le_bytes(wide);
    match of {
        NumberType::Int8 => Value::Int((n as i8).into()),
        NumberType::Int16 => Value::Int((n as i16).into()),
        NumberType::Int32 => Value::Int((n as i32).into()),
        NumberType::Int64 => Value::Int((n as i64).into()),
        NumberType::UInt8 | NumberType::UInt16 | NumberType::UInt32 | NumberType::UInt64 => {
            Value::Int(n.into())
        }
        NumberType::Float16 => Value::Float(half(n as u16)),
        NumberType::Float32 => Value::Float(f32::from_bits(n as u32).into()),
        NumberType::Float64 => Value::Float(f64::from_bits(n)),
    }
}

fn half(bits: u16) -> f64 {
    let magnitude = match (bits >> 10 & 31, bits & 0x3ff) {
        (31, 0) => f64::INFINITY,
        (31, _) => f64::NAN,
        (0, fraction) => f64::from(fraction) * 2f64.powi(-24),
        (exponent, fraction) => f64::from(fraction + 1024) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// Finds the nearest of all halves by binary search, with ties to even.
fn nearest_half(x: f64) -> u16 {
    if x.is_nan() {
        return 0x7e00;
    }
    let sign = u16::from(x.is_sign_negative()) << 15;
    let x = x.abs();
    // Halves of the same sign are ordered like their bits. Infinity takes the place of 65536.
    let value = |bits: u16| if bits == 0x7c00 { 65536.0 } else { half(bits) };
    let (mut low, mut high) = (0u16, 0x7c00);
    if x >= 65536.0 {
        return sign | 0x7c00;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if value(middle) <= x { low = middle } else { high = middle }
    }
    let (below, above) = (x - value(low), value(high) - x);
    sign | if below < above || (below == above && low % 2 == 0) { low } else { high }
}

fn plain(value: Value, to: NumberType) -> (Vec<u8>, bool) {
    let (min, max): (i128, i128) = match to {
        NumberType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        NumberType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        NumberType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        NumberType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        NumberType::UInt8 => (0, u8::MAX.into()),
        NumberType::UInt16 => (0, u16::MAX.into()),
        NumberType::UInt32 => (0, u32::MAX.into()),
        NumberType::UInt64 => (0, u64::MAX.into()),
        NumberType::Float16 | NumberType::Float32 | NumberType::Float64 => return float(value, to),
    };
    let (n, fits) = match value {
        Value::Int(n) => (n, min <= n && n <= max),
        Value::Float(x) if x.is_nan() => (0, false),
        // The conversion to i128 is exact or saturates beyond all types.
        Value::Float(x) => ((x as i128).clamp(min, max), min <= x as i128 && x as i128 <= max),
    };
    (n.to_le_bytes()[..to.width_bytes()].to_vec(), fits)
}

fn float(value: Value, to: NumberType) -> (Vec<u8>, bool) {
    let exact = match value {
        Value::Int(n) => n as f64,
        Value::Float(x) => x,
    };
    match to {
        NumberType::Float16 => {
            let bits = nearest_half(exact);
            (bits.to_le_bytes().to_vec(), bits & 0x7fff != 0x7c00 || exact.is_infinite())
        }
        NumberType::Float32 => {
            let x = match value {
                Value::Int(n) => n as f32,
                Value::Float(x) => x as f32,
            };
            let bits = if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() };
            (bits.to_le_bytes().to_vec(), !x.is_infinite() || exact.is_infinite())
        }
        _ => {
            let bits = if exact.is_nan() { 0x7ff8 << 48 } else { exact.to_bits() };
            (bits.to_le_bytes().to_vec(), true)
        }
    }
}
