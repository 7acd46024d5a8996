//! How a list of copies is cut into parts of at most a chunk each.

use std::ops::Range;

use crate::cuda::driver::DevicePtr;

/// One range of host memory and its counterpart on the device.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub device: DevicePtr,
    pub host: *mut u8,
    pub bytes: usize,
}

/// As much of a piece as one part takes.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    pub piece: Piece,
    /// Where it lies in the chunk.
    pub at: usize,
    /// It goes on where the one before it ends, in the chunk and in one allocation of the device.
    joins: bool,
}

/// All slices, and which of them make up each part.
pub(super) struct Cut {
    slices: Vec<Slice>,
    parts: Vec<Range<usize>>,
}

/// A range of the chunk that goes to one range of the device.
pub(super) struct Run {
    pub at: usize,
    pub device: DevicePtr,
    pub bytes: usize,
}

/// Slices that do not belong together begin at cache lines of their own.
const ALIGNMENT: usize = 64;

impl Cut {
    /// Parts of at most `most` bytes each, which is told how many bytes come before the part, and answers a multiple of
    /// the alignment. Small pieces share a part, large ones are cut. `are_one` says whether two addresses on the device, at the
    /// second of which another piece begins, lie in one allocation: the driver refuses a copy across the end of one.
    pub(super) fn new(
        pieces: &[Piece],
        most: impl Fn(usize) -> usize,
        are_one: impl Fn(DevicePtr, DevicePtr) -> bool,
    ) -> Self {
        let mut cut = Self { slices: Vec::with_capacity(pieces.len()), parts: Vec::new() };
        let (mut first, mut end, mut before) = (0usize, 0usize, 0usize);
        let mut part_bytes = most(0);
        for piece in pieces {
            let mut rest = *piece;
            while rest.bytes > 0 {
                let joins = end > 0
                    && cut.slices.last().is_some_and(|last| {
                        last.piece.device.checked_add(last.piece.bytes as u64) == Some(rest.device)
                            && are_one(last.piece.device, rest.device)
                    });
                let at = if joins { end } else { end.next_multiple_of(ALIGNMENT) };
                if at >= part_bytes {
                    cut.parts.push(first..cut.slices.len());
                    (first, end) = (cut.slices.len(), 0);
                    part_bytes = most(before);
                    continue;
                }
                let bytes = rest.bytes.min(part_bytes - at);
                cut.slices.push(Slice { piece: Piece { bytes, ..rest }, at, joins });
                end = at + bytes;
                before += bytes;
                rest = Piece {
                    device: rest.device + bytes as u64,
                    host: rest.host.wrapping_add(bytes),
                    bytes: rest.bytes - bytes,
                };
            }
        }
        if first < cut.slices.len() {
            cut.parts.push(first..cut.slices.len());
        }
        cut
    }

    /// How many parts.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// What part `n` consists of.
    pub(super) fn part(&self, n: usize) -> &[Slice] {
        self.parts.get(n).and_then(|range| self.slices.get(range.clone())).unwrap_or_default()
    }

    /// The copies that part `n` takes: slices that adjoin in one allocation adjoin in the chunk, and are one.
    pub(super) fn runs(&self, n: usize) -> impl Iterator<Item = Run> {
        self.part(n).chunk_by(|_, next| next.joins).filter_map(|slices| {
            let first = slices.first()?;
            let bytes = slices.iter().map(|slice| slice.piece.bytes).sum();
            Some(Run { at: first.at, device: first.piece.device, bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(device: u64, host: usize, bytes: usize) -> Piece {
        Piece { device, host: host as *mut u8, bytes }
    }

    fn shape(cut: &Cut) -> Vec<Vec<(u64, usize, usize, usize)>> {
        let slice = |s: &Slice| (s.piece.device, s.piece.host as usize, s.piece.bytes, s.at);
        (0..cut.len()).map(|n| cut.part(n).iter().map(slice).collect()).collect()
    }

    #[test]
    fn a_large_piece_is_cut_and_small_ones_share_a_part() {
        let cut = cut(&[piece(1000, 1, 300), piece(5000, 2, 10), piece(0, 3, 0), piece(9000, 4, 20)], 128);
        let expected = vec![
            vec![(1000, 1, 128, 0)],
            vec![(1128, 129, 128, 0)],
            vec![(1256, 257, 44, 0), (5000, 2, 10, 64)],
            vec![(9000, 4, 20, 0)],
        ];
        assert_eq!(shape(&cut), expected);
    }

    /// All pieces in one allocation.
    fn cut(pieces: &[Piece], most: usize) -> Cut {
        Cut::new(pieces, |_| most, |_, _| true)
    }

    fn runs(cut: &Cut) -> Vec<(usize, u64, usize)> {
        cut.runs(0).map(|run| (run.at, run.device, run.bytes)).collect()
    }

    #[test]
    fn what_adjoins_on_the_device_is_one_copy() {
        let cut = cut(&[piece(64, 1000, 10), piece(74, 2000, 6), piece(100, 3000, 4)], 128);
        assert_eq!(runs(&cut), [(0, 64, 16), (64, 100, 4)]);
    }

    #[test]
    fn what_adjoins_in_another_allocation_is_a_copy_of_its_own() {
        // Of a cache line each, so that they adjoin in the chunk as well.
        let pieces = [piece(64, 1000, 64), piece(128, 2000, 64), piece(192, 3000, 64)];
        let cut = Cut::new(&pieces, |_| 1024, |a, b| (a, b) != (64, 128));
        assert_eq!(runs(&cut), [(0, 64, 64), (64, 128, 128)]);
    }

    #[test]
    fn every_byte_is_in_one_slice_and_no_part_is_larger_than_allowed() {
        let pieces: Vec<_> = (0..200usize).map(|i| piece(i as u64 * 5000, i * 7000, i * i % 4099)).collect();
        let cut = cut(&pieces, 1024);
        let total: usize = pieces.iter().map(|p| p.bytes).sum();
        let mut sum = 0;
        for n in 0..cut.len() {
            let mut end = 0;
            assert!(!cut.part(n).is_empty());
            for slice in cut.part(n) {
                assert!(slice.at >= end, "slices of part {n} overlap");
                end = slice.at + slice.piece.bytes;
                sum += slice.piece.bytes;
                assert_eq!(slice.piece.device / 5000, slice.piece.host as u64 / 7000);
                assert_eq!(slice.piece.device % 5000, slice.piece.host as u64 % 7000);
            }
            assert!(end <= 1024);
        }
        assert_eq!(sum, total);
        assert_eq!(super::Cut::new(&[], |_| 1024, |_, _| true).len(), 0);
    }
}
