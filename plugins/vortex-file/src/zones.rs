//! Finds the rows that can fulfil predicates, from the statistics of zones.

use std::ops::Range;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::filter::{Comparison, Operator, Predicate as Filter, filter};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_memory::{Device, Memory, Result, Stream};
use crossdock_plugin_api::{Error, Predicate};

use crate::zone_stats::{Stat, ZoneTable};

/// A condition that a statistic of a zone fulfils if the zone has rows that fulfil a predicate.
struct Condition {
    column: usize,
    comparison: Comparison,
}

/// The conditions of a predicate on the statistics of zones. `None` if the statistics do not
/// restrict the rows.
fn conditions(table: &ZoneTable, data_type: &DataType, predicate: &Predicate) -> Option<Vec<Condition>> {
    let comparison = Comparison::from_predicate(data_type, predicate)?;
    let Comparison::With(operator, constant) = comparison else { return None };
    let max = || table.columns.iter().position(|stat| matches!(stat, Stat::Max | Stat::BoundedMax));
    let min = || table.columns.iter().position(|stat| *stat == Stat::Min);
    let condition = |column, operator| {
        Some(Condition { column: column?, comparison: Comparison::With(operator, constant.clone()) })
    };
    let conditions = match operator {
        Operator::Less | Operator::LessEqual => vec![condition(min(), operator)],
        Operator::Greater | Operator::GreaterEqual => vec![condition(max(), operator)],
        Operator::Equal => {
            vec![condition(min(), Operator::LessEqual), condition(max(), Operator::GreaterEqual)]
        }
        // NaN differs from each value, but is no minimum and no maximum.
        Operator::NotEqual => return None,
    };
    let conditions: Vec<_> = conditions.into_iter().flatten().collect();
    (!conditions.is_empty()).then_some(conditions)
}

/// The zones of a column that can have rows that fulfil the predicates, as one flag for each zone.
/// `zones` is the decoded table in host memory. `None` if it restricts nothing.
pub fn matching(
    table: &ZoneTable,
    zones: &DeviceArray,
    n_rows: u64,
    data_type: &DataType,
    predicates: &[&Predicate],
    stream: &Stream,
) -> Result<Option<Vec<bool>>> {
    let all: Vec<_> =
        predicates.iter().filter_map(|predicate| conditions(table, data_type, predicate)).flatten().collect();
    if all.is_empty() {
        return Ok(None);
    }
    let mut matching = vec![true; zones.len()];
    for Condition { column, comparison } in all {
        let missing = || Error::internal(format!("the table of zones has no column {column}"));
        let mut stat =
            zones.children().get(column).ok_or_else(missing)?.slice(zones.offset(), zones.len())?;
        let mut unknown = nulls(&stat, stream)?;
        if table.columns.get(column) == Some(&Stat::BoundedMax) {
            stat = stat.children().first().ok_or_else(missing)?.slice(stat.offset(), stat.len())?;
            unknown.iter_mut().zip(nulls(&stat, stream)?).for_each(|(flag, is_null)| *flag |= is_null);
        }
        // A zone whose statistic is unknown may have any rows.
        let mut fulfils = unknown;
        for row in fulfilling(stat, comparison, stream)? {
            if let Some(flag) = fulfils.get_mut(row) {
                *flag = true;
            }
        }
        matching.iter_mut().zip(fulfils).for_each(|(flag, fulfils)| *flag &= fulfils);
    }
    if let Some(column) = table.columns.iter().position(|stat| *stat == Stat::NullCount)
        && let Some(counts) = zones.children().get(column)
    {
        let counts = counts.slice(zones.offset(), zones.len())?;
        let is_null = nulls(&counts, stream)?;
        let zone_rows = rows_of_zones(table.zone_rows, n_rows);
        for (((flag, count), is_null), rows) in
            matching.iter_mut().zip(numbers(&counts, stream)?).zip(is_null).zip(zone_rows)
        {
            // No predicate holds for a null.
            *flag &= is_null || count < rows.end - rows.start;
        }
    }
    Ok(Some(matching))
}

/// The rows of a zone of each flag that is set.
pub fn rows_of(matching: &[bool], zone_rows: u64, n_rows: u64) -> Vec<Range<u64>> {
    let zones = rows_of_zones(zone_rows, n_rows).zip(matching).filter(|(_, matching)| **matching);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (rows, _) in zones {
        match ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => ranges.push(rows),
        }
    }
    ranges
}

fn rows_of_zones(zone_rows: u64, n_rows: u64) -> impl Iterator<Item = Range<u64>> {
    (0..n_rows.div_ceil(zone_rows.max(1))).map(move |i| {
        let begin = i.saturating_mul(zone_rows);
        begin..begin.saturating_add(zone_rows).min(n_rows)
    })
}

/// Whether each value of an array in host memory is null.
fn nulls(array: &DeviceArray, stream: &Stream) -> Result<Vec<bool>> {
    let Some((bits, first)) = array.validity_bits() else { return Ok(vec![false; array.len()]) };
    let view = bits.host_view(stream)?;
    let is_valid = |i: usize| view.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1);
    Ok((first..first + array.len()).map(|i| !is_valid(i)).collect())
}

/// The values of an array of `UInt64` in host memory. The value of a null is not defined.
fn numbers(array: &DeviceArray, stream: &Stream) -> Result<Vec<u64>> {
    let Some(buffer) = array.buffers().get(1).and_then(Option::as_ref) else { return Ok(Vec::new()) };
    let view = buffer.host_view_of(8 * array.offset(), 8 * array.len(), stream)?;
    Ok(view.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect())
}

/// The indices of the values that fulfil a comparison.
fn fulfilling(values: DeviceArray, comparison: Comparison, stream: &Stream) -> Result<Vec<usize>> {
    let len = values.len();
    let positions: Vec<u8> = (0..len as u64).flat_map(u64::to_ne_bytes).collect();
    let memory: &Memory = stream.memory();
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(&positions);
        Ok(())
    };
    let positions =
        memory.alloc_with(&memory.default_stream(Device::CPU)?, positions.len(), fill)?.freeze_now();
    let positions =
        DeviceArray::try_new(DataType::UInt64, len, 0, Some(0), vec![None, Some(positions)], vec![], None)?;
    let fields = vec![
        Field::new("zone", DataType::UInt64, false),
        Field::new("statistic", values.data_type().clone(), true),
    ];
    let schema: SchemaRef = Schema::new(fields).into();
    let batch = DeviceBatch::try_new(schema, len, vec![positions, values])?;
    let Some(selected) = filter(&batch, &[Filter { path: vec![1], comparison }], stream)? else {
        return Ok(Vec::new());
    };
    let zones = selected.column(0).ok_or_else(|| Error::internal("a filtered batch has no column"))?;
    Ok(numbers(zones, stream)?.into_iter().map(|zone| zone as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_adjacent_zones_are_one_range() {
        assert_eq!(rows_of(&[true, true, false, true], 10, 35), [0..20, 30..35]);
        assert_eq!(rows_of(&[false; 4], 10, 35), []);
        assert_eq!(rows_of(&[true], 10, 0), []);
    }
}
