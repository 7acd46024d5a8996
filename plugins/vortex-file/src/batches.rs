//! Divides the rows of a file into batches.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_schema::{DataType, Schema};
use crossdock_plugin_api::Selection;

use crate::layout::Layout;

/// The number of rows of a batch if the caller has no preference. On a device, smaller batches
/// spend more time on the launches of kernels than on decoding.
const DEFAULT_ROWS: u64 = 1 << 20;
/// The part of the memory limit that a batch may use.
const LIMIT_PARTS: u64 = 16;
/// The assumed size of a value of variable length, in bytes.
const TEXT_BYTES: u64 = 32;

/// Returns the ranges of rows of the batches. `layouts` are the layouts of the needed columns.
pub fn divide(
    n_rows: u64,
    layouts: &[&Layout],
    schema: &Schema,
    selection: &Selection,
    memory_limit_bytes: u64,
) -> Vec<Range<u64>> {
    let needed = match &selection.rows {
        None => vec![0..n_rows],
        Some(ranges) => ranges.iter().map(|rows| rows.start.min(n_rows)..rows.end.min(n_rows)).collect(),
    };
    let max_rows = max_rows(schema, selection, memory_limit_bytes);
    let boundaries = boundaries(layouts);
    let mut batches = Vec::new();
    for rows in needed {
        let mut at = rows.start;
        while at < rows.end {
            let mut end = at.saturating_add(max_rows).min(rows.end);
            if end < rows.end {
                // A batch that ends with chunks needs no part of a chunk that the next batch needs
                // too.
                let least = at + max_rows.div_ceil(2);
                let last = boundaries.range(least..=end).max_by_key(|(row, n)| (**n, **row));
                end = last.map_or(end, |(row, _)| *row);
            }
            batches.push(at..end);
            at = end;
        }
    }
    batches
}

fn max_rows(schema: &Schema, selection: &Selection, memory_limit_bytes: u64) -> u64 {
    let row_bytes = schema.fields().iter().map(|field| value_bytes(field.data_type())).sum::<u64>().max(1);
    let mut max_rows = if selection.batch_rows > 0 { selection.batch_rows } else { DEFAULT_ROWS };
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
fn boundaries(layouts: &[&Layout]) -> BTreeMap<u64, usize> {
    let mut boundaries = BTreeMap::new();
    for layout in layouts {
        layout.for_each_boundary(0, &mut |row| *boundaries.entry(row).or_default() += 1);
    }
    boundaries
}
