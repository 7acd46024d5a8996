//! Reads flatbuffers that contain strings that are not UTF-8. Some writers store arbitrary bytes in
//! metadata, and the verifier of flatbuffers rejects such strings.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crossdock_plugin_api::{Error, Result};
use flatbuffers::InvalidFlatbuffer;

/// Maximum total number of bytes to verify. For each string that is not UTF-8, the whole flatbuffer
/// must be verified again.
const MAX_VERIFIED_BYTES: usize = 512 << 20;

/// A flatbuffer, together with the original bytes of its strings that are not UTF-8.
pub struct Strings<'a> {
    /// The flatbuffer. In strings that are not UTF-8, question marks replace all bytes that are not
    /// ASCII.
    bytes: Cow<'a, [u8]>,
    /// The original bytes of the replaced strings, by their position in the flatbuffer.
    originals: BTreeMap<usize, Vec<u8>>,
}

impl<'a> Strings<'a> {
    /// Wraps a flatbuffer that was verified successfully.
    pub fn verified(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.into(), originals: BTreeMap::new() }
    }

    /// Replaces the invalid strings of a flatbuffer whose verification failed with `error`.
    ///
    /// # Errors
    /// Returns an error if the flatbuffer has other faults or too many such strings.
    pub fn repaired(
        bytes: &'a [u8],
        mut error: InvalidFlatbuffer,
        verify: impl Fn(&[u8]) -> std::result::Result<(), InvalidFlatbuffer>,
    ) -> std::result::Result<Self, InvalidFlatbuffer> {
        let mut strings = Self::verified(bytes);
        for _ in 0..MAX_VERIFIED_BYTES / bytes.len().max(1) {
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

    /// Returns the flatbuffer, in which invalid strings are replaced.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the original bytes of a string of the flatbuffer.
    pub fn original<'s>(&'s self, text: &'s str) -> &'s [u8] {
        let at = (text.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        match self.originals.get(&at) {
            Some(original) if original.len() == text.len() => original,
            _ => text.as_bytes(),
        }
    }

    /// Checks a name, which will be exported as a C string.
    ///
    /// # Errors
    /// Returns an error if the name contains a NUL or is not UTF-8.
    pub fn name<'s>(&'s self, text: &'s str, what: &str) -> Result<&'s str> {
        let original = self.original(text);
        let Ok(text) = std::str::from_utf8(original) else {
            return Err(Error::bad_data(format!(
                "{what}, '{}', is not UTF-8: write the data again with a valid name",
                String::from_utf8_lossy(original).escape_debug()
            )));
        };
        if text.contains('\0') {
            return Err(Error::unsupported(format!(
                "{what}, '{}', contains a NUL, which Arrow's C interface cannot represent",
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

    /// Creates a message whose metadata consists of these pairs.
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

    /// A malformed table may refer to a string that begins within another string.
    #[test]
    fn string_that_begins_within_repaired_string_is_unchanged() {
        let bytes = message(&[(b"a", b"\xff\xfe")]);
        let strings = Strings::repaired(&bytes, verify(&bytes).unwrap_err(), verify).unwrap();
        let read = arrow_ipc::root_as_message(strings.bytes()).unwrap().custom_metadata().unwrap();
        let repaired = read.get(0).value().unwrap();
        assert_eq!(strings.original(repaired), b"\xff\xfe");
        assert_eq!(strings.original(repaired.get(..1).unwrap()), b"?");
    }

    #[test]
    fn reads_original_bytes_of_strings_that_are_not_utf8() {
        let pairs: [(&[u8], &[u8]); 3] = [(b"a", b"\xff\xfe"), (b"\x80", "ü".as_bytes()), (b"b", b"text")];
        let bytes = message(&pairs);
        let strings = Strings::repaired(&bytes, verify(&bytes).unwrap_err(), verify).unwrap();
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
    fn repair_rejects_messages_with_other_faults_than_invalid_utf8() {
        let mut bytes = message(&[(b"a", b"\xff")]);
        let error = verify(&bytes).unwrap_err();
        bytes[0] = 0xff;
        assert!(Strings::repaired(&bytes, error, verify).is_err());
    }
}
