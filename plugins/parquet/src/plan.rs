//! Divides the needed rows into parts that are decoded independently, and into batches.

use std::ops::Range;

use crossdock_plugin_api::{Device, Result, Selection, intersection};

use crate::columns::Column;
use crate::footer::Footer;
use crate::lane::{Part, copies_values, value_bytes};
use crate::pages::row_bytes;
use crate::rows::{count, part};

/// The number of rows of a batch on the CPU if the caller has no preference. The memory of larger
/// batches is returned to the operating system each time, and must be mapped again.
const CPU_ROWS: u64 = 1 << 18;
/// The number of rows of a batch on another device if the caller has no preference.
const DEVICE_ROWS: u64 = 1 << 20;
/// The size of a batch if neither the caller nor the memory limit restrict it, in bytes.
const DEFAULT_BYTES: u64 = 256 << 20;
/// The part of the memory limit that a batch may use.
pub const BATCH_PARTS: u64 = 16;
/// The least number of rows of a part. Each part decodes the dictionaries again.
const MIN_PART_ROWS: u64 = 1 << 16;

/// The rows of a row group that are needed, and the estimated size of a row.
pub struct Group {
    pub index: usize,
    /// The rows, as ascending ranges of positions in the row group.
    pub rows: Vec<Range<u64>>,
    /// The estimated size of a decoded row in bytes.
    pub row_bytes: f64,
}

/// The row groups of `needed`, which are ascending ranges of positions in the file.
pub fn groups(
    footer: &Footer,
    needed: &[Range<u64>],
    columns: &[std::sync::Arc<Column>],
) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for index in 0..footer.metadata.num_row_groups() {
        let all = footer.rows_of(index);
        let rows = intersection(needed, std::slice::from_ref(&all));
        if rows.is_empty() {
            continue;
        }
        let rows = rows.into_iter().map(|rows| rows.start - all.start..rows.end - all.start).collect();
        let group = footer.row_group(index)?;
        let mut bytes = 0.0;
        for column in columns {
            for chunk in column.leaves.iter().filter_map(|leaf| group.columns().get(*leaf)) {
                let width = value_bytes(chunk.column_type(), chunk.column_descr().type_length());
                let has_texts = matches!(chunk.column_type(), parquet::basic::Type::BYTE_ARRAY)
                    && copies_values(column.field.data_type());
                bytes += row_bytes(chunk, width, has_texts, all.end - all.start);
            }
        }
        groups.push(Group { index, rows, row_bytes: bytes });
    }
    Ok(groups)
}

/// The number of rows of a batch whose rows have `row_bytes` bytes.
pub fn batch_rows(selection: &Selection, device: Device, memory_limit_bytes: u64, row_bytes: f64) -> usize {
    let mut rows = match selection.batch_rows {
        0 if device == Device::CPU => CPU_ROWS,
        0 => DEVICE_ROWS,
        rows => rows,
    };
    let limits = [selection.batch_bytes, memory_limit_bytes / BATCH_PARTS, DEFAULT_BYTES];
    for limit in limits.into_iter().filter(|limit| *limit > 0) {
        rows = rows.min((limit as f64 / row_bytes.max(1.0 / 8.0)) as u64);
    }
    usize::try_from(rows).unwrap_or(usize::MAX).max(1)
}

/// Divides the rows of a row group so that all threads have work, if it has few columns. With
/// `uses_device`, a device decodes columns for which it has a kernel, but only whole row groups.
pub fn parts(
    footer: &Footer,
    group: &Group,
    step: usize,
    columns: &[std::sync::Arc<Column>],
    n_threads: usize,
    uses_device: bool,
) -> Vec<Part> {
    let n_rows = count(&group.rows);
    let all = footer.rows_of(group.index);
    let whole =
        Part { group: group.index, rows: group.rows.clone(), n_group_rows: all.end - all.start, step };
    // A reader that skips rows of lists decodes them, unless it knows the rows of each page.
    let is_divisible = columns.iter().all(|column| !column.is_repeated);
    let is_on_device =
        uses_device && whole.is_whole() && columns.iter().any(|column| column.on_device.is_some());
    let all_have_work = columns.is_empty() || columns.len() >= n_threads;
    if n_threads < 2 || all_have_work || is_on_device || !is_divisible {
        return vec![whole];
    }
    let wanted = (2 * n_threads).div_ceil(columns.len()) as u64;
    let rows = n_rows.div_ceil(wanted).max(MIN_PART_ROWS).next_multiple_of(step.max(1) as u64);
    let begins = (0..n_rows).step_by(usize::try_from(rows).unwrap_or(usize::MAX));
    begins
        .map(|begin| Part { rows: part(&group.rows, &(begin..(begin + rows).min(n_rows))), ..whole.clone() })
        .collect()
}
