//! Decompresses bodies with LZ4 on the device that their buffers are for.
//!
//! The bodies are copied to the device as they are stored. A warp decompresses a block of a frame.
//! The device is faster than the host only if it can decompress many of them at the same time;
//! otherwise, the host decompresses the bodies. It also does so if the memory of the device is not
//! sufficient, or if the device finds an error. The error is then that of the host's library.

use std::ops::Range;

use crossdock_kernels::{Checks, Lz4Buffers, Lz4Content, StartedChecks};
use crossdock_memory::{ALIGNMENT, BufferMut, LoadRange, Result, Stream};
use crossdock_plugin_api::Error;

use crate::codec::lz4::FrameHeader;
use crate::codec::{PREFIX_BYTES, StoredBuffer};

/// Size of the uncompressed bodies that are decompressed together.
pub const GROUP_BYTES: usize = 48 << 20;

/// Minimum size of the portions of a large body. The device decompresses a portion while the next
/// ones are being loaded.
const PORTION_BYTES: usize = 64 << 20;

/// Maximum number of portions of a body.
const MAX_PORTIONS: usize = 16;

/// Minimum size of an uncompressed body. The host decompresses a smaller one in less time than a
/// launch takes.
const MIN_BYTES: usize = 1 << 20;

/// Minimum size of several bodies, and of a body with linked blocks, which needs more launches.
const MIN_BYTES_OF_MANY: usize = 12 << 20;

/// Minimum size of the bodies in relation to the longest part that one warp decompresses. A warp
/// writes 40 to 60 MB/s on an H200, and a thread of the host about 1,500 MB/s.
const MIN_PARTS: usize = 32;

/// A buffer of a compressed body.
pub struct CompressedBuffer {
    /// Its offset and length in the copied portion, including the prefix.
    pub from: (usize, usize),
    /// Its offset and length in the output of the portion.
    pub to: (usize, usize),
    pub stored: StoredBuffer,
    /// The header of its frame; `None` if a device cannot decompress it.
    pub header: Option<FrameHeader>,
}

/// Buffers of a body that are loaded and decompressed together.
pub struct Portion {
    /// The copies of the stored buffers to a block on the device.
    pub loads: Vec<LoadRange>,
    /// The size of this block.
    pub stored_bytes: usize,
    /// The range of the output in the uncompressed body.
    pub to: Range<usize>,
    pub list: Lz4Buffers,
}

impl Portion {
    /// The size of the portion in a block of several portions.
    pub fn aligned_bytes(&self) -> usize {
        self.stored_bytes.next_multiple_of(ALIGNMENT)
    }
}

/// Divides the buffers of a body of `bytes` bytes into portions. `ranges` are the offsets and the
/// lengths of the uncompressed buffers. Returns the numbers of the buffers of each portion. A
/// portion begins with a buffer that is not empty.
pub fn divide(ranges: &[(usize, usize)], bytes: usize) -> Vec<Range<usize>> {
    let min_bytes = bytes / (bytes / PORTION_BYTES).clamp(1, MAX_PORTIONS);
    let (mut portions, mut begin, mut start) = (Vec::new(), 0, 0);
    for (i, (at, length)) in ranges.iter().enumerate() {
        if *length > 0 && at - start >= min_bytes {
            portions.push(begin..i);
            (begin, start) = (i, *at);
        }
    }
    portions.push(begin..ranges.len());
    portions
}

/// Lists the buffers of a portion for the device. Returns `None` if the host should decompress the
/// body.
pub fn list(buffers: &[CompressedBuffer]) -> Option<Lz4Buffers> {
    let mut list = Lz4Buffers::new();
    for buffer in buffers {
        let ((from, stored), (to, bytes)) = (buffer.from, buffer.to);
        let (header_bytes, content) = match buffer.stored {
            StoredBuffer::Plain(0) | StoredBuffer::Frame(0) => continue,
            StoredBuffer::Plain(_) => (0, Lz4Content::Plain),
            StoredBuffer::Frame(_) => {
                let FrameHeader { bytes: header_bytes, block_bytes, are_linked } = buffer.header?;
                // A single block has no block before it.
                let are_linked = are_linked && bytes > block_bytes;
                (header_bytes, Lz4Content::Blocks { block_bytes, are_linked })
            }
        };
        list.push(from + PREFIX_BYTES + header_bytes..from + stored, to..to + bytes, content);
    }
    // Other bodies of the group may have the parts that this one lacks.
    let may_have_parts = list.bytes().max(GROUP_BYTES) / MIN_PARTS >= list.longest_piece();
    may_have_parts.then_some(list)
}

