//! Decompresses LZ4 frames.

use crate::door::Args;

/// The number of words of a buffer in the list of buffers.
const WORDS: usize = 6;

const IS_LINKED: u64 = 1 << 63;
const MAX_BLOCK_BYTES: usize = 4 << 20;
const MIN_MATCH: usize = 4;

/// Bytes after a frame's end mark are padding if they are fewer than this, and all zero.
const MAX_PADDING: usize = 64;

type Words = [[u8; 8]; WORDS];

fn buffers(bytes: &[u8]) -> &[Words] {
    bytes.as_chunks::<8>().0.as_chunks::<WORDS>().0
}

/// Decompresses all buffers completely, so [`resolve`] has nothing to do.
pub(crate) fn decompress(args: Args<'_>) -> Option<()> {
    let (from, words, to) = (args.read(0)?, args.read(1)?, args.write(3)?);
    args.value(2)?;
    args.write(4)?;
    let first_wrong = buffers(words).iter().position(|words| buffer(words, from, to).is_none());
    args.report_wrong(5, first_wrong)
}

/// Does nothing: [`decompress`] completes all bytes.
pub(crate) fn resolve(args: Args<'_>) -> Option<()> {
    args.read(0)?;
    args.value(1)?;
    args.value(2)?;
    args.write(3)?;
    args.write(4).map(drop)
}

/// Decompresses a buffer. Returns `None` if it is wrong.
fn buffer(words: &Words, from: &[u8], to: &mut [u8]) -> Option<()> {
    let [_, begin, end, at, bytes, block] = words.map(u64::from_ne_bytes);
    let range = |begin: u64, end: u64| Some(usize::try_from(begin).ok()?..usize::try_from(end).ok()?);
    let mut from = from.get(range(begin, end)?)?;
    let to = to.get_mut(range(at, at.checked_add(bytes)?)?)?;
    if block == 0 {
        to.copy_from_slice(from.get(..to.len())?);
        return Some(());
    }
    let (is_linked, max) = (block & IS_LINKED != 0, usize::try_from(block & !IS_LINKED).ok()?);
    if max == 0 || max > MAX_BLOCK_BYTES {
        return None;
    }
    let mut done = 0;
    while done < to.len() {
        let (header, rest) = from.split_first_chunk::<4>()?;
        let header = u32::from_le_bytes(*header);
        let (stored, rest) = rest.split_at_checked((header & 0x7fff_ffff) as usize)?;
        let room = max.min(to.len() - done);
        let n = match header >> 31 {
            _ if header == 0 => return None,
            0 => sequences(stored, to.get_mut(..done + room)?, done, if is_linked { 0 } else { done })?,
            _ if stored.len() > room => return None,
            _ => {
                to.get_mut(done..done + stored.len())?.copy_from_slice(stored);
                stored.len()
            }
        };
        if n != room {
            return None;
        }
        done += n;
        from = rest;
    }
    let (mark, padding) = from.split_first_chunk::<4>()?;
    let is_end = *mark == [0; 4] && padding.len() < MAX_PADDING && padding.iter().all(|byte| *byte == 0);
    is_end.then_some(())
}

/// Decodes the sequences of a block to `to`, from byte `begin` on. Matches refer to bytes from byte
/// `floor` on. Returns the number of bytes written.
fn sequences(mut from: &[u8], to: &mut [u8], begin: usize, floor: usize) -> Option<usize> {
    if from.len() > MAX_BLOCK_BYTES {
        return None;
    }
    let mut at = begin;
    loop {
        let token = usize::from(*from.split_off_first()?);
        let literals = length(token >> 4, &mut from)?;
        let (bytes, rest) = from.split_at_checked(literals)?;
        to.get_mut(at..)?.get_mut(..literals)?.copy_from_slice(bytes);
        at += literals;
        if rest.is_empty() {
            return Some(at - begin);
        }
        let (offset, rest) = rest.split_first_chunk::<2>()?;
        from = rest;
        let offset = usize::from(u16::from_le_bytes(*offset));
        let n = MIN_MATCH + length(token & 15, &mut from)?;
        if offset == 0 || offset > at - floor || n > to.len() - at {
            return None;
        }
        // A match may overlap itself. Each round copies all bytes before it that are known.
        let (source, end) = (at - offset, at + n);
        while at < end {
            let known = (at - source).min(end - at);
            to.copy_within(source..source + known, at);
            at += known;
        }
    }
}

/// A length whose first four bits are `first`.
fn length(first: usize, from: &mut &[u8]) -> Option<usize> {
    let mut n = first;
    if first == 15 {
        loop {
            let byte = *from.split_off_first()?;
            n += usize::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Some(n)
}
