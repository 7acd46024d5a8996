//! Reads the fields of a header in sequence.

use crate::error::{Error, Result};

/// Creates a "bad data" error about the bytes of an encoded array.
pub(super) fn wrong(what: impl std::fmt::Display) -> Error {
    Error::bad_data(format!("invalid bytes of an encoded array: {what}"))
}

/// The bytes of the fields that have not been read yet.
pub(super) struct Fields<'a> {
    pub rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(wrong(format_args!(
                "truncated: expected {bytes} more bytes, got {}",
                self.rest.len()
            )));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a `u32` as a `usize`.
    pub fn count(&mut self) -> Result<usize> {
        self.u32().map(|n| n as usize)
    }

    pub fn text(&mut self, bytes: usize, what: &str) -> Result<&'a str> {
        let text = self.take(bytes)?;
        std::str::from_utf8(text).map_err(|e| wrong(format_args!("{what} is not valid UTF-8: {e}")))
    }

    /// Skips reserved bytes or padding. Rejects values other than 0, because later versions may
    /// define a meaning for them.
    pub fn zeros(&mut self, bytes: usize) -> Result<()> {
        match self.take(bytes)?.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(wrong("reserved bytes or padding are not 0")),
        }
    }

    /// Checks that all bytes have been read.
    pub fn end(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(wrong(format_args!("{n} bytes are left, expected none"))),
        }
    }
}
