//! FSST: texts in which one byte stands for up to eight, by a table of at most 255 symbols.
//!
//! Code 255 says that the next byte stands for itself.

use crossdock_plugin_api::{Error, Result};

use super::coded::{self, Coder, GROUP, NO_START, ROOM, Starts, Told};
use super::words::Index;

/// Bytes of the longest symbol: to how many a code decodes at most.
pub const SYMBOL_BYTES: usize = 8;

/// The code that says that the next byte stands for itself.
const ESCAPE: u8 = 255;

/// Codes that are taken together.
const BLOCK: usize = 8;

/// What codes stand for.
pub struct Symbols {
    bytes: [[u8; SYMBOL_BYTES]; 256],
    lengths: [Length; 256],
    others: Others,
}

/// How many bytes of a symbol count. A type of its own, so that the compiler knows that there are no more.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Length {
    /// Of codes that are no symbols.
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
    /// The table in an array's first two buffers: 8 bytes for each symbol, of which as many count as its length says.
    pub fn read(symbols: &[u8], lengths: &[u8]) -> Result<Self> {
        let (symbols, rest) = symbols.as_chunks();
        if !rest.is_empty() || symbols.len() != lengths.len() || lengths.len() > usize::from(ESCAPE) {
            return Err(Error::bad_data(format!(
                "fsst: {} bytes of symbols and {} lengths, expected 8 bytes for each of at most 255",
                symbols.len() * SYMBOL_BYTES + rest.len(),
                lengths.len()
            )));
        }
        let others = Others::than(lengths.len() as u64);
        let mut table = Self { bytes: [[0; SYMBOL_BYTES]; 256], lengths: [Length::None; 256], others };
        for (i, (symbol, length)) in symbols.iter().zip(lengths).enumerate() {
            let known = usize::from(*length).checked_sub(1).and_then(|n| Length::ALL.get(n));
            table.lengths[i] = *known.ok_or_else(|| {
                Error::bad_data(format!("fsst: symbol {i} has {length} bytes, expected 1 to {SYMBOL_BYTES}"))
            })?;
            table.bytes[i] = *symbol;
        }
        Ok(table)
    }

    /// Decodes values into `out`, which they have to fill: value `i` has the codes from `offsets[i]` to `offsets[i + 1]`,
    /// and `lengths[i]` bytes. Nulls have a range and a length, too.
    ///
    /// `told` is told of them in turn. On an error some may have been decoded already.
    pub fn decode<O: Index, L: Index>(
        &self,
        codes: &[u8],
        offsets: &[O],
        lengths: &[L],
        out: &mut [u8],
        told: &mut Told<'_>,
    ) -> Result<()> {
        coded::decode(self, codes, offsets, lengths, out, told).map_err(|e| e.context("fsst"))
    }
}

impl Coder for Symbols {
    type Code = u8;

    #[inline(never)]
    fn group(&self, codes: &[u8], room: &mut [u8; ROOM], starts: &mut Starts) -> (usize, usize) {
        const MOST: usize = GROUP * SYMBOL_BYTES;
        let (mut code, mut byte) = (0, 0);
        while let (Some(block), Some(starts)) = (
            codes.get(code..).and_then(|rest| rest.first_chunk::<BLOCK>()),
            starts.get_mut(code..).and_then(|rest| rest.first_chunk_mut::<BLOCK>()),
        ) {
            let word = u64::from_le_bytes(*block);
            // It is never more than that, which the compiler cannot know.
            let mut at = byte % MOST;
            for (i, start) in starts.iter_mut().enumerate() {
                let code = usize::from((word >> (8 * i)) as u8);
                *start = at as u16;
                room[at..at + SYMBOL_BYTES].copy_from_slice(&self.bytes[code]);
                at += self.lengths[code] as usize;
            }
            let others = self.others.in_block(word);
            if others == 0 {
                code += BLOCK;
                byte = at;
                continue;
            }
            // What was written from the first one on will be written over.
            let n = others.trailing_zeros() as usize / 8;
            code += n;
            byte = starts[n].into();
            if let Some(&[ESCAPE, itself]) = block.get(n..n + 2) {
                room[byte % MOST] = itself;
                starts[n + 1] = NO_START;
                code += 2;
                byte += 1;
            } else if n == 0 {
                break;
            }
        }
        (code, byte)
    }

    fn one(&self, codes: &[u8], room: &mut [u8; ROOM], starts: &mut Starts) -> (usize, usize) {
        let (value, taken) = match *codes {
            [ESCAPE, itself, ..] => ([itself, 0, 0, 0, 0, 0, 0, 0], (2, 1)),
            [code, ..] => {
                let length = self.lengths[usize::from(code)] as usize;
                (self.bytes[usize::from(code)], (usize::from(length > 0), length))
            }
            [] => return (0, 0),
        };
        room[..SYMBOL_BYTES].copy_from_slice(&value);
        starts[..2].copy_from_slice(&[0, NO_START]);
        taken
    }

    #[cold]
    fn refuse(&self, codes: &[u8], value: usize) -> Error {
        match codes.first() {
            Some(&ESCAPE) => Error::bad_data(format!("value {value} ends in the middle of a code")),
            code => Error::bad_data(format!(
                "value {value} has code {}, expected one of {} symbols or {ESCAPE}",
                code.copied().unwrap_or_default(),
                self.lengths.iter().filter(|length| !matches!(length, Length::None)).count()
            )),
        }
    }
}

/// Codes that are no symbols, looked for in eight codes at once.
#[derive(Clone, Copy)]
struct Others {
    carry: u64,
    high: u64,
}

impl Others {
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);

    /// Codes from `count` on.
    fn than(count: u64) -> Self {
        // What carries the seven low bits of the first such code into the eighth bit, of each byte. Below 128, codes with
        // the eighth bit set are such codes, too; from 128 on, only they are.
        let (least, high) = if count < 128 { (count, u64::MAX) } else { (count - 128, 0) };
        Self { carry: u64::from_ne_bytes([1; 8]) * (128 - least), high }
    }

    /// The highest bit of each such byte.
    #[inline(always)]
    fn in_block(self, word: u64) -> u64 {
        let carried = (word & !Self::HIGH).wrapping_add(self.carry);
        ((carried & (word | self.high)) | (word & self.high)) & Self::HIGH
    }
}

#[cfg(test)]
#[path = "fsst_tests.rs"]
mod tests;
