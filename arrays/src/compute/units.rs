//! Units of times, as powers of ten and days.

use arrow_schema::{DataType, TimeUnit};
use crossdock_kernels::Rescale;

const DAY: i64 = 86_400;

/// The number of ticks of a unit in a second.
fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// What the numbers of a temporal type count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Time since 1970-01-01, in UTC if the flag is set, else without a time zone.
    Instant {
        has_zone: bool,
    },
    /// Whole days since 1970-01-01, counted in days or milliseconds.
    Day,
    TimeOfDay,
    Duration,
}

/// The kind of a temporal type and its ticks per day.
fn ticks(data_type: &DataType) -> Option<(Kind, i64)> {
    let of = |kind, unit: &TimeUnit| Some((kind, DAY * per_second(*unit)));
    match data_type {
        DataType::Timestamp(unit, zone) => of(Kind::Instant { has_zone: zone.is_some() }, unit),
        DataType::Date32 => Some((Kind::Day, 1)),
        DataType::Date64 => of(Kind::Day, &TimeUnit::Millisecond),
        DataType::Time32(unit) | DataType::Time64(unit) => of(Kind::TimeOfDay, unit),
        DataType::Duration(unit) => of(Kind::Duration, unit),
        _ => None,
    }
}

/// The signed integer type with the same bytes as a temporal type; `None` for other types.
pub(super) fn stored_as(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Date32 | DataType::Time32(_) => Some(DataType::Int32),
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
            Some(DataType::Int64)
        }
        _ => None,
    }
}

/// The conversions from one temporal type to another, in order; `None` if there is none.
pub(super) fn conversion(from: &DataType, to: &DataType) -> Option<Vec<(i64, Rescale)>> {
    let ((from_kind, from_ticks), (to_kind, to_ticks)) = (ticks(from)?, ticks(to)?);
    let fits = match (from_kind, to_kind) {
        // A timestamp with a time zone is stored in UTC, and one without a zone in an unknown zone.
        (Kind::Instant { has_zone: a }, Kind::Instant { has_zone: b }) => a == b,
        (Kind::Instant { has_zone: false }, Kind::Day) | (Kind::Day, Kind::Instant { has_zone: false }) => {
            true
        }
        (a, b) => a == b,
    };
    if !fits {
        return None;
    }
    // A day is the whole day, so the time of a timestamp is no loss.
    if to_kind == Kind::Day && from_kind != Kind::Day {
        return Some(vec![(from_ticks, Rescale::Floor), (to_ticks, Rescale::Multiply)]);
    }
    Some(match to_ticks >= from_ticks {
        true => vec![(to_ticks / from_ticks, Rescale::Multiply)],
        false => vec![(from_ticks / to_ticks, Rescale::Divide)],
    })
}
