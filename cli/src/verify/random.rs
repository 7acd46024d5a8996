//! Random numbers from a seed: SplitMix64, with the same results on every machine and in every
//! release.

/// A generator of pseudorandom numbers.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Different purposes give independent sequences from the same seed.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// A copy in which a few bytes are changed, removed or inserted.
    pub fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                2 => bytes.insert(at, self.next() as u8),
                3 if bytes.len() >= at + 4 => bytes[at..at + 4].copy_from_slice(&[0xff; 4]),
                _ => {
                    let edge = EDGES[self.below(EDGES.len())];
                    let value = if self.below(2) == 0 { edge } else { self.next() as u8 };
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = value;
                    }
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_purpose_give_the_same_numbers() {
        let of = |seed, purpose| Random::new(seed, purpose).bytes(8);
        assert_eq!(of(1, "a"), of(1, "a"));
        assert_ne!(of(1, "a"), of(2, "a"));
        assert_ne!(of(1, "a"), of(1, "b"));
        assert_eq!(Random::new(3, "m").mutated(b"some bytes"), Random::new(3, "m").mutated(b"some bytes"));
        assert_eq!(Random::new(3, "m").below(0), 0);
        (0..100).for_each(|seed| drop(Random::new(seed, "empty").mutated(&[])));
    }
}
