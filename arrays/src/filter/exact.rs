//! Exact numbers with a power of ten, and their conversion to the numbers of a column.

use std::cmp::Ordering;

/// A magnitude of 256 bits, the lowest word first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Magnitude([u64; 4]);

impl Magnitude {
    /// Multiplies by `factor` and adds `more`; `None` if the result has more than 256 bits.
    fn times(self, factor: u64, more: u64) -> Option<Self> {
        let (mut words, mut carry) = (self.0, u128::from(more));
        for word in &mut words {
            let product = u128::from(*word) * u128::from(factor) + carry;
            (*word, carry) = (product as u64, product >> 64);
        }
        (carry == 0).then_some(Self(words))
    }

    /// Divides by `divisor`. Also returns whether there is a remainder.
    fn divided(self, divisor: u64) -> (Self, bool) {
        let (mut words, mut rest) = (self.0, 0u128);
        for word in words.iter_mut().rev() {
            let dividend = rest << 64 | u128::from(*word);
            (*word, rest) = ((dividend / u128::from(divisor)) as u64, dividend % u128::from(divisor));
        }
        (Self(words), rest != 0)
    }

    fn is_zero(self) -> bool {
        self.0 == [0; 4]
    }

    /// Reads decimal digits; `None` if there are others or too many.
    fn from_digits(digits: &str) -> Option<Self> {
        let digit = |sum: Self, letter: char| sum.times(10, letter.to_digit(10)?.into());
        digits.chars().try_fold(Self::default(), digit)
    }

    fn digits(self) -> String {
        let (mut rest, mut digits) = (self, Vec::new());
        while !rest.is_zero() {
            let (quotient, _) = rest.divided(10);
            let [low, ..] = rest.0;
            let [times, ..] = quotient.times(10, 0).unwrap_or_default().0;
            digits.push(char::from_digit(low.wrapping_sub(times) as u32, 10).unwrap_or('0'));
            rest = quotient;
        }
        if digits.is_empty() { "0".to_owned() } else { digits.iter().rev().collect() }
    }
}

/// The number `±magnitude * 10^-scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    magnitude: Magnitude,
    scale: i32,
}

impl From<i128> for Decimal {
    fn from(n: i128) -> Self {
        Self::scaled(n, 0)
    }
}

impl Decimal {
    /// The number `n * 10^-scale`.
    pub fn scaled(n: i128, scale: i32) -> Self {
        let all = n.unsigned_abs();
        let magnitude = Magnitude([all as u64, (all >> 64) as u64, 0, 0]);
        Self { is_negative: n < 0, magnitude, scale }
    }

    /// The number of digits of the integer `self * 10^scale`.
    pub(crate) fn digits_at(&self, scale: i32) -> i32 {
        if self.magnitude.is_zero() { 0 } else { self.magnitude.digits().len() as i32 + scale - self.scale }
    }

    /// The number without its digits after the first `scale` digits behind the point.
    pub(crate) fn truncated(mut self, scale: i32) -> Self {
        while self.scale > scale && !self.magnitude.is_zero() {
            self.magnitude = self.magnitude.divided(10).0;
            self.scale -= 1;
        }
        self
    }

    /// The nearest float.
    pub(super) fn to_f64(self) -> f64 {
        let sign = if self.is_negative { "-" } else { "" };
        let text = format!("{sign}{}e{}", self.magnitude.digits(), -i64::from(self.scale));
        text.parse().unwrap_or(f64::NAN)
    }

    /// Parses a number in decimal notation, with an optional exponent. `None` if the text is not
    /// such a number, or has more digits than 256 bits can represent.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 {
            return None;
        }
        let magnitude = Magnitude::from_digits(&[whole, fraction].concat())?;
        let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        // With more digits, every number except 0 is beyond the range of all types.
        (scale.abs() <= 5000).then_some(Self { is_negative, magnitude, scale })
    }
}

/// A finite or infinite number, as a user gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exact {
    Decimal(Decimal),
    /// Not NaN.
    Float(f64),
}

/// A number in relation to the numbers of a type, which are a grid of integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place<T> {
    /// Less than each number of the type.
    Below,
    /// Equal to a number of the type.
    At(T),
    /// Greater than this number of the type and less than the next.
    After(T),
    /// Greater than each number of the type.
    Above,
}

impl<T> Place<T> {
    fn new(n: T, is_exact: bool) -> Self {
        if is_exact { Self::At(n) } else { Self::After(n) }
    }
}

