//! One LZ4 block, packed: greedily, the same bytes on every machine.

/// The shortest match, and how far a block may look back.
const SHORTEST: usize = 4;
const FARTHEST: usize = 65535;
/// The last bytes are literals, and no match begins close to them: the format's own rule.
const LAST: usize = 12;

/// The block that holds `bytes`.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    // For each hash of 4 bytes, the place after which they were seen last, counted from 1.
    let mut seen = vec![0usize; 1 << 16];
    let (mut at, mut literals) = (0, 0);
    while at + LAST < bytes.len() {
        let word = word(bytes, at);
        let slot = &mut seen[(word.wrapping_mul(2_654_435_761) >> 16) as usize];
        let candidate = std::mem::replace(slot, at + 1);
        let found = candidate.checked_sub(1).filter(|c| at - c <= FARTHEST && self::word(bytes, *c) == word);
        let Some(from) = found else {
            at += 1;
            continue;
        };
        let most = bytes.len() - 5 - at;
        let n = (SHORTEST..most).find(|n| bytes[from + n] != bytes[at + n]).unwrap_or(most);
        sequence(&mut block, &bytes[literals..at], Some((at - from, n)));
        at += n;
        literals = at;
    }
    sequence(&mut block, &bytes[literals..], None);
    block
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Literals, and a match (how far back, how long) unless they are the last.
fn sequence(block: &mut Vec<u8>, literals: &[u8], matched: Option<(usize, usize)>) {
    let repeated = matched.map_or(0, |(_, n)| n - SHORTEST);
    block.push((literals.len().min(15) << 4 | repeated.min(15)) as u8);
    length(block, literals.len());
    block.extend(literals);
    if let Some((distance, _)) = matched {
        block.extend((distance as u16).to_le_bytes());
        length(block, repeated);
    }
}

/// What four bits have no room for.
fn length(block: &mut Vec<u8>, n: usize) {
    if let Some(rest) = n.checked_sub(15) {
        block.extend(std::iter::repeat_n(255, rest / 255));
        block.push((rest % 255) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_becomes_a_match_and_the_end_stays_as_it_is() {
        assert_eq!(encode(b""), [0]);
        assert_eq!(encode(b"abc"), b"\x30abc");
        // One literal, 18 of it from 1 before, 5 literals.
        assert_eq!(encode(&[b'a'; 24]), b"\x1ea\x01\x00\x50aaaaa");
    }
}
