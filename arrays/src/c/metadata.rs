//! Reads and writes the metadata of an `ArrowSchema`. The encoding begins with the number of pairs.
//! Then follow, for each key and each value, its length and its bytes. All numbers have 32 bits in
//! native byte order.

use std::ffi::c_char;

use arrow_schema::Metadata;
use crossdock_plugin_api::{Error, Result};

use crate::metadata::{Pair, from_pairs};

/// Maximum size of the metadata of one schema, in bytes. The encoding does not contain its total
/// size, so this limit bounds the memory that a reader accesses if a length is wrong.
const MAX_BYTES: usize = 256 << 20;

/// Encodes the metadata of an exported schema.
pub(super) fn write(pairs: &[Pair]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, n: usize| match i32::try_from(n) {
        Ok(n) => {
            out.extend(n.to_ne_bytes());
            Ok(())
        }
        Err(_) => Err(Error::unsupported(format!(
            "metadata with a length of {n} does not fit into the 32-bit lengths of Arrow's C interface"
        ))),
    };
    number(&mut out, pairs.len())?;
    for (key, value) in pairs {
        for bytes in [key, value] {
            number(&mut out, bytes.len())?;
            out.extend(bytes);
        }
    }
    Ok(out)
}

/// Reads encoded metadata. NULL means no metadata.
///
/// # Safety
/// `blob` is NULL, or readable for the number of bytes that the lengths in it imply.
pub(super) unsafe fn read(blob: *const c_char) -> Result<Metadata> {
    if blob.is_null() {
        return Ok(Metadata::new());
    }
    // SAFETY: `blob` is not NULL, so the caller guarantees that it is readable for the number of
    // bytes that the lengths in it imply.
    let mut cursor = unsafe { Cursor::new(blob.cast()) };
    let n = cursor.number("number of pairs")?;
    let mut pairs = Vec::new();
    for _ in 0..n {
        pairs.push((cursor.length_prefixed("key")?, cursor.length_prefixed("value")?));
    }
    Ok(from_pairs(pairs))
}

struct Cursor<'a> {
    at: *const u8,
    remaining: usize,
    _blob: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Cursor<'a> {
    /// # Safety
    /// `at` is readable during `'a` for the number of bytes that the encoded lengths imply.
    unsafe fn new(at: *const u8) -> Self {
        Self { at, remaining: MAX_BYTES, _blob: std::marker::PhantomData }
    }

    fn bytes(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        if n > self.remaining {
            return Err(Error::bad_data(format!(
                "metadata: a {what} of {n} bytes makes the metadata longer than the maximum of {MAX_BYTES} bytes"
            )));
        }
        // SAFETY: `n` is the size of a length field, or a length that was read before. `new`
        // requires that this number of bytes is readable.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, n) };
        self.at = self.at.wrapping_add(n);
        self.remaining -= n;
        Ok(bytes)
    }

    fn number(&mut self, what: &str) -> Result<usize> {
        let bytes = <[u8; 4]>::try_from(self.bytes(4, what)?).unwrap_or_default();
        let n = i32::from_ne_bytes(bytes);
        usize::try_from(n)
            .map_err(|_| Error::bad_data(format!("metadata: the {what} is {n}, expected 0 or more")))
    }

    fn length_prefixed(&mut self, what: &str) -> Result<&'a [u8]> {
        let n = self.number("length")?;
        self.bytes(n, what)
    }
}
