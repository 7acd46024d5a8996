//! Limits programs to rows of their nodes.

use std::ops::Range;

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::numbers;
use crossdock_memory::{Buffer, Stream};
use crossdock_plugin_api::{EncodedNode, Operator, Result};

use super::program::{BLOCK, Program, ROW};

impl Program {
    /// Changes a program of a node's values to a program of the values `rows`. The children that
    /// have a value for each value of the node then have only these rows too.
    pub fn limit_to(&mut self, rows: &Range<u64>) {
        let start = rows.start;
        match &mut self.source {
            // The checks of the program have computed the end of the values without overflow.
            Operator::Load { at, .. } => *at = at.saturating_add(start.saturating_mul(self.width as u64)),
            Operator::Unpack { first, .. } | Operator::Runs { first, .. } => {
                *first = first.saturating_add(start)
            }
            Operator::Sequence { base, step } => *base = base.wrapping_add(start.wrapping_mul(*step)),
            _ => {}
        }
        for operator in &mut self.then {
            if let Operator::Patch { first, .. } | Operator::PatchLeft { first, .. } = operator {
                *first = first.wrapping_add(start);
            }
        }
    }

    /// For each descendant of the node, in pre-order: the rows that the program needs of it to
    /// compute the values `rows`.
    pub fn rows_below(&self, node: EncodedNode<'_>, rows: &Range<u64>) -> Vec<Range<u64>> {
        let mut by_row: Vec<usize> = Vec::new();
        for operator in std::iter::once(&self.source).chain(&self.then) {
            match *operator {
                Operator::Child(child)
                | Operator::Cast(child)
                | Operator::Validity(child)
                | Operator::Term { child, .. }
                | Operator::Dictionary { codes: child, .. } => by_row.push(child as usize),
                Operator::Join { codes, rights, .. } => by_row.extend([codes, rights].map(usize::from)),
                _ => {}
            }
        }
        let below = (node.index() + 1..node.end()).filter_map(|at| node.at(at).ok());
        let mut all: Vec<_> = below.map(|below| 0..below.length()).collect();
        for (_, child) in node.children().enumerate().filter(|(i, _)| by_row.contains(i)) {
            if let Some(place) = all.get_mut(child.index() - node.index() - 1) {
                *place = rows.clone();
            }
        }
        all
    }
}

/// Packed integers that begin at value `first` of a buffer: the buffer from the block of this value
/// on, and the position of the value in the block.
pub(super) fn packed_from(buffer: Buffer, bits: u64, first: u64) -> Result<(Buffer, usize)> {
    let (block, first) = (first / BLOCK, (first % BLOCK) as usize);
    if block == 0 {
        return Ok((buffer, first));
    }
    let begin = (block.saturating_mul(ROW * bits)) as usize;
    let rest = buffer.len().unwrap_or(0).saturating_sub(begin);
    Ok((buffer.slice(begin, rest)?, first))
}

/// The positions of the patches whose indices lie in the `len` values from `first` on, if the
/// indices are ascending. The host reads the indices, which are much fewer than the values.
pub(super) fn patches_within(
    indices: &DeviceArray,
    first: u64,
    len: usize,
    stream: &Stream,
) -> Result<Range<usize>> {
    let Some(numbers) = numbers(indices) else { return Ok(0..0) };
    let (width, n) = (numbers.width_bytes, numbers.len);
    let view = numbers.buffer.host_view_of(numbers.at, n.saturating_mul(width), stream)?;
    let index = |i: usize| {
        let mut bytes = [0; 8];
        let from = view.get(i * width..(i + 1) * width).unwrap_or_default();
        bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(bytes)
    };
    // The first position whose index is at least `bound`.
    let position = |bound: u64| {
        let (mut low, mut high) = (0, n);
        while low < high {
            let middle = low + (high - low) / 2;
            if index(middle) < bound { low = middle + 1 } else { high = middle }
        }
        low
    };
    let begin = position(first);
    Ok(begin..position(first.saturating_add(len as u64)).max(begin))
}
