//! Keeps the blocks that small reads got, so that neighbouring small reads need no request.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The size of a block, which is also the greatest size of a small read.
pub const BLOCK_BYTES: u64 = 128 << 10;

/// The number of blocks that are kept.
const MAX_BLOCKS: usize = 16;

/// The blocks that were used last.
#[derive(Default)]
pub struct Blocks(Mutex<VecDeque<(u64, Bytes)>>);

/// The numbers of the first and the last block of a range that is not empty.
pub fn of_range(offset: u64, bytes: u64) -> (u64, u64) {
    (offset / BLOCK_BYTES, offset.saturating_add(bytes.saturating_sub(1)) / BLOCK_BYTES)
}

impl Blocks {
    /// Copies the range to `to` if all of it is kept.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let (first, last) = of_range(offset, to.len() as u64);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for number in first..=last {
            let Some(at) = kept.iter().position(|(known, _)| *known == number) else { return false };
            let Some(block) = kept.remove(at) else { return false };
            found.push(block.1.clone());
            kept.push_back(block);
        }
        drop(kept);
        let mut rest = to;
        let mut skip = (offset - first * BLOCK_BYTES) as usize;
        for block in found {
            let from = block.get(skip..).unwrap_or_default();
            let n = from.len().min(rest.len());
            let (here, later) = rest.split_at_mut(n);
            here.copy_from_slice(from.get(..n).unwrap_or_default());
            (rest, skip) = (later, 0);
        }
        rest.is_empty()
    }

    /// Keeps the bytes of whole blocks, of which the last may be shorter.
    pub fn keep(&self, first: u64, bytes: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut begin = 0;
        for number in first.. {
            let end = bytes.len().min(begin + BLOCK_BYTES as usize);
            if begin >= end {
                break;
            }
            kept.retain(|(known, _)| *known != number);
            kept.push_back((number, bytes.slice(begin..end)));
            begin = end;
        }
        while kept.len() > MAX_BLOCKS {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_served_only_from_kept_blocks() {
        let all: Vec<u8> = (0..3 * BLOCK_BYTES + 10).map(|i| (i % 251) as u8).collect();
        let blocks = Blocks::default();
        let read = |offset: u64, n: usize| {
            let mut to = vec![0; n];
            blocks.read(offset, &mut to).then_some(to)
        };
        assert_eq!(read(0, 1), None);
        blocks.keep(1, &Bytes::copy_from_slice(&all[BLOCK_BYTES as usize..]));
        for (offset, n) in
            [(BLOCK_BYTES, 1), (BLOCK_BYTES + 5, 2 * BLOCK_BYTES as usize), (3 * BLOCK_BYTES, 10)]
        {
            assert_eq!(read(offset, n).unwrap(), all[offset as usize..][..n], "{offset}");
        }
        assert_eq!(read(BLOCK_BYTES - 1, 2), None);
        assert_eq!(read(3 * BLOCK_BYTES, 11), None, "beyond the last block");
    }

    #[test]
    fn least_recently_used_blocks_are_dropped() {
        let blocks = Blocks::default();
        let block = Bytes::from(vec![1; BLOCK_BYTES as usize]);
        let has = |number: u64| blocks.read(number * BLOCK_BYTES, &mut [0]);
        for number in 0..MAX_BLOCKS as u64 {
            blocks.keep(number, &block);
        }
        assert!(has(0));
        blocks.keep(MAX_BLOCKS as u64, &block);
        assert!(has(0) && !has(1) && has(2));
    }
}
