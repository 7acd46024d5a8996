//! Computes the CRC-32 of zip members (reflected, polynomial 0x04c11db7), 8 bytes per step.

/// `TABLES[k][b]` is the remainder of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before >> 8 ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
};

/// The state of a checksum.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

impl Crc32 {
    /// The state before the first byte.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
        for [a, b, c, d, e, f, g, h] in words {
            let [w, x, y, z] = (self.0 ^ u32::from_le_bytes([*a, *b, *c, *d])).to_le_bytes().map(usize::from);
            let [e, f, g, h] = [*e, *f, *g, *h].map(usize::from);
            self.0 = t7[w] ^ t6[x] ^ t5[y] ^ t4[z] ^ t3[e] ^ t2[f] ^ t1[g] ^ t0[h];
        }
        for byte in rest {
            let [low, ..] = self.0.to_le_bytes();
            self.0 = self.0 >> 8 ^ t0[usize::from(low ^ byte)];
        }
    }

    /// The checksum of all bytes that were added.
    pub fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_checksum_of_zlib() {
        let crc = |parts: &[&[u8]]| {
            let mut crc = Crc32::new();
            parts.iter().for_each(|part| crc.add(part));
            crc.value()
        };
        assert_eq!(crc(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc(&[]), 0);
        // The value of `zlib.crc32(bytes(range(256)))` in Python.
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(crc(&[&all]), 0x2905_8c73);
    }
}
