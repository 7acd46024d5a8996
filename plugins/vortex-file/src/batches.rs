//! Divides the rows of a file into batches.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_schema::{DataType, Schema};
use crossdock_plugin_api::Selection;

use crate::layout::Layout;

/// The minimum number of rows of a batch if the caller has no preference.
const DEFAULT_ROWS: u64 = 1 << 20;
/// The maximum number of rows of a batch on a device if the caller has no preference.
const MAX_DEVICE_ROWS: u64 = 32 << 20;
/// The part of a device's memory that a batch may use. Smaller batches spend more time on calls of
/// the driver than on decoding: all chunks of a column are decoded at the same time.
const DEVICE_PARTS: u64 = 32;
/// The maximum size of a batch on a device if the caller has no preference.
const MAX_DEVICE_BYTES: u64 = 4 << 30;
/// The part of the memory limit that a batch may use.
const LIMIT_PARTS: u64 = 16;
/// The assumed size of a value of variable length, in bytes.
const TEXT_BYTES: u64 = 32;

/// Returns the ranges of rows of the batches. `needed` are the needed rows, `layouts` are the
/// layouts of the needed columns, and `device_bytes` is the memory of the device; `None` for the
/// CPU.
pub fn divide(
    needed: &[Range<u64>],
    layouts: &[&Layout],
    schema: &Schema,
    selection: &Selection,
    (device_bytes, memory_limit_bytes): (Option<u64>, u64),
) -> Vec<Range<u64>> {
    cut(needed, max_rows(schema, selection, device_bytes, memory_limit_bytes), &boundaries(layouts))
}

/// Divides ranges of rows into parts of at most `max_rows` rows, at boundaries if possible.
pub fn cut(needed: &[Range<u64>], max_rows: u64, boundaries: &BTreeMap<u64, usize>) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    for rows in needed {
        let mut at = rows.start;
        while at < rows.end {
            let mut end = at.saturating_add(max_rows).min(rows.end);
            if end < rows.end {
                // A part that ends with chunks needs no part of a chunk that the next one needs
                // too.
                let least = at + max_rows.div_ceil(2);
                let last = boundaries.range(least..=end).max_by_key(|(row, n)| (**n, **row));
                end = last.map_or(end, |(row, _)| *row);
            }
            parts.push(at..end);
            at = end;
        }
    }
    parts
}

fn max_rows(
    schema: &Schema,
    selection: &Selection,
    device_bytes: Option<u64>,
    memory_limit_bytes: u64,
) -> u64 {
    let row_bytes = schema.fields().iter().map(|field| value_bytes(field.data_type())).sum::<u64>().max(1);
    let mut max_rows = match (selection.batch_rows, device_bytes) {
        (0, None) => DEFAULT_ROWS,
        (0, Some(bytes)) => {
            let bytes = (bytes / DEVICE_PARTS).min(MAX_DEVICE_BYTES);
            (bytes / row_bytes).clamp(DEFAULT_ROWS, MAX_DEVICE_ROWS)
        }
        (rows, _) => rows,
    };
    let limits = [selection.batch_bytes, memory_limit_bytes / LIMIT_PARTS];
    for limit in limits.into_iter().filter(|limit| *limit > 0) {
        max_rows = max_rows.min(limit / row_bytes);
    }
    max_rows.max(1)
}

fn value_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| value_bytes(field.data_type())).sum(),
        DataType::FixedSizeList(field, n) => {
            u64::try_from(*n).unwrap_or(0).saturating_mul(value_bytes(field.data_type()))
        }
        other => other.primitive_width().map_or(TEXT_BYTES, |bytes| bytes as u64),
    }
}

/// The rows where chunks begin, each with the number of columns.
pub fn boundaries(layouts: &[&Layout]) -> BTreeMap<u64, usize> {
    let mut boundaries = BTreeMap::new();
    for layout in layouts {
        layout.for_each_boundary(0, &mut |row| *boundaries.entry(row).or_default() += 1);
    }
    boundaries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_the_boundary_of_most_columns() {
        let boundaries = BTreeMap::from([(30, 1), (60, 3), (90, 2), (100, 1), (150, 1)]);
        assert_eq!(cut(&[0..200], 100, &boundaries), [0..60, 60..150, 150..200]);
        assert_eq!(cut(&[0..200], 1000, &boundaries), [0..200]);
        assert_eq!(cut(&[0..10, 20..45], 10, &BTreeMap::new()), [0..10, 20..30, 30..40, 40..45]);
        assert_eq!(cut(&[0..3], 1, &boundaries), [0..1, 1..2, 2..3]);
        assert_eq!(cut(&[], 10, &boundaries), []);
    }
}
