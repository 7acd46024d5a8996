//! Divides the record batches of a file into fragments.

use std::ops::Range;

use crossdock_memory::Result;
use crossdock_plugin_api::Error;

use crate::wire::Block;

/// The minimum size of a fragment, unless the file ends. Opening a fragment reads the footer and
/// the dictionaries again, which must take little time compared to reading the fragment.
const MIN_BYTES: u64 = 16 << 20;

/// Divides record batches into ranges of consecutive batches of at least [`MIN_BYTES`] bytes. Only
/// the last range may be smaller.
pub fn divide(batches: &[Block]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (i, block) in batches.iter().enumerate() {
        bytes += size(block);
        if bytes >= MIN_BYTES || i + 1 == batches.len() {
            ranges.push(begin..i + 1);
            (begin, bytes) = (i + 1, 0);
        }
    }
    ranges
}

/// The size of a message in bytes.
pub fn size(block: &Block) -> u64 {
    block.end().saturating_sub(block.offset)
}

/// The piece of an input that a token identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Record batches of a file.
    Batches {
        /// The positions of the batches in the file.
        range: Range<usize>,
        /// The number of batches of the file.
        n_batches: usize,
        /// The position of the first of the batches, in bytes.
        begin: u64,
        /// The position of the end of the last of the batches, in bytes.
        end: u64,
    },
    /// A stream.
    Stream,
}

const BATCHES: u8 = 1;
const STREAM: u8 = 2;

impl Piece {
    /// The batches `range` of a file.
    pub fn of(batches: &[Block], range: Range<usize>) -> Option<Self> {
        let piece = batches.get(range.clone())?;
        let (first, last) = (piece.first()?, piece.last()?);
        Some(Self::Batches { range, n_batches: batches.len(), begin: first.offset, end: last.end() })
    }

    pub fn token(&self) -> Vec<u8> {
        match self {
            Self::Stream => vec![STREAM],
            Self::Batches { range, n_batches, begin, end } => {
                let numbers = [range.start as u64, range.end as u64, *n_batches as u64, *begin, *end];
                let mut token = vec![BATCHES];
                token.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
                token
            }
        }
    }

    /// Reads a token, which may contain any bytes.
    fn read(token: &[u8]) -> Option<Self> {
        let (kind, rest) = token.split_first()?;
        match (*kind, rest.as_chunks::<8>()) {
            (STREAM, ([], [])) => Some(Self::Stream),
            (BATCHES, ([from, to, n_batches, begin, end], [])) => {
                let number = |bytes: &[u8; 8]| usize::try_from(u64::from_le_bytes(*bytes)).ok();
                let (begin, end) = (u64::from_le_bytes(*begin), u64::from_le_bytes(*end));
                let range = number(from)?..number(to)?;
                Some(Self::Batches { range, n_batches: number(n_batches)?, begin, end })
            }
            _ => None,
        }
    }

    /// Returns the batches that a token identifies. `batches` are those of a file; `None` for a
    /// stream, for which the result is `None`.
    ///
    /// # Errors
    /// Bad data if the token is not one of this input.
    pub fn find(token: &[u8], batches: Option<&[Block]>) -> Result<Option<Range<usize>>> {
        let piece = Self::read(token);
        match (&piece, batches) {
            (Some(Self::Stream), None) => return Ok(None),
            (Some(Self::Batches { range, .. }), Some(batches))
                if Self::of(batches, range.clone()) == piece =>
            {
                return Ok(Some(range.clone()));
            }
            _ => {}
        }
        Err(Error::bad_data(
            "the token of the fragment does not name record batches of this input: list the fragments again",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(sizes: &[u64]) -> Vec<Block> {
        let mut offset = 64;
        let block = |size: &u64| {
            let block = Block { offset, metadata_bytes: 8, body_bytes: size - 8 };
            offset = block.end();
            block
        };
        sizes.iter().map(block).collect()
    }

    #[test]
    fn fragments_have_a_useful_size_and_contain_each_batch_once() {
        const MIB: u64 = 1 << 20;
        assert_eq!(divide(&blocks(&[])), []);
        assert_eq!(divide(&blocks(&[8, 8, 8])), [0..3]);
        assert_eq!(divide(&blocks(&[16 * MIB, 8, 40 * MIB, 15 * MIB, 8])), [0..1, 1..3, 3..5]);
        assert_eq!(divide(&blocks(&[16 * MIB, 16 * MIB])), [0..1, 1..2]);
    }

    #[test]
    fn token_finds_only_batches_of_the_same_file() {
        let batches = blocks(&[100, 200, 300]);
        let token = Piece::of(&batches, 1..3).unwrap().token();
        assert_eq!(Piece::find(&token, Some(&batches)).unwrap(), Some(1..3));
        assert_eq!(Piece::find(&Piece::Stream.token(), None).unwrap(), None);
        assert!(Piece::find(&token, None).is_err());
        assert!(Piece::find(&Piece::Stream.token(), Some(&batches)).is_err());
        for other in [blocks(&[100, 200]), blocks(&[100, 200, 301]), blocks(&[101, 200, 300]), blocks(&[])] {
            assert!(Piece::find(&token, Some(&other)).is_err());
        }
    }

    #[test]
    fn changed_tokens_are_errors() {
        let batches = blocks(&[100, 200, 300]);
        let token = Piece::of(&batches, 1..2).unwrap().token();
        for end in 0..token.len() {
            assert!(Piece::find(&token[..end], Some(&batches)).is_err(), "{end}");
        }
        for (i, bit) in (0..token.len()).flat_map(|i| (0..8).map(move |bit| (i, bit))) {
            let mut changed = token.clone();
            changed[i] ^= 1 << bit;
            assert!(Piece::find(&changed, Some(&batches)).is_err(), "byte {i}, bit {bit}");
        }
        let mut longer = token;
        longer.push(0);
        assert!(Piece::find(&longer, Some(&batches)).is_err());
    }
}
