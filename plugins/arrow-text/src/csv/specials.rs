//! Finds the bytes that end fields.

/// The number of bytes that are compared at once.
const BLOCK: usize = 64;

/// Finds delimiters, line feeds and carriage returns. It compares 8 bytes in one register, because
/// fields have few bytes, and a call of a search function for each field would take longer.
pub struct Specials<'a> {
    text: &'a [u8],
    needles: [u64; 3],
    /// The start of the current block.
    block: usize,
    /// A bit for each byte of the current block that ends a field and was not returned.
    found: u64,
}

impl<'a> Specials<'a> {
    /// Begins at the start of `text`.
    pub fn new(text: &'a [u8], delimiter: u8) -> Self {
        let needles = [delimiter, b'\n', b'\r'].map(|byte| u64::from_ne_bytes([byte; 8]));
        let mut new = Self { text, needles, block: 0, found: 0 };
        new.found = new.compare(0);
        new
    }

    /// The position of the first byte at or after `from` that ends a field, or the length of the
    /// text. `from` must not be less than the previous result.
    #[inline]
    pub fn next(&mut self, from: usize) -> usize {
        if from >= self.block + BLOCK {
            self.block = from - from % BLOCK;
            self.found = self.compare(self.block);
        }
        let skipped = from - self.block;
        self.found &= u64::MAX.checked_shl(skipped as u32).unwrap_or(0);
        while self.found == 0 {
            self.block += BLOCK;
            if self.block >= self.text.len() {
                return self.text.len();
            }
            self.found = self.compare(self.block);
        }
        self.block + self.found.trailing_zeros() as usize
    }

    #[inline]
    fn compare(&self, block: usize) -> u64 {
        let rest = self.text.get(block..).unwrap_or_default();
        match rest.first_chunk::<BLOCK>() {
            Some(bytes) => self.compare_block(bytes),
            None => {
                let mut bytes = [0; BLOCK];
                for (to, from) in bytes.iter_mut().zip(rest) {
                    *to = *from;
                }
                // No needle is 0, so the padding does not match.
                self.compare_block(&bytes)
            }
        }
    }

    #[inline]
    fn compare_block(&self, bytes: &[u8; BLOCK]) -> u64 {
        let mut found = 0;
        for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let matches = self.needles.iter().fold(0, |all, needle| all | zero_bytes(word ^ needle));
            // Collects the highest bit of each byte in the highest byte.
            found |= ((matches >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
        }
        found
    }
}

/// Sets the highest bit of each byte that is 0, and clears all other bits.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_search_byte_by_byte_finds() {
        let mut random = 7u32;
        for len in (0..200).chain([1000, 4096]) {
            let text: Vec<u8> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // Bytes that differ from a needle in one bit are the most likely mistakes.
                    b",\n\r-\x0c\x8c\x8a\x8d\0\xffab"[(random >> 24) as usize % 12]
                })
                .collect();
            for step in [1, 3, 70] {
                let mut specials = Specials::new(&text, b',');
                let mut at = 0;
                while at < len {
                    let expected =
                        text[at..].iter().position(|b| b",\n\r".contains(b)).map_or(len, |n| at + n);
                    assert_eq!(specials.next(at), expected, "{len} {at}");
                    at = expected + step;
                }
            }
        }
    }
}
