//! The metadata blob of an `ArrowSchema`: a 32-bit count of pairs, then each key and value behind its 32-bit length,
//! all in native byte order.

use std::ffi::c_char;

use arrow_schema::Metadata;
use crossdock_plugin_api::{Error, Result};

use crate::metadata::{Pair, from_pairs};

/// Bytes that one blob may have. It does not say how long it is, so a length that lies sends its reader astray; one
/// that lies beyond this is caught.
const MOST_BYTES: usize = 256 << 20;

/// What an exported schema points at.
pub(super) fn write(pairs: &[Pair]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, n: usize| match i32::try_from(n) {
        Ok(n) => {
            out.extend(n.to_ne_bytes());
            Ok(())
        }
        Err(_) => {
            Err(Error::unsupported(format!("metadata of {n} bytes is beyond what Arrow's C interface holds")))
        }
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

/// Reads a blob; NULL is none.
///
/// # Safety
/// `blob` is NULL, or readable as far as its own lengths say.
pub(super) unsafe fn read(blob: *const c_char) -> Result<Metadata> {
    if blob.is_null() {
        return Ok(Metadata::new());
    }
    // SAFETY: the caller vouches for the blob.
    let mut cursor = unsafe { Cursor::new(blob.cast()) };
    let n = cursor.number("number of pairs")?;
    let mut pairs = Vec::new();
    for _ in 0..n {
        pairs.push((cursor.counted("key")?, cursor.counted("value")?));
    }
    Ok(from_pairs(pairs))
}

struct Cursor<'a> {
    at: *const u8,
    left: usize,
    _blob: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Cursor<'a> {
    /// # Safety
    /// `at` is readable as far as the lengths that lie there say, for `'a`.
    unsafe fn new(at: *const u8) -> Self {
        Self { at, left: MOST_BYTES, _blob: std::marker::PhantomData }
    }

    fn bytes(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        if n > self.left {
            return Err(Error::bad_data(format!(
                "metadata: a {what} of {n} bytes makes it longer than {MOST_BYTES} bytes"
            )));
        }
        // SAFETY: `new`'s caller vouches for as many bytes as the lengths in the blob say, which `n` is or which hold it.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, n) };
        self.at = self.at.wrapping_add(n);
        self.left -= n;
        Ok(bytes)
    }

    fn number(&mut self, what: &str) -> Result<usize> {
        let bytes = <[u8; 4]>::try_from(self.bytes(4, what)?).unwrap_or_default();
        let n = i32::from_ne_bytes(bytes);
        usize::try_from(n)
            .map_err(|_| Error::bad_data(format!("metadata: the {what} is {n}, expected 0 or more")))
    }

    fn counted(&mut self, what: &str) -> Result<&'a [u8]> {
        let n = self.number("length")?;
        self.bytes(n, what)
    }
}