/// Finds the place of a number among the integers of 256 bits that count units of `10^-scale`.
pub(crate) fn among_units(number: Exact, scale: i32) -> Place<[u64; 4]> {
    let (is_negative, magnitude) = match number {
        Exact::Decimal(Decimal { is_negative, magnitude, scale: of }) => {
            (is_negative, decimal_units(magnitude, scale.saturating_sub(of)))
        }
        Exact::Float(x) if x.is_infinite() => (x < 0.0, None),
        Exact::Float(x) => (x < 0.0, float_units(x.abs(), scale)),
    };
    let outside = if is_negative { Place::Below } else { Place::Above };
    let Some((mut magnitude, has_rest)) = magnitude else { return outside };
    if is_negative && has_rest {
        match magnitude.times(1, 1) {
            Some(next) => magnitude = next,
            None => return outside,
        }
    }
    let mut words = magnitude.0;
    if is_negative {
        let mut carry = true;
        for word in &mut words {
            (*word, carry) = (!*word).overflowing_add(carry.into());
        }
    }
    let [.., top] = words;
    if !magnitude.is_zero() && (top.cast_signed() < 0) != is_negative {
        return outside;
    }
    Place::new(words, !has_rest)
}

/// Multiplies by a power of ten. Also returns whether a fraction was dropped. `None` if the result
/// has more than 256 bits.
fn decimal_units(magnitude: Magnitude, power: i32) -> Option<(Magnitude, bool)> {
    let (mut units, mut has_rest) = (magnitude, false);
    if magnitude.is_zero() {
        return Some((magnitude, false));
    }
    for _ in 0..power {
        units = units.times(10, 0)?;
    }
    for _ in power..0 {
        let (quotient, rest) = units.divided(10);
        (units, has_rest) = (quotient, has_rest || rest);
        if units.is_zero() {
            break;
        }
    }
    Some((units, has_rest))
}

/// Converts a float that is finite and not negative. A float is `m * 2^exponent`.
fn float_units(x: f64, scale: i32) -> Option<(Magnitude, bool)> {
    let (bits, biased) = (x.to_bits() & ((1 << 52) - 1), (x.to_bits() >> 52) as i32);
    let (m, exponent) = if biased == 0 { (bits, -1074) } else { (bits | 1 << 52, biased - 1075) };
    let mut units = Magnitude([m, 0, 0, 0]);
    let (mut halvings, mut tens, mut has_rest) = (-exponent, scale, false);
    // A factor of 10 and a division by 2 are a factor of 5, which keeps the number small.
    while halvings > 0 && tens > 0 {
        units = units.times(5, 0)?;
        (halvings, tens) = (halvings - 1, tens - 1);
    }
    for _ in 0..tens {
        units = units.times(10, 0)?;
    }
    for _ in halvings..0 {
        units = units.times(2, 0)?;
    }
    for _ in 0..halvings.max(0) {
        let (quotient, rest) = units.divided(2);
        (units, has_rest) = (quotient, has_rest || rest);
        if units.is_zero() {
            break;
        }
    }
    for _ in tens..0 {
        let (quotient, rest) = units.divided(10);
        (units, has_rest) = (quotient, has_rest || rest);
    }
    Some((units, has_rest))
}

/// Finds the place of a number among the floats of 8 bytes.
pub(crate) fn among_f64(number: Exact) -> Place<f64> {
    let decimal = match number {
        Exact::Float(x) => return Place::At(x),
        Exact::Decimal(decimal) => decimal,
    };
    let sign = if decimal.is_negative { "-" } else { "" };
    let text = format!("{sign}{}e{}", decimal.magnitude.digits(), -decimal.scale);
    // The text is a valid number, which is rounded to the nearest float.
    let nearest: f64 = text.parse().unwrap_or(0.0);
    match compare(nearest, decimal) {
        Ordering::Equal => Place::At(nearest),
        Ordering::Less => Place::After(nearest),
        Ordering::Greater => Place::After(nearest.next_down()),
    }
}

/// Compares a float with a number of the same sign, or with 0.
fn compare(x: f64, decimal: Decimal) -> Ordering {
    let (float, other) = (float_digits(x.abs()), decimal_digits(decimal));
    let magnitudes = float.0.len().cmp(&other.0.len()).then_with(|| float.cmp(&other));
    if decimal.is_negative { magnitudes.reverse() } else { magnitudes }
}

