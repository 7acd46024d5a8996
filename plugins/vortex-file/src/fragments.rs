//! Divides the rows of a file into fragments.

use std::cmp::Reverse;
use std::ops::Range;

use crossdock_memory::Result;
use crossdock_plugin_api::Error;

/// The minimum size of a fragment, unless the file ends. Opening a fragment reads the footer again,
/// which must take little time compared to reading the fragment.
const MIN_BYTES: u64 = 16 << 20;

/// The part of a file's bytes in columns whose chunks may have more rows than a fragment. Such a
/// chunk is read for each fragment that needs it.
const SHARED_PARTS: u64 = 8;

/// The chunks of a column.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// The mean number of rows.
    pub rows: u64,
    /// The size of all chunks.
    pub bytes: u64,
}

/// The number of rows of a fragment of a file whose columns have these chunks.
pub fn rows_of_fragment(n_rows: u64, file_bytes: u64, mut columns: Vec<Chunks>) -> u64 {
    let n_fragments = (file_bytes / MIN_BYTES).max(1);
    let least = n_rows.div_ceil(n_fragments).max(1);
    columns.sort_by_key(|chunks| Reverse(chunks.rows));
    let bytes =
        |columns: &[Chunks]| columns.iter().fold(0u64, |sum, chunks| sum.saturating_add(chunks.bytes));
    let may_be_shared = bytes(&columns) / SHARED_PARTS;
    let mut shared = 0u64;
    let whole = columns.iter().find(|chunks| {
        shared = shared.saturating_add(chunks.bytes);
        shared > may_be_shared
    });
    whole.map_or(least, |chunks| least.max(chunks.rows))
}

/// The rows that a token identifies, and the file for which they were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The first row.
    pub begin: u64,
    /// The row after the last row.
    pub end: u64,
    /// The number of rows of the file.
    pub n_rows: u64,
    /// The length of the file.
    pub file_bytes: u64,
}

const VERSION: u8 = 1;

impl Token {
    pub fn write(&self) -> Vec<u8> {
        let numbers = [self.begin, self.end, self.n_rows, self.file_bytes];
        std::iter::once(VERSION).chain(numbers.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    /// Reads a token, which may contain any bytes. Returns its rows.
    ///
    /// # Errors
    /// Bad data if the token is not one of a file with these numbers of rows and bytes.
    pub fn find(token: &[u8], n_rows: u64, file_bytes: u64) -> Result<Range<u64>> {
        let read = || {
            let (VERSION, numbers) = token.split_first().map(|(version, rest)| (*version, rest))? else {
                return None;
            };
            let ([begin, end, n_rows, file_bytes], []) = numbers.as_chunks::<8>() else { return None };
            let [begin, end, n_rows, file_bytes] =
                [begin, end, n_rows, file_bytes].map(|n| u64::from_le_bytes(*n));
            Some(Self { begin, end, n_rows, file_bytes })
        };
        match read() {
            Some(token)
                if token.begin <= token.end
                    && token.end <= n_rows
                    && (token.n_rows, token.file_bytes) == (n_rows, file_bytes) =>
            {
                Ok(token.begin..token.end)
            }
            _ => Err(Error::bad_data(
                "the token of the fragment does not name rows of this file: list the fragments again",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_a_useful_size() {
        assert_eq!(rows_of_fragment(1000, 100, Vec::new()), 1000);
        assert_eq!(rows_of_fragment(1000, 33 << 20, Vec::new()), 500);
        assert_eq!(rows_of_fragment(0, 0, Vec::new()), 1);
    }

    #[test]
    fn fragments_have_the_chunks_of_most_bytes() {
        let rows = |columns: &[(u64, u64)]| {
            let columns = columns.iter().map(|&(rows, bytes)| Chunks { rows, bytes }).collect();
            rows_of_fragment(1000, 160 << 20, columns)
        };
        assert_eq!(rows(&[(50, 10), (20, 10)]), 100, "several chunks");
        assert_eq!(rows(&[(50, 10), (300, 10), (400, 10)]), 400);
        assert_eq!(rows(&[(50, 70), (300, 29), (1000, 1)]), 300, "a small column in one chunk");
        assert_eq!(rows(&[(1000, u64::MAX), (1000, u64::MAX)]), 1000);
        assert_eq!(rows(&[(1000, 0)]), 100, "a column without bytes");
    }

    #[test]
    fn token_finds_only_rows_of_the_same_file() {
        let token = Token { begin: 10, end: 20, n_rows: 30, file_bytes: 1000 }.write();
        assert_eq!(Token::find(&token, 30, 1000).unwrap(), 10..20);
        assert!(Token::find(&token, 31, 1000).is_err());
        assert!(Token::find(&token, 30, 999).is_err());
        for end in 0..token.len() {
            assert!(Token::find(&token[..end], 30, 1000).is_err(), "{end}");
        }
        for (begin, end) in [(20, 10), (0, 31)] {
            let token = Token { begin, end, n_rows: 30, file_bytes: 1000 }.write();
            assert!(Token::find(&token, 30, 1000).is_err(), "{begin} to {end}");
        }
    }
}
