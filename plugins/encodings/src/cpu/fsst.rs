//! Decodes FSST: each byte is the code of up to 8 bytes in a table of at most 255 symbols.
//!
//! Code 255 is the escape: the next byte is literal.

use crossdock_plugin_api::{Error, Result};

use super::coded::{self, Coder, GROUP, NO_START, OUTPUT_BYTES, Progress, Starts};
use super::words::Index;

/// Maximum size of a symbol.
pub const SYMBOL_BYTES: usize = 8;

/// The code before a literal byte.
const ESCAPE: u8 = 255;

/// Number of codes that are decoded at a time.
const BLOCK: usize = 8;

/// The symbol table.
pub struct Symbols {
    bytes: [[u8; SYMBOL_BYTES]; 256],
    lengths: [Length; 256],
    unknown: UnknownCodes,
}

/// The size of a symbol. The type is an enum, so that the compiler can derive the maximum and omit
/// bounds checks.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Length {
    /// The code is not a symbol.
    None,
    One,
    Two,
    Three,
    Four,
    Five,
    Six,
    Seven,
    Eight,
}

impl Length {
    const ALL: [Self; SYMBOL_BYTES] =
        [Self::One, Self::Two, Self::Three, Self::Four, Self::Five, Self::Six, Self::Seven, Self::Eight];
}

impl Symbols {
    /// Reads the table from an array's first two buffers. The first buffer has 8 bytes per symbol.
    /// The second one has the length of each symbol in bytes.
    pub fn read(symbols: &[u8], lengths: &[u8]) -> Result<Self> {
        let (symbols, rest) = symbols.as_chunks();
        if !rest.is_empty() || symbols.len() != lengths.len() || lengths.len() > usize::from(ESCAPE) {
            return Err(Error::bad_data(format!(
                "fsst: {} bytes of symbols and {} lengths, expected 8 bytes per symbol and at most 255 symbols",
                symbols.len() * SYMBOL_BYTES + rest.len(),
                lengths.len()
            )));
        }
        let unknown = UnknownCodes::from_count(lengths.len() as u64);
        let mut table = Self { bytes: [[0; SYMBOL_BYTES]; 256], lengths: [Length::None; 256], unknown };
        for (i, (symbol, length)) in symbols.iter().zip(lengths).enumerate() {
            let known = usize::from(*length).checked_sub(1).and_then(|n| Length::ALL.get(n));
            table.lengths[i] = *known.ok_or_else(|| {
                Error::bad_data(format!("fsst: symbol {i} has {length} bytes, expected 1 to {SYMBOL_BYTES}"))
            })?;
            table.bytes[i] = *symbol;
        }
        Ok(table)
    }

    /// Decodes values into `out`. The values must fill `out` exactly. Value `i` has the codes from
    /// `offsets[i]` to `offsets[i + 1]` and `lengths[i]` bytes. Nulls have a range and a length
    /// too.
    ///
    /// After an error, some values may have been decoded.
    pub fn decode<O: Index, L: Index>(
        &self,
        codes: &[u8],
        offsets: &[O],
        lengths: &[L],
        out: &mut [u8],
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        coded::decode(self, codes, offsets, lengths, out, progress).map_err(|e| e.context("fsst"))
    }
}

impl Coder for Symbols {
    type Code = u8;

    #[inline(never)]
    fn group(&self, codes: &[u8], output: &mut [u8; OUTPUT_BYTES], starts: &mut Starts) -> (usize, usize) {
        const MAX_GROUP_BYTES: usize = GROUP * SYMBOL_BYTES;
        let (mut code, mut byte) = (0, 0);
        while let (Some(block), Some(starts)) = (
            codes.get(code..).and_then(|rest| rest.first_chunk::<BLOCK>()),
            starts.get_mut(code..).and_then(|rest| rest.first_chunk_mut::<BLOCK>()),
        ) {
            let word = u64::from_le_bytes(*block);
            // `%` never changes `byte`; it lets the compiler omit bounds checks.
            let mut at = byte % MAX_GROUP_BYTES;
            for (i, start) in starts.iter_mut().enumerate() {
                let code = usize::from((word >> (8 * i)) as u8);
                *start = at as u16;
                output[at..at + SYMBOL_BYTES].copy_from_slice(&self.bytes[code]);
                at += self.lengths[code] as usize;
            }
            let unknown = self.unknown.in_block(word);
            if unknown == 0 {
                code += BLOCK;
                byte = at;
                continue;
            }
            // The output after the first unknown code is discarded or overwritten.
            let n = unknown.trailing_zeros() as usize / 8;
            code += n;
            byte = starts[n].into();
            if let Some(&[ESCAPE, literal]) = block.get(n..n + 2) {
                output[byte % MAX_GROUP_BYTES] = literal;
                starts[n + 1] = NO_START;
                code += 2;
                byte += 1;
            } else if n == 0 {
                break;
            }
        }
        (code, byte)
    }

    fn one(&self, codes: &[u8], output: &mut [u8; OUTPUT_BYTES], starts: &mut Starts) -> (usize, usize) {
        let (value, taken) = match *codes {
            [ESCAPE, literal, ..] => ([literal, 0, 0, 0, 0, 0, 0, 0], (2, 1)),
            [code, ..] => {
                let length = self.lengths[usize::from(code)] as usize;
                (self.bytes[usize::from(code)], (usize::from(length > 0), length))
            }
            [] => return (0, 0),
        };
        output[..SYMBOL_BYTES].copy_from_slice(&value);
        starts[..2].copy_from_slice(&[0, NO_START]);
        taken
    }

    #[cold]
    fn error_at(&self, codes: &[u8], value: usize) -> Error {
        match codes.first() {
            Some(&ESCAPE) => Error::bad_data(format!("value {value} ends in the middle of a code")),
            code => Error::bad_data(format!(
                "value {value} has code {}, expected a code below {} or the escape code {ESCAPE}",
                code.copied().unwrap_or_default(),
                self.lengths.iter().filter(|length| !matches!(length, Length::None)).count()
            )),
        }
    }
}

/// Finds codes that are not symbols among eight codes.
#[derive(Clone, Copy)]
struct UnknownCodes {
    carry: u64,
    high: u64,
}

impl UnknownCodes {
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);

    /// Codes from `count` on are unknown. The escape is also an unknown code, so the caller must
    /// handle escapes.
    fn from_count(count: u64) -> Self {
        // Adding `carry` sets the eighth bit of each byte whose seven low bits are at least
        // `least`. If `count` is below 128, all codes with the eighth bit set are unknown too.
        // Otherwise, only codes with the eighth bit set can be unknown.
        let (least, high) = if count < 128 { (count, u64::MAX) } else { (count - 128, 0) };
        Self { carry: u64::from_ne_bytes([1; 8]) * (128 - least), high }
    }

    /// The highest bit of each byte with an unknown code.
    #[inline(always)]
    fn in_block(self, word: u64) -> u64 {
        let carried = (word & !Self::HIGH).wrapping_add(self.carry);
        ((carried & (word | self.high)) | (word & self.high)) & Self::HIGH
    }
}

#[cfg(test)]
#[path = "fsst_tests.rs"]
mod tests;
