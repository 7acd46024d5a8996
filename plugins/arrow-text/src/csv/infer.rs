//! Infers the types of columns from their texts.

use arrow_array::types::{Float64Type, Int64Type};
use arrow_cast::parse::Parser;
use arrow_schema::{DataType, TimeUnit};

use crate::values::{Zone, boolean, date, fraction, has_offset, timestamp};

/// The kinds of the texts of a column, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

const BOOLEAN: u16 = 1;
const INTEGER: u16 = 1 << 1;
const FLOAT: u16 = 1 << 2;
const DATE: u16 = 1 << 3;
const TIMESTAMP: u16 = 1 << 4;
const ZONED: u16 = 1 << 5;
const MILLI: u16 = 1 << 6;
const MICRO: u16 = 1 << 7;
const NANO: u16 = 1 << 8;
const TEXT: u16 = 1 << 9;
const UNITS: u16 = MILLI | MICRO | NANO;

impl Kinds {
    /// Adds a text that is not null.
    pub fn add(&mut self, text: &str) {
        if self.0 & TEXT == 0 {
            self.0 |= kind(text);
        }
    }

    /// Adds a date or a timestamp. Any other text is only a text, as in JSON.
    pub fn add_json(&mut self, text: &str) {
        if self.0 & TEXT == 0 {
            self.0 |= temporal(text).unwrap_or(TEXT);
        }
    }

    /// The type that stores all texts.
    pub fn data_type(self) -> DataType {
        let unit = match self.0 & UNITS {
            0 => TimeUnit::Second,
            MILLI => TimeUnit::Millisecond,
            bits if bits & NANO == 0 => TimeUnit::Microsecond,
            _ => TimeUnit::Nanosecond,
        };
        match self.0 & !UNITS {
            BOOLEAN => DataType::Boolean,
            INTEGER => DataType::Int64,
            FLOAT => DataType::Float64,
            bits if bits == INTEGER | FLOAT => DataType::Float64,
            DATE => DataType::Date32,
            TIMESTAMP => DataType::Timestamp(unit, None),
            bits if bits == TIMESTAMP | DATE => DataType::Timestamp(unit, None),
            ZONED => DataType::Timestamp(unit, Some("UTC".into())),
            _ => DataType::Utf8,
        }
    }
}

fn kind(text: &str) -> u16 {
    if boolean(text).is_some() {
        return BOOLEAN;
    }
    if matches!(text, "NaN" | "nan" | "inf" | "-inf") {
        return FLOAT;
    }
    if text.bytes().any(|byte| byte.is_ascii_digit()) {
        if Int64Type::parse(text).is_some() {
            return INTEGER;
        }
        let digits = text.trim_start_matches(['+', '-']);
        // A float would not keep all digits of an integer.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) && Float64Type::parse(text).is_some() {
            return FLOAT;
        }
    }
    temporal(text).unwrap_or(TEXT)
}

fn temporal(text: &str) -> Option<u16> {
    // The shortest timestamp is 1970-01-01 00:00.
    if text.as_bytes().get(4) != Some(&b'-') || text.len() < 10 {
        return None;
    }
    if text.len() == 10 {
        return date(text).map(|_| DATE);
    }
    let (zone, bit) = if has_offset(text) { (Zone::Named, ZONED) } else { (Zone::Naive, TIMESTAMP) };
    let unit = match fraction(text).len() {
        0 => 0,
        1..=3 => MILLI,
        4..=6 => MICRO,
        _ => NANO,
    };
    let of_unit = if unit == NANO { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
    timestamp(text, of_unit, zone).map(|_| bit | unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(texts: &[&str]) -> DataType {
        let mut kinds = Kinds::default();
        texts.iter().for_each(|text| kinds.add(text));
        kinds.data_type()
    }

    #[test]
    fn the_type_stores_all_texts() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        for (texts, expected) in [
            (&["true", "FALSE"][..], DataType::Boolean),
            (&["1", "-2", "+3"], DataType::Int64),
            (&["1", "2.5", "1e3", "NaN"], DataType::Float64),
            (&["9223372036854775808"], DataType::Utf8),
            (&["2013-01-01"], DataType::Date32),
            (&["2013-01-01 10:00:00", "2013-01-01"], seconds),
            (
                &["2013-01-01T10:00:00.1", "2013-01-01T10:00:00.1234"],
                DataType::Timestamp(TimeUnit::Microsecond, None),
            ),
            (&["2013-01-01T10:00:00Z"], DataType::Timestamp(TimeUnit::Second, Some("UTC".into()))),
            (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00"], DataType::Utf8),
            (&["2013-13-01"], DataType::Utf8),
            (&["true", "1"], DataType::Utf8),
            (&["a", "1"], DataType::Utf8),
            (&[], DataType::Utf8),
        ] {
            assert_eq!(inferred(texts), expected, "{texts:?}");
        }
    }
}
