//! Strings of a flatbuffer that are not UTF-8. Some writers put any bytes into metadata; flatbuffers' verifier takes none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crossdock_plugin_api::{Error, Result};
use flatbuffers::InvalidFlatbuffer;

/// Strings that are not UTF-8 which one flatbuffer may have: each is looked for in all of it.
const MOST_STRINGS: usize = 1000;

/// A flatbuffer, and what its strings are where they are not UTF-8.
pub struct Strings<'a> {
    /// What is read: such strings have question marks in place of each byte that is not ASCII.
    bytes: Cow<'a, [u8]>,
    /// By where they begin.
    originals: BTreeMap<usize, Vec<u8>>,
}

impl<'a> Strings<'a> {
    /// Those of a flatbuffer that has been verified.
    pub fn verified(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.into(), originals: BTreeMap::new() }
    }

    /// Those of a flatbuffer that was not verified because of `error`.
    ///
    /// # Errors
    /// It has other faults, or too many such strings.
    pub fn mended(
        bytes: &'a [u8],
        mut error: InvalidFlatbuffer,
        verify: impl Fn(&[u8]) -> std::result::Result<(), InvalidFlatbuffer>,
    ) -> std::result::Result<Self, InvalidFlatbuffer> {
        let mut strings = Self::verified(bytes);
        for _ in 0..MOST_STRINGS {
            let InvalidFlatbuffer::Utf8Error { range, .. } = &error else { return Err(error) };
            let Some(string) = strings.bytes.to_mut().get_mut(range.clone()) else { return Err(error) };
            strings.originals.insert(range.start, string.to_vec());
            string.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
            match verify(&strings.bytes) {
                Ok(()) => return Ok(strings),
                Err(next) => error = next,
            }
        }
        Err(error)
    }

    /// The flatbuffer.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of one of its strings.
    pub fn original<'s>(&'s self, text: &'s str) -> &'s [u8] {
        let at = (text.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        match self.originals.get(&at) {
            Some(original) if original.len() == text.len() => original,
            _ => text.as_bytes(),
        }
    }

    /// A name, which goes through C, where a NUL would end it.
    ///
    /// # Errors
    /// It has one, or is not UTF-8.
    pub fn name<'s>(&'s self, text: &'s str, what: &str) -> Result<&'s str> {
        let original = self.original(text);
        let Ok(text) = std::str::from_utf8(original) else {
            return Err(Error::bad_data(format!(
                "{what}, '{}', is not UTF-8: write the data again with a name that is",
                String::from_utf8_lossy(original).escape_debug()
            )));
        };
        if text.contains('\0') {
            return Err(Error::unsupported(format!(
                "{what}, '{}', has a NUL in it, which Arrow's C interface cannot carry",
                text.escape_debug()
            )));
        }
        Ok(text)
    }
}
