//! Ranges of rows.

use std::ops::Range;

/// The number of rows of ranges that do not overlap.
pub fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|rows| rows.end - rows.start).sum()
}

/// The rows `wanted` of the rows in ascending ranges, counted from the first of these rows.
pub fn part(ranges: &[Range<u64>], wanted: &Range<u64>) -> Vec<Range<u64>> {
    let mut before = 0;
    let mut part = Vec::new();
    for rows in ranges {
        let end = before + (rows.end - rows.start);
        let (from, to) = (wanted.start.max(before), wanted.end.min(end));
        if from < to {
            part.push(rows.start + (from - before)..rows.start + (to - before));
        }
        before = end;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_counts_only_the_rows_of_the_ranges() {
        let ranges = [5..10, 20..30];
        assert_eq!(count(&ranges), 15);
        assert_eq!(part(&ranges, &(0..3)), [5..8]);
        assert_eq!(part(&ranges, &(4..7)), [9..10, 20..22]);
        assert_eq!(part(&ranges, &(5..100)), [20..30]);
        assert_eq!(part(&ranges, &(15..16)), []);
    }
}
