//! Computes with ascending ranges of rows.

use std::ops::Range;

/// The parts of `ranges` within `window`, as positions in `window`.
pub(crate) fn within(ranges: &[Range<u64>], window: Range<u64>) -> Vec<Range<u64>> {
    let first = ranges.partition_point(|range| range.end <= window.start);
    let cut = |range: &Range<u64>| {
        range.start.max(window.start) - window.start..range.end.min(window.end) - window.start
    };
    let ranges = ranges.iter().skip(first).take_while(|range| range.start < window.end);
    ranges.map(cut).filter(|range| !range.is_empty()).collect()
}

/// The rows at the positions `inner` of the selection `outer`. `None` selects all rows.
pub(crate) fn compose(
    outer: Option<&[Range<u64>]>,
    inner: Option<Vec<Range<u64>>>,
) -> Option<Vec<Range<u64>>> {
    let (Some(outer), Some(inner)) = (outer, &inner) else { return inner.or(outer.map(<[_]>::to_vec)) };
    let mut begin = 0;
    let mut rows = Vec::new();
    for range in outer {
        let end = begin + (range.end - range.start);
        let parts = within(inner, begin..end).into_iter();
        rows.extend(parts.map(|part| range.start + part.start..range.start + part.end));
        begin = end;
    }
    Some(rows)
}

/// The number of rows.
pub(crate) fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_cuts_and_moves_ranges() {
        let ranges = [2..5, 7..20, 30..u64::MAX];
        assert_eq!(within(&ranges, 0..2), []);
        assert_eq!(within(&ranges, 3..8), [0..2, 4..5]);
        assert_eq!(within(&ranges, 25..40), [5..15]);
        assert_eq!(within(&ranges, 10..u64::MAX), [0..10, 20..u64::MAX - 10]);
        assert_eq!(within(&ranges, 4..4), []);
    }

    #[test]
    fn composed_rows_are_positions_in_the_outer_rows() {
        let outer = [10..15, 20..30];
        assert_eq!(compose(Some(&outer), None), Some(outer.to_vec()));
        assert_eq!(compose(None, Some(vec![1..3])), Some(vec![1..3]));
        assert_eq!(compose(None, None), None);
        assert_eq!(
            compose(Some(&outer), Some(vec![0..1, 4..7, 14..u64::MAX])),
            Some(vec![10..11, 14..15, 20..22, 29..30])
        );
        assert_eq!(compose(Some(&outer), Some(Vec::new())), Some(Vec::new()));
    }
}
