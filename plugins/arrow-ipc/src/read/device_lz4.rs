//! Decompresses bodies with LZ4 on the device that their buffers are for.
//!
//! The bodies are copied to the device as they are stored. A warp decompresses a block of a frame.
//! The device is faster than the host only if it can decompress many of them at the same time;
//! otherwise, the host decompresses the bodies. It also does so if the memory of the device is not
//! sufficient, or if the device finds an error. The error is then that of the host's library.

use crossdock_kernels::{Checks, Lz4Buffers, Lz4Content, StartedChecks};
use crossdock_memory::{Buffer, BufferMut, Result, Stream};

use crate::codec::lz4::FrameHeader;
use crate::codec::{PREFIX_BYTES, StoredBuffer};

/// Minimum size of an uncompressed body. The host decompresses a smaller one in less time than a
/// launch takes.
const MIN_BYTES: usize = 1 << 20;

/// Minimum size of several bodies, and of a body with linked blocks, which needs more launches.
const MIN_BYTES_OF_MANY: usize = 12 << 20;

/// Minimum size of the bodies in relation to the longest part that one warp decompresses. A warp
/// writes 40 to 60 MB/s on an H200, and a thread of the host about 1,500 MB/s.
const MIN_PARTS: usize = 32;

/// Size of the uncompressed bodies of a group.
pub const GROUP_BYTES: usize = 48 << 20;

/// A buffer of a compressed body.
pub struct CompressedBuffer {
    /// Its offset and length in the copied body, including the prefix.
    pub from: (usize, usize),
    /// Its offset and length in the output.
    pub to: (usize, usize),
    pub stored: StoredBuffer,
    /// The header of its frame; `None` if a device cannot decompress it.
    pub header: Option<FrameHeader>,
}

/// Lists the buffers of a body for the device. Returns `None` if the host should decompress them.
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

/// Whether the device should decompress bodies with these lists at the same time.
pub fn is_for_device<'a>(lists: impl Iterator<Item = &'a Lz4Buffers>) -> bool {
    let (mut n, mut bytes, mut longest, mut has_linked) = (0, 0, 0, false);
    for list in lists {
        n += 1;
        bytes += list.bytes();
        longest = longest.max(list.longest_piece());
        has_linked |= list.has_linked();
    }
    let min_bytes = if n > 1 || has_linked { MIN_BYTES_OF_MANY } else { MIN_BYTES };
    bytes >= min_bytes && bytes / MIN_PARTS >= longest
}

/// A body in a block of several bodies.
pub struct Part {
    /// The offset and the length of the stored body in the block.
    pub from: (usize, usize),
    pub list: Lz4Buffers,
    /// The size of the uncompressed body.
    pub bytes: usize,
}

/// A launched decompression: the results of the checks, and each body with its cell.
pub struct Launched {
    pub checks: StartedChecks,
    pub bodies: Vec<(usize, Buffer)>,
}

/// Launches the decompression of the `parts` of a block on `stream`. Each gets its own allocation,
/// so that a batch does not keep the memory of others.
pub fn launch(block: BufferMut, parts: &[Part], copies: &Stream, stream: &Stream) -> Result<Launched> {
    let memory = stream.memory();
    // On the stream of the bodies: on another stream, this copy would compete with those of later
    // bodies, and the device would begin to decompress after them.
    let words: Vec<u8> = parts.iter().flat_map(|part| part.list.words()).copied().collect();
    let words = memory.alloc_with(copies, words.len(), |to| {
        to.copy_from_slice(&words);
        Ok(())
    })?;
    let (words, block) = (words.freeze(copies)?, block.freeze(copies)?);
    let scratch_bytes = parts.iter().map(|part| part.list.scratch_bytes(part.bytes)).sum();
    let mut scratch = memory.alloc(stream, scratch_bytes)?;
    stream.fill(&mut scratch, 0, scratch_bytes, 0)?;
    let (mut words_at, mut scratch_at) = (0, 0);
    let mut sources = Vec::with_capacity(parts.len());
    for part in parts {
        let n = part.list.words().len();
        sources.push((block.slice(part.from.0, part.from.1)?, words.slice(words_at, n)?));
        words_at += n;
    }
    let (mut checks, mut bodies) = (Checks::new(), Vec::with_capacity(parts.len()));
    for (Part { list, bytes, .. }, (from, words)) in parts.iter().zip(&sources) {
        let mut output = memory.alloc(stream, *bytes)?;
        // The bytes between the buffers.
        stream.fill(&mut output, 0, *bytes, 0)?;
        let scratch_end = scratch_at + list.scratch_bytes(*bytes);
        let to = (&mut output, 0..*bytes);
        let cell = checks.decompress_lz4(from, list, words, to, (&mut scratch, scratch_at..scratch_end))?;
        scratch_at = scratch_end;
        bodies.push((cell, output));
    }
    let checks = checks.start(stream)?;
    let freeze = |(cell, body): (usize, BufferMut)| Ok((cell, body.freeze(stream)?));
    Ok(Launched { checks, bodies: bodies.into_iter().map(freeze).collect::<Result<_>>()? })
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
        lists.is_some_and(|lists| is_for_device(lists.iter()))
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
}