/// The digits of a float before and after the decimal point, without leading or trailing zeros.
fn float_digits(x: f64) -> (String, String) {
    if x.is_infinite() {
        // More digits than any decimal has.
        return ("9".repeat(6000), String::new());
    }
    // A float has at most 1074 digits after the decimal point.
    let text = format!("{x:.1074}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
}

/// Like [`float_digits`], for the magnitude of a decimal.
fn decimal_digits(decimal: Decimal) -> (String, String) {
    let mut digits = decimal.magnitude.digits();
    let places = usize::try_from(decimal.scale).unwrap_or(0);
    digits.push_str(&"0".repeat(usize::try_from(-decimal.scale).unwrap_or(0)));
    let digits = format!("{}{digits}", "0".repeat(places));
    let (whole, fraction) = digits.split_at(digits.len() - places);
    (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
}

/// Compares signed integers of 256 bits.
pub(crate) fn signed_cmp(a: [u64; 4], b: [u64; 4]) -> Ordering {
    let [.., top_a] = a;
    let [.., top_b] = b;
    let top = top_a.cast_signed().cmp(&top_b.cast_signed());
    top.then(a.iter().rev().cmp(b.iter().rev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(n: i128) -> [u64; 4] {
        let sign = if n < 0 { u64::MAX } else { 0 };
        [n as u64, (n >> 64) as u64, sign, sign]
    }

    fn decimal(text: &str) -> Exact {
        Exact::Decimal(Decimal::parse(text).unwrap())
    }

    #[test]
    fn places_numbers_among_units() {
        for (text, scale, expected) in [
            ("0", 0, Place::At(units(0))),
            ("-0.0", 2, Place::At(units(0))),
            ("2.5", 0, Place::After(units(2))),
            ("-2.5", 0, Place::After(units(-3))),
            ("-2", 0, Place::At(units(-2))),
            ("12.345", 2, Place::After(units(1234))),
            ("12.340", 2, Place::At(units(1234))),
            ("1e3", 2, Place::At(units(100_000))),
            ("1e-300", 0, Place::After(units(0))),
            ("-1e-300", 0, Place::After(units(-1))),
            ("1e77", 0, Place::Above),
            ("-1e77", 0, Place::Below),
            ("1234", -2, Place::After(units(12))),
        ] {
            assert_eq!(among_units(decimal(text), scale), expected, "{text} at {scale}");
        }
        for (x, scale, expected) in [
            (0.0, 3, Place::At(units(0))),
            (-0.0, 3, Place::At(units(0))),
            (2.5, 1, Place::At(units(25))),
            (2.5, 0, Place::After(units(2))),
            (-2.5, 0, Place::After(units(-3))),
            // The float 0.1 is greater than 0.1.
            (0.1, 1, Place::After(units(1))),
            (0.1, 0, Place::After(units(0))),
            (1e300, 0, Place::Above),
            (-1e300, 5, Place::Below),
            (f64::INFINITY, 0, Place::Above),
            (f64::NEG_INFINITY, 0, Place::Below),
            (5e-324, 30, Place::After(units(0))),
            (-5e-324, 30, Place::After(units(-1))),
            (2f64.powi(100), 0, Place::At(units(1 << 100))),
        ] {
            assert_eq!(among_units(Exact::Float(x), scale), expected, "{x} at {scale}");
        }
    }

    #[test]
    fn places_numbers_among_floats() {
        let big = (1i128 << 53) + 1;
        for (text, expected) in [
            ("0.5", Place::At(0.5)),
            ("0.1", Place::After(0.1f64.next_down())),
            ("0.3", Place::After(0.3)),
            ("-0.1", Place::After(-0.1)),
            ("-0.3", Place::After((-0.3f64).next_down())),
            (&big.to_string(), Place::After(2f64.powi(53))),
            (&(-big).to_string(), Place::After(-(2f64.powi(53)) - 2.0)),
            ("1e400", Place::After(f64::MAX)),
            ("-1e400", Place::After(f64::NEG_INFINITY)),
            ("1e-400", Place::After(0.0)),
            ("-1e-400", Place::After(-5e-324)),
            ("5e-324", Place::After(5e-324)),
            ("4e-324", Place::After(0.0)),
            ("1.5e-310", Place::After(1.5e-310f64.next_down())),
            ("123.0", Place::At(123.0)),
            ("0", Place::At(0.0)),
        ] {
            assert_eq!(among_f64(decimal(text)), expected, "{text}");
        }
    }

    #[test]
    fn parses_only_numbers() {
        for text in ["", ".", "-", "1.2.3", "abc", "1e", "1e5000000000", "0x10", " 1", "1_000"] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
        assert_eq!(Decimal::parse("+.5"), Some(Decimal::scaled(5, 1)));
        assert_eq!(Decimal::parse("-5."), Some(Decimal::scaled(-5, 0)));
        assert_eq!(Decimal::parse("0012e2"), Some(Decimal::scaled(12, -2)));
    }
}
