//! Compresses bytes to an LZ4 block. The result is the same on every machine.

/// The minimum length of a match, and its maximum offset.
const MIN_MATCH: usize = 4;
const MAX_OFFSET: usize = 65535;
/// The number of bytes at the end of a block in which no match may begin.
const MATCH_MARGIN: usize = 12;
/// The number of bytes at the end of a block that must be literals.
const MIN_LAST_LITERALS: usize = 5;

/// Compresses `bytes` to a block.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    // The last position of 4 bytes with each hash, plus one. 0 means that there is no position.
    let mut seen = vec![0usize; 1 << 16];
    let (mut at, mut literals) = (0, 0);
    while at + MATCH_MARGIN < bytes.len() {
        let word = word_at(bytes, at);
        let slot = &mut seen[(word.wrapping_mul(2_654_435_761) >> 16) as usize];
        let candidate = std::mem::replace(slot, at + 1);
        let matched = candidate.checked_sub(1).filter(|c| at - c <= MAX_OFFSET && word_at(bytes, *c) == word);
        let Some(from) = matched else {
            at += 1;
            continue;
        };
        let max = bytes.len() - MIN_LAST_LITERALS - at;
        let n = (MIN_MATCH..max).find(|n| bytes[from + n] != bytes[at + n]).unwrap_or(max);
        write_sequence(&mut block, &bytes[literals..at], Some((at - from, n)));
        at += n;
        literals = at;
    }
    write_sequence(&mut block, &bytes[literals..], None);
    block
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Writes a sequence: literals and a match (offset, length). The last sequence has no match.
fn write_sequence(block: &mut Vec<u8>, literals: &[u8], matched: Option<(usize, usize)>) {
    let repeated = matched.map_or(0, |(_, n)| n - MIN_MATCH);
    block.push((literals.len().min(15) << 4 | repeated.min(15)) as u8);
    write_length(block, literals.len());
    block.extend(literals);
    if let Some((distance, _)) = matched {
        block.extend((distance as u16).to_le_bytes());
        write_length(block, repeated);
    }
}

/// Writes the part of a length that exceeds the four bits of the token.
fn write_length(block: &mut Vec<u8>, n: usize) {
    if let Some(rest) = n.checked_sub(15) {
        block.extend(std::iter::repeat_n(255, rest / 255));
        block.push((rest % 255) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_repeated_bytes_as_a_match_and_the_end_as_literals() {
        assert_eq!(encode(b""), [0]);
        assert_eq!(encode(b"abc"), b"\x30abc");
        // Expects one literal, a match of 18 bytes at offset 1, and 5 literals.
        assert_eq!(encode(&[b'a'; 24]), b"\x1ea\x01\x00\x50aaaaa");
    }
}
