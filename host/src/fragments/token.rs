//! The tokens of fragments that users store and send: the plugin's token, with what it belongs to.

use std::ops::Range;

use crossdock_plugin_api::{Error as ApiError, abi};
use sha2::Digest;

use crate::error::{Error, Result};
use crate::source::Identity;

/// The first bytes of a token.
const MAGIC: &[u8; 7] = b"XDFRAGM";
/// The version of the layout of a token.
const VERSION: u8 = 1;
/// The size of the hash of all other bytes, at the end. It finds damage; it does not authenticate.
const HASH_BYTES: usize = 16;
/// The greatest number of ranges of rows.
const MAX_RANGES: usize = 1 << 20;

const FILE: u8 = 0;
const BYTES: u8 = 1;

/// Names a piece of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The reader of the input: the plugin's name and version, and the format.
    pub reader: ReaderName,
    pub input: Identity,
    /// The plugin's token; `None` for the whole input.
    pub piece: Option<Vec<u8>>,
    /// The rows, as positions in the piece; `None` for all rows.
    pub rows: Option<Vec<Range<u64>>>,
}

/// A plugin and a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReaderName {
    pub plugin: String,
    pub version: String,
    pub format: String,
}

impl Token {
    /// # Errors
    /// [`Error::Usage`] if there are too many ranges of rows.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut to = [MAGIC.as_slice(), &[VERSION]].concat();
        for text in [&self.reader.plugin, &self.reader.version, &self.reader.format] {
            put_bytes(&mut to, text.as_bytes());
        }
        match &self.input {
            Identity::File { bytes, inode, changed_s, changed_ns } => {
                to.push(FILE);
                put_numbers(&mut to, [*bytes, *inode, *changed_s as u64, *changed_ns as u64]);
            }
            Identity::Bytes { bytes, hash } => {
                to.push(BYTES);
                put_numbers(&mut to, [*bytes]);
                to.extend(hash);
            }
        }
        to.push(self.piece.is_some().into());
        put_bytes(&mut to, self.piece.as_deref().unwrap_or_default());
        to.push(self.rows.is_some().into());
        let rows = self.rows.as_deref().unwrap_or_default();
        if rows.len() > MAX_RANGES {
            return Err(Error::usage(format!(
                "a fragment has {} ranges of rows, expected at most {MAX_RANGES}",
                rows.len()
            )));
        }
        put_numbers(&mut to, [rows.len() as u64]);
        rows.iter().for_each(|range| put_numbers(&mut to, [range.start, range.end]));
        let hash = hash(&to);
        to.extend(hash);
        Ok(to)
    }

    /// Reads a token, which may contain any bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not a token, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let Some(rest) = bytes.strip_prefix(MAGIC.as_slice()) else {
            return Err(Error::usage(format!(
                "fragment: {} bytes that are not the token of a fragment",
                bytes.len()
            )));
        };
        let version = rest.first().copied();
        if let Some(version) = version.filter(|version| *version != VERSION) {
            return Err(Error::usage(format!(
                "fragment: the token has the version {version}, expected {VERSION}: list the fragments again with this release"
            )));
        }
        let damaged =
            || Error::usage(format!("fragment: the token of {} bytes is damaged or incomplete", bytes.len()));
        let (content, stored) = bytes.split_last_chunk::<HASH_BYTES>().ok_or_else(damaged)?;
        if hash(content) != *stored {
            return Err(damaged());
        }
        let content = content.get(MAGIC.len() + 1..).ok_or_else(damaged)?;
        Cursor(content).token().ok_or_else(damaged)
    }

    /// Checks that the token belongs to the input `name`.
    ///
    /// # Errors
    /// [`Error::Usage`] if another plugin, or another version of the plugin, reads the input.
    /// [`Error::Data`] if the token is of another input, or the input has changed.
    pub fn check(&self, name: &str, reader: &ReaderName, input: &Identity) -> Result<()> {
        if self.reader != *reader {
            let text = |name: &ReaderName| format!("{} {} as {}", name.plugin, name.version, name.format);
            return Err(Error::usage(format!(
                "fragment: the token of '{name}' was made by {}, but the input is read by {}: list the fragments again",
                text(&self.reader),
                text(reader)
            )));
        }
        if self.input != *input {
            return Err(Error::data(
                format!("cannot read a fragment of '{name}'"),
                ApiError::bad_data(format!(
                    "the token is of another input, or the input has changed since its fragments were listed: expected {}, \
                     got {input}",
                    self.input
                )),
            ));
        }
        Ok(())
    }
}

fn hash(bytes: &[u8]) -> [u8; HASH_BYTES] {
    let hash: [u8; 32] = sha2::Sha256::digest(bytes).into();
    *hash.first_chunk().unwrap_or(&[0; HASH_BYTES])
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u32).to_le_bytes());
    to.extend(bytes);
}

fn put_numbers<const N: usize>(to: &mut Vec<u8>, numbers: [u64; N]) {
    to.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
}

