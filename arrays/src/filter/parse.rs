//! Parses text as a value of a column's type.

use arrow_schema::DataType;
use crossdock_memory::{Error, Result};

use super::exact::Decimal;
use super::literal::{Literal, number_type};
use crate::type_name;

/// Parses a value of a type. Dates, times and timestamps have the forms of ISO 8601, durations are
/// numbers with a unit ("1.5s"), and bytes are hexadecimal digits.
///
/// # Errors
/// Invalid argument if the text is not such a value, or if values of the type cannot be compared.
pub(crate) fn literal(text: &str, data_type: &DataType) -> Result<Literal> {
    let wrong = |expected: &str| {
        let of = type_name(data_type);
        Error::invalid_argument(format!("'{text}' is not a value of type {of}, expected {expected}"))
    };
    let parsed = match data_type {
        DataType::Boolean => match text {
            "true" => Ok(Literal::Bool(true)),
            "false" => Ok(Literal::Bool(false)),
            _ => Err("true or false"),
        },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(Literal::Text(text.to_owned())),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            hexadecimal(text).map(Literal::Bytes).ok_or("pairs of hexadecimal digits")
        }
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None) => {
            let date = date(text).map(Literal::Date);
            date.or_else(|| timestamp(text, false)).ok_or("a date (2024-02-29), or a date and a time")
        }
        DataType::Timestamp(_, Some(_)) => timestamp(text, true)
            .ok_or("a date and a time with a time zone (2024-02-29T10:00:00Z, 2024-02-29T10:00:00+01:00)"),
        DataType::Time32(_) | DataType::Time64(_) => {
            time(text).map(Literal::Time).ok_or("a time of day (10:00, 10:00:00.5)")
        }
        DataType::Duration(_) => {
            duration(text).map(Literal::Duration).ok_or("a number with a unit (1.5s, 20ms)")
        }
        other if number_type(other).is_some() => number(text).ok_or("a number"),
        other => {
            let of = type_name(other);
            return Err(Error::invalid_argument(format!("values of type {of} cannot be compared")));
        }
    };
    parsed.map_err(wrong)
}

fn number(text: &str) -> Option<Literal> {
    let float = || text.parse().ok().map(Literal::Float);
    Decimal::parse(text).map(Literal::Decimal).or_else(float)
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|letter| letter.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

/// A number of at most `max_digits` digits without a sign.
fn digits(text: &str, max_digits: usize) -> Option<i64> {
    let is_number = (1..=max_digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Days since 1970-01-01.
fn date(text: &str) -> Option<i64> {
    let (unsigned, sign) = text.strip_prefix('-').map_or((text, 1), |rest| (rest, -1));
    let mut parts = unsigned.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (year, month, day) = (sign * digits(year, 6)?, digits(month, 2)?, digits(day, 2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end. 400 such years have 146,097 days.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Nanoseconds since midnight.
fn time(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute, seconds) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    let ns = digits(&format!("{fraction:0<9}"), 9)?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    is_time.then_some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + ns)
}

/// A date and a time of day, separated by `T` or a space, and a time zone if `has_zone` is set.
fn timestamp(text: &str, has_zone: bool) -> Option<Literal> {
    let (day, rest) = text.split_once(['T', ' '])?;
    let (clock, offset) = if has_zone { without_zone(rest)? } else { (rest, 0) };
    let ns = i128::from(date(day)?) * 86_400_000_000_000 + i128::from(time(clock)?);
    Some(Literal::Timestamp { ns: ns - i128::from(offset), has_zone })
}

/// Returns a time of day without its time zone, and the offset of the zone in nanoseconds.
fn without_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (clock, zone) = text.split_at_checked(at)?;
    let offset = time(zone.get(1..)?)?;
    Some((clock, if zone.starts_with('-') { -offset } else { offset }))
}

/// Nanoseconds.
fn duration(text: &str) -> Option<i128> {
    let at = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(at)?;
    let ns_per_unit: i128 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (whole, is_negative) = whole.strip_prefix('-').map_or((whole, false), |rest| (rest, true));
    if fraction.len() > 9 {
        return None;
    }
    let digits = digits(&format!("{whole}{fraction}"), 18)?;
    let scaled = i128::from(digits).checked_mul(ns_per_unit)?;
    let divisor = 10i128.pow(fraction.len() as u32);
    let ns = (scaled % divisor == 0).then_some(scaled / divisor)?;
    Some(if is_negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;

    #[test]
    fn parses_values_of_each_type() {
        let zone = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
        let plain = DataType::Timestamp(TimeUnit::Second, None);
        let at = |ns: i128, has_zone| Literal::Timestamp { ns, has_zone };
        for (text, data_type, expected) in [
            ("true", &DataType::Boolean, Literal::Bool(true)),
            ("true", &DataType::Utf8, Literal::Text("true".into())),
            ("00fF", &DataType::Binary, Literal::Bytes(vec![0, 255])),
            ("12", &DataType::Int8, Literal::Decimal(12.into())),
            ("inf", &DataType::Float32, Literal::Float(f64::INFINITY)),
            ("1970-01-01", &DataType::Date32, Literal::Date(0)),
            ("2024-02-29", &DataType::Date32, Literal::Date(19_782)),
            ("1969-12-31", &plain, Literal::Date(-1)),
            ("-0001-03-01", &plain, Literal::Date(-719_834)),
            ("1970-01-01T00:00:01.5", &plain, at(1_500_000_000, false)),
            ("1970-01-01 01:00:00+01:00", &zone, at(0, true)),
            ("1970-01-01T00:00Z", &zone, at(0, true)),
            ("10:00", &DataType::Time32(TimeUnit::Second), Literal::Time(36_000_000_000_000)),
            ("-1.5s", &DataType::Duration(TimeUnit::Second), Literal::Duration(-1_500_000_000)),
            ("2d", &DataType::Duration(TimeUnit::Second), Literal::Duration(172_800_000_000_000)),
        ] {
            assert_eq!(literal(text, data_type).unwrap(), expected, "{text} as {data_type}");
        }
    }

    #[test]
    fn rejects_text_that_is_no_value_of_the_type() {
        let zone = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
        for (text, data_type, expected) in [
            ("yes", &DataType::Boolean, "true or false"),
            ("abc", &DataType::Binary, "hexadecimal"),
            ("é0", &DataType::Binary, "hexadecimal"),
            ("ten", &DataType::Int64, "a number"),
            ("2023-02-29", &DataType::Date32, "a date"),
            ("2023-13-01", &DataType::Date32, "a date"),
            ("2023-1", &DataType::Date64, "a date"),
            ("1970-01-01T00:00:00", &zone, "time zone"),
            ("24:00", &DataType::Time32(TimeUnit::Second), "a time"),
            ("10:00:00.0000000001", &DataType::Time64(TimeUnit::Nanosecond), "a time"),
            ("5", &DataType::Duration(TimeUnit::Second), "a unit"),
            ("0.0000000001s", &DataType::Duration(TimeUnit::Second), "a unit"),
            ("1", &DataType::Null, "cannot be compared"),
        ] {
            let error = literal(text, data_type).unwrap_err().message().to_string();
            assert!(error.contains(expected), "{text} as {data_type}: {error}");
        }
    }
}
