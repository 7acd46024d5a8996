//! Plans the concatenation of list-views, dense unions and run-end encoded arrays, whose rows may
//! refer to any row of a child. The children are concatenated unchanged, and the references are
//! adjusted.

use std::ops::Range;

use crossdock_memory::{Buffer, Error, Result, Stream};

use super::plan::{Node, Plan, Rebase, check_reach, is_ordered};
use super::too_long;
use crate::DeviceArray;
use crate::layout::{BufferKind, Children};
use crate::numbers::{self, Numbers};

/// A range of run ends: `n` integers of `width` bytes, which begin at byte `at` of a buffer. The
/// last run may end beyond the end of its array.
pub(super) struct Ends {
    pub from: Buffer,
    pub at: usize,
    pub n: usize,
    pub width: usize,
    pub to: usize,
    /// The number to add to each run end except the last one.
    pub add: i64,
    /// The value that replaces the last run end.
    pub last: i64,
}

/// Rows of a dense union: the positions of their type ids and offsets in the allocation, the number
/// of rows, and for each type id the total length of its child in the preceding chunks.
pub(super) struct Dense {
    pub ids: usize,
    pub offsets: usize,
    pub n: usize,
    pub before: Vec<(i8, i32)>,
}

/// The number of values of `child` to copy.
pub(super) fn child_len(chunk: &DeviceArray, child: &DeviceArray) -> usize {
    if chunk.is_empty() { 0 } else { child.len() }
}

impl Plan {
    /// Plans to adjust the offsets of list-views. The offsets are at byte `to` of the allocation.
    pub(super) fn count_views(&mut self, chunks: &[DeviceArray], to: usize, width: usize) -> Result<()> {
        let (mut rows, mut before) = (0, 0usize);
        for chunk in chunks {
            if before > 0 && !chunk.is_empty() {
                let base = -i64::try_from(before).map_err(|_| too_long())?;
                self.rebases.push(Rebase { to: to + rows * width, n: chunk.len(), width, base });
            }
            rows += chunk.len();
            let more = chunk.children().first().map_or(0, |child| child_len(chunk, child));
            before = before.checked_add(more).ok_or_else(too_long)?;
        }
        check_reach(before, width, "offsets")
    }

    /// Plans to adjust the offsets of dense unions. The offsets are at byte `offsets` of the
    /// allocation, and the type ids are at byte `ids`.
    pub(super) fn count_dense(&mut self, chunks: &[DeviceArray], ids: usize, offsets: usize) -> Result<()> {
        const WIDTH: usize = 4;
        let Some(first) = chunks.first() else { return Ok(()) };
        let Children::Union(fields) = first.layout().children else { return Ok(()) };
        let mut before = vec![0usize; fields.len()];
        let mut rows = 0;
        for chunk in chunks {
            if rows > 0 && !chunk.is_empty() {
                // `check_reach` has rejected sums that do not fit into `i32`.
                let before = fields.iter().zip(&before).map(|((id, _), n)| (id, *n as i32)).collect();
                let (ids, offsets) = (ids + rows, offsets + rows * WIDTH);
                self.unions.push(Dense { ids, offsets, n: chunk.len(), before });
            }
            rows += chunk.len();
            for (before, child) in before.iter_mut().zip(chunk.children()) {
                *before = before.checked_add(child_len(chunk, child)).ok_or_else(too_long)?;
                check_reach(*before, WIDTH, "offsets")?;
            }
        }
        Ok(())
    }

    /// Plans the two children of run-end encoded arrays, run ends and values. The arrays have `len`
    /// rows in total.
    pub(super) fn runs(&mut self, chunks: &[DeviceArray], len: usize, stream: &Stream) -> Result<Vec<Node>> {
        let Some([ends, values]) = chunks.first().map(DeviceArray::children) else {
            return Err(Error::internal("a run-end encoded array does not have two children"));
        };
        let width = width_of(ends);
        check_reach(len, width, "run ends")?;
        let non_empty = chunks.iter().filter(|chunk| !chunk.is_empty());
        let run_ranges =
            non_empty.map(|chunk| Ok((chunk, runs_of(chunk, stream)?))).collect::<Result<Vec<_>>>()?;
        let n: usize = run_ranges.iter().map(|(_, runs)| runs.len()).sum();
        let bytes = n.checked_mul(width).ok_or_else(too_long)?;
        let ends_range = (self.reserve(bytes)?, bytes);
        let (mut to, mut rows) = (ends_range.0, 0i64);
        let mut parts = Vec::with_capacity(run_ranges.len());
        for (chunk, runs) in run_ranges {
            let [ends, values] = chunk.children() else { continue };
            let from = numbers_of(ends)?;
            let (at, n) = ((ends.offset() + runs.start) * width, runs.len());
            // Rejects a buffer that is shorter than its array requires.
            from.slice(at, n * width)?;
            let (add, last) = (rows - chunk.offset() as i64, rows + chunk.len() as i64);
            self.ends.push(Ends { from: from.clone(), at, n, width, to, add, last });
            parts.push(values.slice(runs.start, n)?);
            (to, rows) = (to + n * width, last);
        }
        if parts.is_empty() {
            parts.push(values.slice(0, 0)?);
        }
        let field = chunks.first().and_then(|chunk| chunk.layout().children.get(1));
        let ordered = field.is_some_and(|field| is_ordered(field));
        let ends = Node {
            data_type: ends.data_type().clone(),
            len: n,
            null_count: Some(0),
            buffers: vec![None, (bytes > 0).then_some(ends_range)],
            shared: Vec::new(),
            children: Vec::new(),
            dictionary: None,
        };
        Ok(vec![ends, self.node(&parts, ordered, stream)?])
    }
}

fn width_of(ends: &DeviceArray) -> usize {
    ends.layout().kind(1).and_then(BufferKind::width).unwrap_or(8)
}

fn numbers_of(ends: &DeviceArray) -> Result<&Buffer> {
    let buffer = ends.buffers().get(1).and_then(Option::as_ref);
    buffer.ok_or_else(|| Error::bad_data("the run ends of an array are missing"))
}

/// Finds the range of runs that contain an array's rows. On a device, the search needs a separate
/// copy for each run end that it reads.
fn runs_of(chunk: &DeviceArray, stream: &Stream) -> Result<Range<usize>> {
    let Some(ends) = chunk.children().first() else { return Err(Error::internal("runs without ends")) };
    let (source, width, n) = (numbers_of(ends)?, width_of(ends), ends.len());
    let end_of = |run: usize| -> Result<i64> {
        let at = (ends.offset() + run) * width;
        let read = numbers::read(&[Numbers { source, at, n: 1, width }], stream)?;
        Ok(read.first().copied().unwrap_or_default())
    };
    // Returns the index of the first run that ends after `row`. The search begins at run `low`.
    let run_of = |row: i64, mut low: usize| -> Result<usize> {
        let mut high = n;
        while low < high {
            let middle = low + (high - low) / 2;
            if end_of(middle)? <= row { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    };
    let (begin, end) = (chunk.offset() as i64, (chunk.offset() + chunk.len()) as i64);
    let first = if begin == 0 { 0 } else { run_of(begin, 0)? };
    let final_run = n.saturating_sub(1);
    let reach = end_of(final_run)?;
    let last = if reach == end { final_run } else { run_of(end - 1, first)? };
    if first > last || last >= n {
        return Err(Error::bad_data(format!(
            "the last run end is {reach}, expected ascending run ends that reach {end} or more"
        )));
    }
    Ok(first..last + 1)
}
