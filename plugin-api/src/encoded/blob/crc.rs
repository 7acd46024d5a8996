//! Computes the CRC-32 that zlib, PNG and Ethernet use (reflected, polynomial 0x04c11db7).

/// The remainder for each value of a byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// The state of a checksum.
pub struct Crc32(u32);

impl Crc32 {
    /// Creates the state before the first byte.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Returns the state after `bytes`.
    pub fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |value, byte| {
            let [low, ..] = value.to_le_bytes();
            value >> 8 ^ TABLE[usize::from(low ^ byte)]
        }))
    }

    /// The checksum of all bytes that were added.
    pub fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_checksum_of_zlib() {
        assert_eq!(Crc32::new().with(b"123456789").value(), 0xcbf4_3926);
        assert_eq!(Crc32::new().with(b"1234").with(b"").with(b"56789").value(), 0xcbf4_3926);
        assert_eq!(Crc32::new().value(), 0);
    }
}
