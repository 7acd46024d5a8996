//! Reads single values from text. The parsers of arrow-rs drop digits and time zones that the type
//! cannot store. The functions here return `None` for such texts, so that no value changes
//! silently.

use arrow_array::timezone::Tz;
use arrow_array::types::{Date32Type, DecimalType};
use arrow_cast::parse::{Parser, parse_decimal, string_to_datetime, string_to_time_nanoseconds};
use arrow_schema::TimeUnit;
use chrono::{DateTime, Utc};

/// How a timestamp's text relates to the time zone of its column.
#[derive(Clone, Copy, Debug)]
pub enum Zone {
    /// The column has no zone, so texts must have none.
    Naive,
    /// The column has a zone with a constant offset. It applies to texts without an offset.
    Offset(Tz),
    /// The column has another zone, so texts must have an offset.
    Named,
}

impl Zone {
    /// The zone of a column. `name` is the zone of its type.
    pub fn new(name: Option<&str>) -> Self {
        match name {
            None => Self::Naive,
            Some("UTC" | "utc" | "Z" | "GMT" | "Etc/UTC") => {
                "+00:00".parse().map_or(Self::Named, Self::Offset)
            }
            Some(name) => name.parse().map_or(Self::Named, Self::Offset),
        }
    }
}

/// A timestamp in units since the epoch.
pub fn timestamp(text: &str, unit: TimeUnit, zone: Zone) -> Option<i64> {
    let has_offset = has_offset(text);
    let time = match zone {
        Zone::Naive if has_offset => return None,
        Zone::Named if !has_offset => return None,
        Zone::Offset(zone) if !has_offset => string_to_datetime(&zone, text).ok()?.to_utc(),
        _ => string_to_datetime(&Utc, text).ok()?,
    };
    if fraction(text).len() > 9 {
        return None;
    }
    let nanos = time.timestamp_subsec_nanos();
    let whole = |per_unit: u32, value: i64| nanos.is_multiple_of(per_unit).then_some(value);
    match unit {
        TimeUnit::Second => whole(1_000_000_000, time.timestamp()),
        TimeUnit::Millisecond => whole(1_000_000, time.timestamp_millis()),
        TimeUnit::Microsecond => whole(1000, time.timestamp_micros()),
        TimeUnit::Nanosecond => nanoseconds(time),
    }
}

fn nanoseconds(time: DateTime<Utc>) -> Option<i64> {
    time.timestamp_nanos_opt()
}

/// Whether the text of a timestamp ends with `Z` or an offset.
pub fn has_offset(text: &str) -> bool {
    let time = text.as_bytes().get(11..).unwrap_or_default();
    time.iter().any(|byte| matches!(byte, b'+' | b'-') || byte.is_ascii_alphabetic())
}

/// The digits after the decimal point of the seconds of a time or a timestamp.
pub fn fraction(text: &str) -> &str {
    let after = text.split_once('.').map_or("", |(_, after)| after);
    let end = after.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
    after.get(..end).unwrap_or_default()
}

/// A time of day in units since midnight.
pub fn time(text: &str, unit: TimeUnit) -> Option<i64> {
    if fraction(text).len() > 9 {
        return None;
    }
    let nanos = string_to_time_nanoseconds(text).ok()?;
    let per_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    (nanos % per_unit == 0).then_some(nanos / per_unit)
}

/// The number of days since the epoch.
pub fn date(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    let has_year = matches!(bytes, [b'+' | b'-', ..]) || (bytes.len() <= 10 && bytes.get(4) == Some(&b'-'));
    if has_year { Date32Type::parse(text) } else { None }
}

/// Milliseconds since the epoch, which are whole days if the text is a date.
pub fn date_millis(text: &str) -> Option<i64> {
    match date(text) {
        Some(days) => i64::from(days).checked_mul(86_400_000),
        None => timestamp(text, TimeUnit::Millisecond, Zone::Naive),
    }
}

/// A decimal number.
pub fn decimal<T: DecimalType>(text: &str, precision: u8, scale: i8) -> Option<T::Native> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let exponent = text.get(mantissa.len() + 1..).map_or(Some(0), |text| text.parse::<i64>().ok())?;
    let digits = mantissa.trim_ascii().trim_start_matches(['+', '-']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // The position of the last digit that is not 0, counted from the decimal point.
    let last = match (fraction.trim_end_matches('0'), whole.trim_end_matches('0')) {
        ("", "") => None,
        ("", whole_digits) => Some(-((whole.len() - whole_digits.len()) as i64)),
        (fraction, _) => Some(fraction.len() as i64),
    };
    if last.is_some_and(|last| last.saturating_sub(exponent) > i64::from(scale)) {
        return None;
    }
    parse_decimal::<T>(text, precision, scale).ok()
}

