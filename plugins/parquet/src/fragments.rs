//! The tokens of fragments, which are row groups.

use std::ops::Range;

use crossdock_plugin_api::{Error, Result};

/// The row groups that a token identifies, and the file for which they were listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The first row group.
    pub begin: u64,
    /// The row group after the last row group.
    pub end: u64,
    /// The number of row groups of the file.
    pub n_groups: u64,
    /// The number of rows of the file.
    pub n_rows: u64,
    /// The length of the file.
    pub file_bytes: u64,
}

const VERSION: u8 = 1;

impl Token {
    pub fn write(&self) -> Vec<u8> {
        let numbers = [self.begin, self.end, self.n_groups, self.n_rows, self.file_bytes];
        std::iter::once(VERSION).chain(numbers.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    fn read(token: &[u8]) -> Option<Self> {
        let (VERSION, numbers) = token.split_first().map(|(version, rest)| (*version, rest))? else {
            return None;
        };
        let ([begin, end, n_groups, n_rows, file_bytes], []) = numbers.as_chunks::<8>() else { return None };
        let [begin, end, n_groups, n_rows, file_bytes] =
            [begin, end, n_groups, n_rows, file_bytes].map(|n| u64::from_le_bytes(*n));
        Some(Self { begin, end, n_groups, n_rows, file_bytes })
    }

    /// Reads a token, which may contain any bytes. Returns its row groups.
    ///
    /// # Errors
    /// Bad data if the token is not one of a file with these numbers.
    pub fn find(token: &[u8], n_groups: u64, n_rows: u64, file_bytes: u64) -> Result<Range<u64>> {
        let found = Self::read(token).filter(|token| {
            let of_file = (token.n_groups, token.n_rows, token.file_bytes);
            token.begin <= token.end && token.end <= n_groups && of_file == (n_groups, n_rows, file_bytes)
        });
        found.map(|token| token.begin..token.end).ok_or_else(|| {
            Error::bad_data(
                "the token of the fragment does not name row groups of this file: list the fragments again",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_finds_only_row_groups_of_the_same_file() {
        let token = Token { begin: 1, end: 2, n_groups: 3, n_rows: 30, file_bytes: 1000 };
        let bytes = token.write();
        assert_eq!(Token::find(&bytes, 3, 30, 1000).unwrap(), 1..2);
        assert!(Token::find(&bytes, 4, 30, 1000).is_err());
        assert!(Token::find(&bytes, 3, 31, 1000).is_err());
        assert!(Token::find(&bytes, 3, 30, 999).is_err());
        for end in 0..bytes.len() {
            assert!(Token::find(bytes.get(..end).unwrap(), 3, 30, 1000).is_err(), "{end}");
        }
        for (begin, end) in [(2, 1), (0, 4)] {
            let token = Token { begin, end, ..token }.write();
            assert!(Token::find(&token, 3, 30, 1000).is_err(), "{begin} to {end}");
        }
    }
}