/// The bytes that were not read yet.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn token(mut self) -> Option<Token> {
        let reader = ReaderName { plugin: self.text()?, version: self.text()?, format: self.text()? };
        let input = match self.byte()? {
            FILE => Identity::File {
                bytes: self.number()?,
                inode: self.number()?,
                changed_s: self.number()? as i64,
                changed_ns: self.number()? as i64,
            },
            BYTES => Identity::Bytes { bytes: self.number()?, hash: *self.chunk()? },
            _ => return None,
        };
        let has_piece = self.flag()?;
        let piece = self.bytes(abi::MAX_TOKEN_BYTES)?;
        let has_rows = self.flag()?;
        let n = self.number()?;
        let is_plausible = n <= MAX_RANGES as u64 && (has_rows || n == 0) && (has_piece != piece.is_empty());
        let mut rows = Vec::new();
        let mut end = 0;
        for _ in 0..if is_plausible { n } else { return None } {
            let range = self.number()?..self.number()?;
            if range.start < end || range.end <= range.start {
                return None;
            }
            end = range.end;
            rows.push(range);
        }
        let token =
            Token { reader, input, piece: has_piece.then_some(piece), rows: has_rows.then_some(rows) };
        self.0.is_empty().then_some(token)
    }

    fn chunk<const N: usize>(&mut self) -> Option<&[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| *byte)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        self.chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn bytes(&mut self, max: usize) -> Option<Vec<u8>> {
        let n = u32::from_le_bytes(*self.chunk()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(n).filter(|_| n <= max)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes(1 << 16)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Vec<Token> {
        let file = Identity::File { bytes: 100, inode: 7, changed_s: -1, changed_ns: 999_999_999 };
        let bytes = Identity::Bytes { bytes: 3, hash: [5; 16] };
        let reader = |version: &str| ReaderName {
            plugin: "arrow-ipc".into(),
            version: version.into(),
            format: "arrow-ipc-file".into(),
        };
        let token = |input: &Identity, piece: Option<&[u8]>, rows| Token {
            reader: reader("0.2.0"),
            input: input.clone(),
            piece: piece.map(<[u8]>::to_vec),
            rows,
        };
        vec![
            token(&file, Some(b"piece"), None),
            token(&file, None, Some(vec![0..5, 7..8])),
            token(&bytes, Some(&[0; abi::MAX_TOKEN_BYTES]), Some(Vec::new())),
        ]
    }

    #[test]
    fn token_round_trips() {
        for token in tokens() {
            assert_eq!(Token::from_bytes(&token.to_bytes().unwrap()).unwrap(), token);
        }
    }

    #[test]
    fn every_changed_truncated_or_extended_token_is_a_usage_error() {
        let bytes = tokens()[1].to_bytes().unwrap();
        let is_refused = |bytes: &[u8]| matches!(Token::from_bytes(bytes), Err(Error::Usage(_)));
        for i in 0..bytes.len() {
            assert!(is_refused(&bytes[..i]), "the first {i} bytes");
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[i] ^= 1 << bit;
                assert!(is_refused(&changed), "bit {bit} of byte {i}");
            }
        }
        assert!(is_refused(&[bytes.as_slice(), &[0]].concat()));
    }

    /// Replaces the hash, as an attacker would.
    fn signed(content: &[u8]) -> Vec<u8> {
        [content, &hash(content)].concat()
    }

    #[test]
    fn malformed_content_with_a_valid_hash_is_a_usage_error_or_another_token() {
        let mut random = crossdock_test_support::Random::new(7);
        for token in &tokens()[..2] {
            let bytes = token.to_bytes().unwrap();
            let content = &bytes[..bytes.len() - HASH_BYTES];
            assert_eq!(Token::from_bytes(&signed(content)).unwrap(), *token);
            for end in 0..content.len() {
                assert!(Token::from_bytes(&signed(&content[..end])).is_err(), "the first {end} bytes");
            }
            for _ in 0..20_000 {
                let mut changed = content.to_vec();
                for _ in 0..1 + random.below(3) {
                    let at = random.below(changed.len());
                    changed[at] = random.below(256) as u8;
                }
                match Token::from_bytes(&signed(&changed)) {
                    Err(Error::Usage(_)) => {}
                    Err(error) => panic!("{error:?}"),
                    Ok(read) => assert_eq!(read.to_bytes().unwrap(), signed(&changed)),
                }
            }
        }
    }

    #[test]
    fn errors_say_what_differs() {
        let token = &tokens()[0];
        let message = |error: Error| error.one_line();
        let not_a_token = message(Token::from_bytes(b"abc").unwrap_err());
        assert!(not_a_token.contains("3 bytes that are not the token of a fragment"), "{not_a_token}");
        let mut later = token.to_bytes().unwrap();
        later[MAGIC.len()] = 9;
        let later = message(Token::from_bytes(&later).unwrap_err());
        assert!(later.contains("version 9, expected 1"), "{later}");
        assert!(token.check("x", &token.reader, &token.input).is_ok());
        let other = ReaderName { version: "0.3.0".into(), ..token.reader.clone() };
        let error = message(token.check("x", &other, &token.input).unwrap_err());
        assert!(
            error.contains("made by arrow-ipc 0.2.0") && error.contains("read by arrow-ipc 0.3.0"),
            "{error}"
        );
        let changed = Identity::File { bytes: 101, inode: 7, changed_s: 1, changed_ns: 0 };
        let error = token.check("x", &token.reader, &changed).unwrap_err();
        assert!(matches!(error, Error::Data { .. }));
        let error = message(error);
        assert!(
            error.contains("expected a file of 100 bytes") && error.contains("got a file of 101 bytes"),
            "{error}"
        );
    }
}
