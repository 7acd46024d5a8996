//! Ranges of rows.

use std::ops::Range;

/// The rows that both lists of ascending ranges contain.
pub fn intersection(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        let rows = first.start.max(second.start)..first.end.min(second.end);
        if !rows.is_empty() {
            both.push(rows);
        }
        if first.end <= second.end {
            a.next();
        } else {
            b.next();
        }
    }
    both
}

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
    fn intersection_contains_the_rows_of_both_lists() {
        assert_eq!(intersection(&[0..10, 20..30], &[5..25]), [5..10, 20..25]);
        assert_eq!(intersection(&[0..10], &[10..20]), []);
        assert_eq!(intersection(&[0..10, 12..14], &[0..3, 4..5, 9..20]), [0..3, 4..5, 9..10, 12..14]);
    }

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
