//! Decodes OnPair: each code stands for up to 16 bytes in a dictionary of at most 65,536 tokens.

use crossdock_plugin_api::{Error, Result};

use super::coded::{self, CODE_BYTES, Coder, GROUP, OUTPUT_BYTES, Progress, Starts};
use super::words::Index;

/// Maximum size of a token.
pub const TOKEN_BYTES: usize = CODE_BYTES;

/// Maximum number of tokens.
const MAX_TOKENS: usize = 1 << 16;

/// Number of codes that are decoded at a time.
const BLOCK: usize = 8;

/// The tokens, each padded to the maximum size, and their lengths.
pub struct Tokens {
    bytes: Vec<[u8; TOKEN_BYTES]>,
    lengths: Vec<u8>,
}

impl Tokens {
    /// Reads the dictionary: token `t` has the 1 to 16 bytes `offsets[t]..offsets[t + 1]`.
    pub fn read<O: Index>(bytes: &[u8], offsets: &[O]) -> Result<Self> {
        if offsets.is_empty() || offsets.len() > MAX_TOKENS + 1 {
            return Err(Error::bad_data(format!(
                "onpair: {} offsets into the dictionary, expected 1 to {}",
                offsets.len(),
                MAX_TOKENS + 1
            )));
        }
        let first = offsets[0].index();
        let last = offsets[offsets.len() - 1];
        let used = bytes.get(first..last.index()).ok_or_else(|| {
            Error::bad_data(format!(
                "onpair: the tokens are bytes {first} to {last}, expected a range within the dictionary's {} bytes",
                bytes.len()
            ))
        })?;
        let padded = [used, &[0; TOKEN_BYTES]].concat();
        let token = |(i, pair): (usize, &[O])| {
            let (begin, end) = (pair[0].index(), pair[1].index());
            // `bytes` is `None` only if the token begins outside of the tokens' bytes. In this
            // case, the offsets descend at some token, and this token is rejected.
            let bytes = padded.get(begin.wrapping_sub(first)..).and_then(|rest| rest.first_chunk());
            match end.checked_sub(begin) {
                Some(length @ 1..=TOKEN_BYTES) => Ok((bytes.copied().unwrap_or_default(), length as u8)),
                _ => Err(Error::bad_data(format!(
                    "onpair: token {i} spans bytes {} to {}, expected 1 to {TOKEN_BYTES} bytes",
                    pair[0], pair[1]
                ))),
            }
        };
        let n = offsets.len() - 1;
        let mut tokens = Self { bytes: Vec::with_capacity(n), lengths: Vec::with_capacity(n) };
        for pair in offsets.windows(2).enumerate() {
            let (bytes, length) = token(pair)?;
            tokens.bytes.push(bytes);
            tokens.lengths.push(length);
        }
        Ok(tokens)
    }

    /// Decodes values into `out`. The values must fill `out` exactly. Value `i` has the codes from
    /// `offsets[i]` to `offsets[i + 1]` and `lengths[i]` bytes. Nulls have a range and a length
    /// too.
    ///
    /// After an error, some values may have been decoded.
    pub fn decode<C: Index, O: Index, L: Index>(
        &self,
        codes: &[C],
        offsets: &[O],
        lengths: &[L],
        out: &mut [u8],
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let coder = Codes { tokens: self, of: std::marker::PhantomData };
        coded::decode(&coder, codes, offsets, lengths, out, progress).map_err(|e| e.context("onpair"))
    }

    #[inline(always)]
    fn token(&self, code: usize) -> Option<(&[u8; TOKEN_BYTES], usize)> {
        // `%` never changes the length; it lets the compiler omit bounds checks.
        Some((self.bytes.get(code)?, usize::from(*self.lengths.get(code)? % (2 * TOKEN_BYTES as u8))))
    }
}

/// The dictionary, for codes of type `C`.
struct Codes<'a, C> {
    tokens: &'a Tokens,
    of: std::marker::PhantomData<C>,
}

impl<C: Index> Coder for Codes<'_, C> {
    type Code = C;

    #[inline(never)]
    fn group(&self, codes: &[C], output: &mut [u8; OUTPUT_BYTES], starts: &mut Starts) -> (usize, usize) {
        let mut byte = 0;
        let blocks = codes.as_chunks::<BLOCK>().0.iter().zip(starts.as_chunks_mut::<BLOCK>().0);
        for (i, (block, starts)) in blocks.enumerate() {
            // `%` never changes `byte`; it lets the compiler omit bounds checks.
            let mut at = byte % (GROUP * TOKEN_BYTES);
            for (code, start) in block.iter().zip(starts) {
                let Some((token, length)) = self.tokens.token(code.index()) else {
                    return (i * BLOCK, byte);
                };
                *start = at as u16;
                output[at..at + TOKEN_BYTES].copy_from_slice(token);
                at += length;
            }
            byte = at;
        }
        (codes.len().min(GROUP) / BLOCK * BLOCK, byte)
    }

    fn one(&self, codes: &[C], output: &mut [u8; OUTPUT_BYTES], starts: &mut Starts) -> (usize, usize) {
        let Some((token, length)) = codes.first().and_then(|code| self.tokens.token(code.index())) else {
            return (0, 0);
        };
        output[..TOKEN_BYTES].copy_from_slice(token);
        starts[0] = 0;
        (1, length)
    }

    #[cold]
    fn error_at(&self, codes: &[C], value: usize) -> Error {
        let code = codes.first().map(ToString::to_string).unwrap_or_default();
        Error::bad_data(format!(
            "value {value} has code {code}, expected a code below {}",
            self.tokens.bytes.len()
        ))
    }
}

#[cfg(test)]
#[path = "onpair_tests.rs"]
mod tests;
