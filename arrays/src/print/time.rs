//! Dates, times and intervals, in ISO 8601 where that has a form. Zones are not looked up: a time with one prints in UTC.

use arrow_schema::TimeUnit;

use crate::host::integer;

const SECONDS_A_DAY: i128 = 86_400;

fn a_second(unit: TimeUnit) -> (i128, usize) {
    match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
    }
}

/// Days since 1970-01-01.
pub(super) fn date(days: i128) -> String {
    // Years that begin in March have their leap day at the end; 400 of them are one era of 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
}

/// Since midnight.
pub(super) fn time_of_day(ticks: i128, unit: TimeUnit) -> String {
    let (second, digits) = a_second(unit);
    let (seconds, fraction) = (ticks.div_euclid(second), ticks.rem_euclid(second));
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if digits == 0 { clock } else { format!("{clock}.{fraction:0digits$}") }
}

/// Since 1970-01-01T00:00:00.
pub(super) fn timestamp(ticks: i128, unit: TimeUnit, suffix: &str) -> String {
    let day = SECONDS_A_DAY * a_second(unit).0;
    format!("{}T{}{suffix}", date(ticks.div_euclid(day)), time_of_day(ticks.rem_euclid(day), unit))
}

/// 4 bytes: months; 8: days and milliseconds; 16: months, days and nanoseconds.
pub(super) fn interval(bytes: &[u8]) -> String {
    let small = |i| integer(bytes, i, 4, true).unwrap_or(0);
    match bytes.len() {
        4 => format!("{} months", small(0)),
        8 => format!("{} days {} ms", small(0), small(1)),
        _ => {
            let nanos = integer(bytes, 1, 8, true).unwrap_or(0);
            format!("{} months {} days {nanos} ns", small(0), small(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_print_around_leap_days_and_before_the_epoch() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(-719_528), "0000-01-01");
    }

    #[test]
    fn times_print_with_the_digits_of_their_unit() {
        assert_eq!(time_of_day(3_661_002, TimeUnit::Millisecond), "01:01:01.002");
        assert_eq!(timestamp(-1, TimeUnit::Nanosecond, "Z"), "1969-12-31T23:59:59.999999999Z");
    }
}