/// Decodes hexadecimal digits to `to`. Returns `None` if the text has anything else.
pub fn hex(text: &str, to: &mut Vec<u8>) -> Option<()> {
    to.clear();
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    for [high, low] in pairs {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        to.push((digit(*high)? << 4 | digit(*low)?) as u8);
    }
    Some(())
}

/// An integer. The loop is faster than the parser of arrow-rs, which also reads other notations.
#[inline]
pub fn integer<T: Parser>(text: &str) -> Option<T::Native>
where
    T::Native: TryFrom<i64>,
{
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // 18 digits do not overflow.
    if digits.is_empty() || digits.len() > 18 {
        return T::parse(text);
    }
    let mut value = 0i64;
    for digit in digits.iter().map(|byte| byte.wrapping_sub(b'0')) {
        if digit > 9 {
            return T::parse(text);
        }
        value = value * 10 + i64::from(digit);
    }
    T::Native::try_from(if is_negative { -value } else { value }).ok()
}

/// A truth value.
pub fn boolean(text: &str) -> Option<bool> {
    match () {
        () if text.eq_ignore_ascii_case("true") => Some(true),
        () if text.eq_ignore_ascii_case("false") => Some(false),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::{Decimal128Type, Int8Type, Int64Type, UInt8Type};

    #[test]
    fn timestamps_keep_their_zone_and_all_digits() {
        let seconds = |text, zone| timestamp(text, TimeUnit::Second, Zone::new(zone));
        assert_eq!(seconds("1970-01-01 00:01:00", None), Some(60));
        assert_eq!(seconds("1970-01-01", None), Some(0));
        assert_eq!(seconds("1970-01-01T00:01:00Z", None), None);
        assert_eq!(seconds("1970-01-01T00:01:00Z", Some("UTC")), Some(60));
        assert_eq!(seconds("1970-01-01T01:01:00+01:00", Some("Europe/Berlin")), Some(60));
        assert_eq!(seconds("1970-01-01T01:01:00", Some("Europe/Berlin")), None);
        assert_eq!(seconds("1970-01-01T01:01:00", Some("+01:00")), Some(60));
        assert_eq!(seconds("1970-01-01T00:01:00.5", None), None);
        assert_eq!(timestamp("1970-01-01T00:00:00.0000000005", TimeUnit::Nanosecond, Zone::Naive), None);
        assert_eq!(timestamp("1969-12-31T23:59:59.9", TimeUnit::Millisecond, Zone::Naive), Some(-100));
    }

    #[test]
    fn dates_and_times_keep_all_digits() {
        assert_eq!(date("1970-01-02"), Some(1));
        assert_eq!(date("1970-01-02T00:00:00"), None);
        assert_eq!(date("19700102"), None);
        assert_eq!(date_millis("1970-01-02T00:00:00.001"), Some(86_400_001));
        assert_eq!(time("00:00:01.5", TimeUnit::Millisecond), Some(1500));
        assert_eq!(time("00:00:01.5", TimeUnit::Second), None);
        assert_eq!(time("86399", TimeUnit::Second), None);
    }

    #[test]
    fn decimals_keep_all_digits() {
        let cents = |text| decimal::<Decimal128Type>(text, 10, 2);
        assert_eq!(cents("-1.25"), Some(-125));
        assert_eq!(cents("1.2500"), Some(125));
        assert_eq!(cents("1.255"), None);
        assert_eq!(cents("125e-2"), Some(125));
        assert_eq!(cents("1255e-3"), None);
        assert_eq!(cents("1e20"), None);
        assert_eq!(cents("."), None);
        assert_eq!(decimal::<Decimal128Type>("1200", 10, -2), Some(12));
        assert_eq!(decimal::<Decimal128Type>("1250", 10, -2), None);
    }

    #[test]
    fn integers_are_those_of_the_parser_of_arrow() {
        let texts =
            ["0", "-0", "-", "", "+5", " 7 ", "1x", "1.0", "000000000000000000001", "999999999999999999"];
        for text in texts.into_iter().chain(["-129", "128", "-9223372036854775808", "9223372036854775808"]) {
            assert_eq!(integer::<Int8Type>(text), Int8Type::parse(text), "{text}");
            assert_eq!(integer::<UInt8Type>(text), UInt8Type::parse(text), "{text}");
            assert_eq!(integer::<Int64Type>(text), Int64Type::parse(text), "{text}");
        }
    }

    #[test]
    fn hexadecimal_digits_come_in_pairs() {
        let mut bytes = Vec::new();
        assert_eq!(hex("00fFa1", &mut bytes), Some(()));
        assert_eq!(bytes, [0, 0xff, 0xa1]);
        assert_eq!(hex("0", &mut bytes), None);
        assert_eq!(hex("0g", &mut bytes), None);
    }
}
