//! Divides a list of copies into parts that each fit into one chunk.

use std::ops::Range;

use crate::cuda::driver::DevicePtr;

/// One range of host memory and its counterpart on the device.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub device: DevicePtr,
    pub host: *mut u8,
    pub bytes: usize,
}

/// The bytes of one piece that belong to one part of the plan.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    pub piece: Piece,
    /// Offset of the slice in the chunk in bytes.
    pub offset: usize,
    /// Whether the slice directly follows the previous slice, both in the chunk and within one
    /// allocation on the device.
    joins: bool,
}

/// All slices, and for each part the range of its slices.
pub(super) struct CopyPlan {
    slices: Vec<Slice>,
    parts: Vec<Range<usize>>,
}

/// A range of the chunk that is copied to or from one range of device memory.
pub(super) struct Run {
    pub offset: usize,
    pub device: DevicePtr,
    pub bytes: usize,
}

/// Alignment in bytes of slices that do not join the previous slice, so that they start at a new
/// cache line.
const ALIGNMENT: usize = 64;

impl CopyPlan {
    /// Divides `pieces` into parts. Small pieces share a part, and large pieces are split.
    /// `max_bytes` receives the number of bytes in all previous parts and returns the maximum size
    /// of the next part, a multiple of [`ALIGNMENT`]. `are_in_one_allocation` receives the
    /// addresses of two pieces that are adjacent on the device and returns whether they belong to
    /// one allocation, because the driver rejects a copy that crosses the end of an allocation.
    pub(super) fn new(
        pieces: &[Piece],
        max_bytes: impl Fn(usize) -> usize,
        mut are_in_one_allocation: impl FnMut(DevicePtr, DevicePtr) -> bool,
    ) -> Self {
        let mut plan = Self { slices: Vec::with_capacity(pieces.len()), parts: Vec::new() };
        let (mut first, mut end, mut n_before) = (0usize, 0usize, 0usize);
        let mut part_bytes = max_bytes(0);
        for piece in pieces {
            let mut rest = *piece;
            while rest.bytes > 0 {
                let joins = end > 0
                    && plan.slices.last().is_some_and(|last| {
                        last.piece.device.checked_add(last.piece.bytes as u64) == Some(rest.device)
                            && are_in_one_allocation(last.piece.device, rest.device)
                    });
                let offset = if joins { end } else { end.next_multiple_of(ALIGNMENT) };
                if offset >= part_bytes {
                    plan.parts.push(first..plan.slices.len());
                    (first, end) = (plan.slices.len(), 0);
                    part_bytes = max_bytes(n_before);
                    continue;
                }
                let bytes = rest.bytes.min(part_bytes - offset);
                plan.slices.push(Slice { piece: Piece { bytes, ..rest }, offset, joins });
                end = offset + bytes;
                n_before += bytes;
                rest = Piece {
                    device: rest.device + bytes as u64,
                    host: rest.host.wrapping_add(bytes),
                    bytes: rest.bytes - bytes,
                };
            }
        }
        if first < plan.slices.len() {
            plan.parts.push(first..plan.slices.len());
        }
        plan
    }

    /// Number of parts.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The slices of part `n`.
    pub(super) fn part(&self, n: usize) -> &[Slice] {
        self.parts.get(n).and_then(|range| self.slices.get(range.clone())).unwrap_or_default()
    }

    /// The copies of part `n`. Slices that join form one copy.
    pub(super) fn runs(&self, n: usize) -> impl Iterator<Item = Run> {
        self.part(n).chunk_by(|_, next| next.joins).filter_map(|slices| {
            let first = slices.first()?;
            let bytes = slices.iter().map(|slice| slice.piece.bytes).sum();
            Some(Run { offset: first.offset, device: first.piece.device, bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(device: u64, host: usize, bytes: usize) -> Piece {
        Piece { device, host: host as *mut u8, bytes }
    }

    fn shape(plan: &CopyPlan) -> Vec<Vec<(u64, usize, usize, usize)>> {
        let slice = |s: &Slice| (s.piece.device, s.piece.host as usize, s.piece.bytes, s.offset);
        (0..plan.len()).map(|n| plan.part(n).iter().map(slice).collect()).collect()
    }

    #[test]
    fn splits_large_pieces_and_packs_small_ones() {
        let plan = plan(&[piece(1000, 1, 300), piece(5000, 2, 10), piece(0, 3, 0), piece(9000, 4, 20)], 128);
        let expected = vec![
            vec![(1000, 1, 128, 0)],
            vec![(1128, 129, 128, 0)],
            vec![(1256, 257, 44, 0), (5000, 2, 10, 64)],
            vec![(9000, 4, 20, 0)],
        ];
        assert_eq!(shape(&plan), expected);
    }

    /// A plan for pieces in one allocation.
    fn plan(pieces: &[Piece], max_bytes: usize) -> CopyPlan {
        CopyPlan::new(pieces, |_| max_bytes, |_, _| true)
    }

    fn runs(plan: &CopyPlan) -> Vec<(usize, u64, usize)> {
        plan.runs(0).map(|run| (run.offset, run.device, run.bytes)).collect()
    }

    #[test]
    fn adjacent_ranges_are_one_copy() {
        let plan = plan(&[piece(64, 1000, 10), piece(74, 2000, 6), piece(100, 3000, 4)], 128);
        assert_eq!(runs(&plan), [(0, 64, 16), (64, 100, 4)]);
    }

    #[test]
    fn adjacent_ranges_of_two_allocations_are_two_copies() {
        // Each piece has the size of a cache line, so that the pieces are adjacent in the chunk as
        // well.
        let pieces = [piece(64, 1000, 64), piece(128, 2000, 64), piece(192, 3000, 64)];
        let plan = CopyPlan::new(&pieces, |_| 1024, |a, b| (a, b) != (64, 128));
        assert_eq!(runs(&plan), [(0, 64, 64), (64, 128, 128)]);
    }

    #[test]
    fn slices_cover_every_byte_once_within_the_part_size() {
        let pieces: Vec<_> = (0..200usize).map(|i| piece(i as u64 * 5000, i * 7000, i * i % 4099)).collect();
        let plan = plan(&pieces, 1024);
        let total: usize = pieces.iter().map(|p| p.bytes).sum();
        let mut sum = 0;
        for n in 0..plan.len() {
            let mut end = 0;
            assert!(!plan.part(n).is_empty());
            for slice in plan.part(n) {
                assert!(slice.offset >= end, "slices of part {n} overlap");
                end = slice.offset + slice.piece.bytes;
                sum += slice.piece.bytes;
                assert_eq!(slice.piece.device / 5000, slice.piece.host as u64 / 7000);
                assert_eq!(slice.piece.device % 5000, slice.piece.host as u64 % 7000);
            }
            assert!(end <= 1024);
        }
        assert_eq!(sum, total);
        assert_eq!(super::CopyPlan::new(&[], |_| 1024, |_, _| true).len(), 0);
    }
}
