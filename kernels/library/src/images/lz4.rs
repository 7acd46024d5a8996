//! Decompresses one LZ4 block.

/// Decompresses a block to `to`. Returns `None` if the block is malformed, or if its decompressed
/// length differs from the length of `to`.
pub(super) fn decode(block: &[u8], to: &mut [u8]) -> Option<()> {
    let (mut from, mut at) = (block, 0usize);
    loop {
        let (token, rest) = from.split_first()?;
        from = rest;
        let literals = length(token >> 4, &mut from)?;
        let (bytes, rest) = from.split_at_checked(literals)?;
        to.get_mut(at..at.checked_add(literals)?)?.copy_from_slice(bytes);
        at += literals;
        from = rest;
        // The last sequence has literals only.
        if from.is_empty() {
            return (at == to.len()).then_some(());
        }
        let (distance, rest) = from.split_first_chunk::<2>()?;
        from = rest;
        let distance = usize::from(u16::from_le_bytes(*distance));
        let n = length(token & 15, &mut from)?.checked_add(4)?;
        let begin = at.checked_sub(distance).filter(|_| distance > 0)?;
        let end = at.checked_add(n).filter(|end| *end <= to.len())?;
        if distance >= n {
            to.copy_within(begin..begin + n, at);
        } else {
            // A match may overlap its own output, so copy byte by byte.
            for i in 0..n {
                *to.get_mut(at + i)? = *to.get(begin + i)?;
            }
        }
        at = end;
    }
}

/// Reads a length. If all 4 bits of `nibble` are set, the following bytes are added to it.
fn length(nibble: u8, from: &mut &[u8]) -> Option<usize> {
    let mut n = usize::from(nibble);
    let mut more = nibble == 15;
    while more {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        n = n.checked_add(usize::from(*byte))?;
        more = *byte == 255;
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(block: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut to = vec![0; len];
        decode(block, &mut to).map(|()| to)
    }

    #[test]
    fn decodes_literals_and_overlapping_matches() {
        assert_eq!(decoded(b"\x30abc", 3).unwrap(), b"abc");
        // The literals "ab", a match of 7 bytes at distance 2, and the literal "c".
        assert_eq!(decoded(b"\x23ab\x02\x00\x10c", 10).unwrap(), b"ababababac");
        let mut long = vec![0xf0, 255, 5];
        long.extend([7; 275]);
        assert_eq!(decoded(&long, 275).unwrap(), [7; 275]);
    }

    #[test]
    fn rejects_malformed_blocks_and_wrong_lengths() {
        for (block, len) in [
            (&b""[..], 0),
            (b"\x30ab", 3),
            (b"\x30abc", 2),
            (b"\x30abc", 4),
            (b"\x13a\x02\x00\x00", 8),
            (b"\x13a\x00\x00\x00", 8),
            (b"\x1fa\x01\x00\xff", 8),
            (b"\x13a\x01", 8),
        ] {
            assert_eq!(decoded(block, len), None, "{block:?}");
        }
    }
}
