//! Changes bytes at random.

use crossdock_test_support::Random;

/// The random choices of a case. They depend only on the seed and the number of the case.
pub struct Mutator(Random);

/// Extreme values for lengths, offsets, counts and ids.
const EXTREMES: [i64; 18] = [
    0,
    1,
    -1,
    2,
    7,
    63,
    64,
    255,
    i16::MAX as i64,
    i16::MIN as i64,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    u32::MAX as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
    i64::MAX - 63,
];

impl Mutator {
    pub fn for_case(seed: u64, case: u64) -> Self {
        Self(Random::of(&[seed, case]))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.0.one_in(n)
    }

    pub fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        *self.0.pick(list)
    }

    pub fn pick<'a>(&mut self, seeds: &'a [(String, Vec<u8>)]) -> (&'a str, &'a [u8]) {
        let (name, bytes) = self.0.pick(seeds);
        (name, bytes)
    }

    /// A copy of `whole` with one or a few changes. One copy in fifty is unchanged.
    pub fn changed(&mut self, whole: &[u8], seeds: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        if self.one_in(50) {
            return bytes;
        }
        let changes = 1 + if self.one_in(2) { 0 } else { self.below(6) };
        for _ in 0..changes {
            self.change(&mut bytes, seeds);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[(String, Vec<u8>)]) {
        if bytes.is_empty() {
            return;
        }
        let at = self.place(bytes.len());
        match self.below(16) {
            0..=3 => bytes[at] ^= 1 << self.below(8),
            4 => bytes[at] = self.0.word() as u8,
            // Overwrite an aligned number.
            5..=11 => {
                let width = self.choose(&[1, 2, 4, 4, 8, 8]);
                let at = at / width * width;
                let value = match self.below(8) {
                    0 => bytes.len() as i64,
                    1 => self.below(2 * bytes.len()) as i64,
                    _ => self.choose(&EXTREMES),
                };
                if let Some(to) = bytes.get_mut(at..at + width) {
                    to.copy_from_slice(&value.to_le_bytes()[..width]);
                }
            }
            // Change a number by a small step, so that some lengths are slightly too long.
            12 => {
                let at = at / 4 * 4;
                if let Some(to) = bytes.get_mut(at..at + 4) {
                    let old = u32::from_le_bytes([to[0], to[1], to[2], to[3]]);
                    let step = self.choose(&[1, 2, 8, 64, u32::MAX, u32::MAX - 7]);
                    to.copy_from_slice(&old.wrapping_add(step).to_le_bytes());
                }
            }
            13 => bytes.truncate(at),
            // Insert a part of another seed, or overwrite bytes with it.
            14 => {
                let (_, other) = self.pick(seeds);
                let from = self.below(other.len()) / 8 * 8;
                let n = (1 + self.below(64)) * 8;
                let piece = &other[from..other.len().min(from + n)];
                let at = at / 8 * 8;
                let end = if self.one_in(2) { at } else { bytes.len().min(at + piece.len()) };
                bytes.splice(at..end, piece.iter().copied());
            }
            // Remove or repeat a part.
            _ => {
                let at = at / 8 * 8;
                let end = bytes.len().min(at + 8 * (1 + self.below(16)));
                let piece = bytes[at..end].to_vec();
                let again = if self.one_in(2) { Vec::new() } else { piece.repeat(2) };
                bytes.splice(at..end, again);
            }
        }
    }

    /// A random position. Positions near the beginning and the end are more frequent, because the
    /// schema and the footer are there.
    fn place(&mut self, bytes: usize) -> usize {
        match self.below(4) {
            0 => self.below(bytes.min(600)),
            1 => bytes - 1 - self.below(bytes.min(1500)),
            _ => self.below(bytes),
        }
    }
}
