//! Divides the rows of a file into batches.

use std::ops::Range;

use crossdock_plugin_api::Selection;

/// The part of the memory limit that a batch may use.
const LIMIT_PARTS: u64 = 4;

/// The batches that are not read yet. By default, a batch contains all rows of a range.
pub struct Batches {
    /// The ranges of rows that are left, in reverse order.
    ranges: Vec<Range<u64>>,
    row_bytes: u64,
    max_rows: u64,
}

impl Batches {
    /// The batches of the requested rows of a file with `n_rows` rows of `row_bytes` bytes.
    pub fn new(n_rows: u64, row_bytes: u64, selection: &Selection, memory_limit_bytes: u64) -> Self {
        let mut ranges = match &selection.rows {
            None => vec![0..n_rows],
            Some(ranges) => ranges.iter().map(|rows| rows.start.min(n_rows)..rows.end.min(n_rows)).collect(),
        };
        ranges.retain(|rows| !rows.is_empty());
        ranges.reverse();
        let mut max_rows = if selection.batch_rows > 0 { selection.batch_rows } else { u64::MAX };
        for limit in [selection.batch_bytes, memory_limit_bytes / LIMIT_PARTS] {
            max_rows = max_rows.min(rows_within(limit, row_bytes));
        }
        Self { ranges, row_bytes, max_rows }
    }

    /// The number of rows of all batches.
    pub fn n_rows(&self) -> u64 {
        self.ranges.iter().map(|rows| rows.end - rows.start).sum()
    }

    /// The rows of the next batch, of at most `budget_bytes` bytes; 0 for no limit.
    pub fn next(&mut self, budget_bytes: u64) -> Option<Range<u64>> {
        let rows = self.ranges.last_mut()?;
        let max_rows = self.max_rows.min(rows_within(budget_bytes, self.row_bytes));
        let batch = rows.start..rows.end.min(rows.start.saturating_add(max_rows));
        rows.start = batch.end;
        if rows.is_empty() {
            self.ranges.pop();
        }
        Some(batch)
    }
}

/// The number of rows within a limit in bytes, at least 1. A limit of 0 is none.
fn rows_within(limit_bytes: u64, row_bytes: u64) -> u64 {
    match limit_bytes {
        0 => u64::MAX,
        limit => limit.checked_div(row_bytes).unwrap_or(u64::MAX).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut batches: Batches, budget_bytes: u64) -> Vec<Range<u64>> {
        std::iter::from_fn(|| batches.next(budget_bytes)).collect()
    }

    #[test]
    fn table_is_one_batch_without_limits() {
        assert_eq!(all(Batches::new(1 << 40, 8, &Selection::default(), 0), 0), [0..1 << 40]);
        assert!(all(Batches::new(0, 8, &Selection::default(), 0), 0).is_empty());
        assert_eq!(all(Batches::new(7, 0, &Selection::default(), 1), 1), [0..7]);
    }

    #[test]
    fn smallest_limit_divides_the_rows() {
        let selection =
            |batch_rows, batch_bytes| Selection { batch_rows, batch_bytes, ..Selection::default() };
        assert_eq!(all(Batches::new(10, 8, &selection(4, 0), 0), 0), [0..4, 4..8, 8..10]);
        assert_eq!(all(Batches::new(10, 8, &selection(4, 47), 0), 0), [0..4, 4..8, 8..10]);
        assert_eq!(all(Batches::new(10, 8, &selection(0, 47), 0), 0), [0..5, 5..10]);
        assert_eq!(all(Batches::new(10, 8, &selection(0, 0), 200), 0), [0..6, 6..10]);
        assert_eq!(all(Batches::new(10, 8, &selection(0, 0), 0), 56), [0..7, 7..10]);
        assert_eq!(all(Batches::new(3, 8, &selection(0, 1), 0), 0), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn requested_rows_are_clipped_and_not_joined() {
        let rows = Some(vec![1..3, 5..9, 20..u64::MAX]);
        let batches = Batches::new(7, 8, &Selection { rows, ..Selection::default() }, 0);
        assert_eq!(batches.n_rows(), 4);
        assert_eq!(all(batches, 0), [1..3, 5..7]);
    }
}