/// Whether the device should decompress `n_bodies` bodies with these lists at the same time.
pub fn is_for_device<'a>(n_bodies: usize, lists: impl Iterator<Item = &'a Lz4Buffers>) -> bool {
    let (mut bytes, mut longest, mut has_linked) = (0, 0, false);
    for list in lists {
        bytes += list.bytes();
        longest = longest.max(list.longest_piece());
        has_linked |= list.has_linked();
    }
    let min_bytes = if n_bodies > 1 || has_linked { MIN_BYTES_OF_MANY } else { MIN_BYTES };
    bytes >= min_bytes && bytes / MIN_PARTS >= longest
}

/// A launched decompression.
pub struct Launched {
    pub checks: StartedChecks,
    /// For each portion, the number of its body, and its cell.
    pub cells: Vec<(usize, usize)>,
}

/// Launches the decompression of portions on `stream`. The block has them one after the other, each
/// with its [`Portion::aligned_bytes`]. The `outputs` have an uncompressed body each, which the
/// portions name by number.
pub fn launch(
    block: BufferMut,
    portions: &[(usize, &Portion)],
    outputs: &mut [BufferMut],
    copies: &Stream,
    stream: &Stream,
) -> Result<Launched> {
    let memory = stream.memory();
    // On the stream of the bodies: on another stream, this copy would compete with those of later
    // bodies, and the device would begin to decompress after them.
    let words: Vec<u8> = portions.iter().flat_map(|(_, portion)| portion.list.words()).copied().collect();
    let words = memory.alloc_with(copies, words.len(), |to| {
        to.copy_from_slice(&words);
        Ok(())
    })?;
    let (words, block) = (words.freeze(copies)?, block.freeze(copies)?);
    let (mut at, mut words_at, mut scratch_bytes) = (0, 0, 0);
    let mut sources = Vec::with_capacity(portions.len());
    for (_, portion) in portions {
        let n = portion.list.words().len();
        sources.push((block.slice(at, portion.stored_bytes)?, words.slice(words_at, n)?));
        at += portion.aligned_bytes();
        words_at += n;
        scratch_bytes += portion.list.scratch_bytes(portion.to.len());
    }
    let mut scratch = memory.alloc(stream, scratch_bytes)?;
    stream.fill(&mut scratch, 0, scratch_bytes, 0)?;
    let (mut checks, mut cells, mut scratch_at) = (Checks::new(), Vec::with_capacity(portions.len()), 0);
    for ((body, portion), (from, words)) in portions.iter().zip(&sources) {
        let output = outputs.get_mut(*body).ok_or_else(|| Error::internal("a body has no output"))?;
        let end = scratch_at + portion.list.scratch_bytes(portion.to.len());
        let (to, scratch) = ((output, portion.to.clone()), (&mut scratch, scratch_at..end));
        cells.push((*body, checks.decompress_lz4(from, &portion.list, words, to, scratch)?));
        scratch_at = end;
    }
    Ok(Launched { checks: checks.start(stream)?, cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: FrameHeader = FrameHeader { bytes: 7, block_bytes: 65536, are_linked: false };

    fn frame(bytes: usize, header: Option<FrameHeader>) -> CompressedBuffer {
        CompressedBuffer { from: (64, 1000), to: (0, bytes), stored: StoredBuffer::Frame(bytes), header }
    }

    /// Whether a device decompresses bodies with these buffers together.
    fn are_for_device(bodies: &[&[CompressedBuffer]]) -> bool {
        let lists: Option<Vec<_>> = bodies.iter().map(|buffers| list(buffers)).collect();
        lists.is_some_and(|lists| is_for_device(bodies.len(), lists.iter()))
    }

    #[test]
    fn device_decompresses_only_bodies_with_many_parts() {
        let is_for_device = |buffers: &[CompressedBuffer]| are_for_device(&[buffers]);
        assert!(is_for_device(&[frame(32 * 65536, Some(BLOCKS))]));
        assert!(!is_for_device(&[frame(31 * 65536, Some(BLOCKS))]));
        let linked = FrameHeader { are_linked: true, ..BLOCKS };
        assert!(is_for_device(&[frame(8 << 20, Some(linked)), frame(4 << 20, Some(BLOCKS))]));
        assert!(!is_for_device(&[frame(8 << 20, Some(linked)), frame(3 << 20, Some(BLOCKS))]));
        let many = |n: usize, bytes: usize, header| {
            (0..n).map(|_| frame(bytes, Some(header))).collect::<Vec<CompressedBuffer>>()
        };
        assert!(is_for_device(&many(32, 50_000, BLOCKS)));
        assert!(!is_for_device(&many(31, 50_000, BLOCKS)));
        // Frames that have only one block.
        assert!(is_for_device(&many(32, 65536, linked)));
        // A small body.
        assert!(!is_for_device(&many(1000, 1000, BLOCKS)));
        assert!(is_for_device(&many(1100, 1000, BLOCKS)));
        // Few large blocks.
        let large = FrameHeader { block_bytes: 4 << 20, ..BLOCKS };
        assert!(!is_for_device(&[frame(100 << 20, Some(large))]));
        // A frame that only the host decompresses.
        let mut buffers = many(40, 50_000, BLOCKS);
        buffers.push(frame(1, None));
        assert!(!is_for_device(&buffers));
        let plain =
            CompressedBuffer { from: (0, 10), to: (0, 2), stored: StoredBuffer::Plain(2), header: None };
        buffers.pop();
        buffers.push(plain);
        assert_eq!(list(&buffers).map(|list| list.n_pieces()), Some(41));
    }

    #[test]
    fn device_decompresses_bodies_that_have_many_parts_together() {
        let small = [frame(4 << 20, Some(BLOCKS))];
        assert!(are_for_device(&[&small]));
        assert!(!are_for_device(&[&small, &small]));
        assert!(are_for_device(&[&small, &small, &small]));
        // Other bodies may have the parts that a body with large blocks lacks.
        let large = [frame(1 << 20, Some(FrameHeader { block_bytes: 1 << 20, ..BLOCKS }))];
        assert!(list(&large).is_some());
        assert!(!are_for_device(&[&large, &small, &small, &small]));
        assert!(are_for_device(&[&large, &[frame(31 << 20, Some(BLOCKS))]]));
        // No group is large enough for these parts.
        assert!(list(&[frame(2 << 20, Some(FrameHeader { block_bytes: 2 << 20, ..BLOCKS }))]).is_none());
    }

    #[test]
    fn large_bodies_are_divided_into_portions() {
        let lay_out = |lengths: &[usize]| {
            let mut end = 0;
            let ranges = lengths.iter().map(|length| {
                end += length << 20;
                (end - (length << 20), length << 20)
            });
            (ranges.collect::<Vec<_>>(), end)
        };
        let divide = |lengths: &[usize]| {
            let (ranges, bytes) = lay_out(lengths);
            super::divide(&ranges, bytes)
        };
        assert_eq!(divide(&[30, 60, 37]), [0..3]);
        assert_eq!(divide(&[30, 60, 38]), [0..2, 2..3]);
        assert_eq!(divide(&[0, 160, 0, 160, 0, 160, 0, 0]), [0..3, 3..5, 5..8]);
        assert_eq!(divide(&[10; 100]).len(), 15);
        assert_eq!(divide(&[64; 1000]).len(), 16);
        assert_eq!(divide(&[5000]), [0..1]);
    }
}
