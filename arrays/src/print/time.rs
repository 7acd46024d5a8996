//! Formats dates, times and intervals, as in ISO 8601 where possible. Timestamps with a time zone
//! are formatted in UTC.

use arrow_schema::TimeUnit;

use crate::host::integer;

const SECONDS_PER_DAY: i128 = 86_400;

/// The number of ticks per second of a unit, and the number of decimal digits of a tick.
fn ticks_per_second(unit: TimeUnit) -> (i128, usize) {
    match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
    }
}

/// Formats days since 1970-01-01.
pub(super) fn date(days: i128) -> String {
    // This calculation uses years that begin in March, so that the leap day is the last day of a
    // year. 400 such years are one era of 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
}

/// Formats ticks since midnight.
pub(super) fn time_of_day(ticks: i128, unit: TimeUnit) -> String {
    let (second, digits) = ticks_per_second(unit);
    let (seconds, fraction) = (ticks.div_euclid(second), ticks.rem_euclid(second));
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if digits == 0 { clock } else { format!("{clock}.{fraction:0digits$}") }
}

/// Formats ticks since 1970-01-01T00:00:00.
pub(super) fn timestamp(ticks: i128, unit: TimeUnit, suffix: &str) -> String {
    let day = SECONDS_PER_DAY * ticks_per_second(unit).0;
    format!("{}T{}{suffix}", date(ticks.div_euclid(day)), time_of_day(ticks.rem_euclid(day), unit))
}

/// Formats an interval. The size determines the units: months (4 bytes), days and milliseconds (8
/// bytes), or months, days and nanoseconds (16 bytes).
pub(super) fn interval(bytes: &[u8]) -> String {
    let int32 = |i| integer(bytes, i, 4, true).unwrap_or(0);
    match bytes.len() {
        4 => format!("{} months", int32(0)),
        8 => format!("{} days {} ms", int32(0), int32(1)),
        _ => {
            let nanos = integer(bytes, 1, 8, true).unwrap_or(0);
            format!("{} months {} days {nanos} ns", int32(0), int32(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_leap_days_and_dates_before_the_epoch() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(-719_528), "0000-01-01");
    }

    #[test]
    fn formats_times_with_the_digits_of_their_unit() {
        assert_eq!(time_of_day(3_661_002, TimeUnit::Millisecond), "01:01:01.002");
        assert_eq!(timestamp(-1, TimeUnit::Nanosecond, "Z"), "1969-12-31T23:59:59.999999999Z");
    }
}
