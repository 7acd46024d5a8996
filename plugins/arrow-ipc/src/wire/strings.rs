//! Strings of a flatbuffer that are not UTF-8. Some writers put any bytes into metadata; flatbuffers' verifier takes none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crossdock_plugin_api::{Error, Result};
use flatbuffers::InvalidFlatbuffer;

/// Bytes that are verified to find strings that are not UTF-8: each is looked for from the flatbuffer's beginning on.
const MOST_VERIFIED_BYTES: usize = 512 << 20;

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
        for _ in 0..MOST_VERIFIED_BYTES / bytes.len().max(1) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(bytes: &[u8]) -> std::result::Result<(), InvalidFlatbuffer> {
        arrow_ipc::root_as_message(bytes).map(drop)
    }

    /// A message with these pairs.
    fn message(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let metadata = crossdock_arrays::metadata::from_pairs(pairs.iter().copied());
        let mut b = flatbuffers::FlatBufferBuilder::new();
        let pairs = crate::wire::schema_write::write_map(&mut b, &metadata).unwrap();
        let mut message = arrow_ipc::MessageBuilder::new(&mut b);
        message.add_custom_metadata(pairs);
        let message = message.finish();
        b.finish(message, None);
        b.finished_data().to_vec()
    }

    /// A table may claim a string in the middle of which another begins.
    #[test]
    fn a_text_that_begins_where_a_mended_string_does_and_is_shorter_is_itself() {
        let bytes = message(&[(b"a", b"\xff\xfe")]);
        let strings = Strings::mended(&bytes, verify(&bytes).unwrap_err(), verify).unwrap();
        let read = arrow_ipc::root_as_message(strings.bytes()).unwrap().custom_metadata().unwrap();
        let mended = read.get(0).value().unwrap();
        assert_eq!(strings.original(mended), b"\xff\xfe");
        assert_eq!(strings.original(mended.get(..1).unwrap()), b"?");
    }

    #[test]
    fn strings_that_are_not_utf8_are_read_as_they_are() {
        let pairs: [(&[u8], &[u8]); 3] = [(b"a", b"\xff\xfe"), (b"\x80", "ü".as_bytes()), (b"b", b"text")];
        let bytes = message(&pairs);
        let strings = Strings::mended(&bytes, verify(&bytes).unwrap_err(), verify).unwrap();
        let read = arrow_ipc::root_as_message(strings.bytes()).unwrap().custom_metadata().unwrap();
        let mut read: Vec<_> = read
            .iter()
            .map(|pair| (strings.original(pair.key().unwrap()), strings.original(pair.value().unwrap())))
            .collect();
        read.sort();
        let mut expected = pairs.to_vec();
        expected.sort();
        assert_eq!(read, expected);
    }

    #[test]
    fn other_faults_are_not_mended() {
        let mut bytes = message(&[(b"a", b"\xff")]);
        let error = verify(&bytes).unwrap_err();
        bytes[0] = 0xff;
        assert!(Strings::mended(&bytes, error, verify).is_err());
    }
}
