//! The type of strings that are passed between host and plugin.

use crate::abi;
use crate::error::{Error, Result};

impl abi::Str {
    /// Borrows `text`. The caller must keep it alive for as long as the result is used.
    pub const fn new(text: &str) -> Self {
        Self { data: text.as_ptr().cast(), bytes: text.len() }
    }

    /// Returns the text.
    ///
    /// # Errors
    /// Returns an error if `data` is null although `bytes` is not 0, if there are more than
    /// `isize::MAX` bytes, or if they are not UTF-8.
    ///
    /// # Safety
    /// `data` points to `bytes` bytes that are readable for `'a`, or `data` is null, or `bytes` is
    /// 0.
    pub unsafe fn get<'a>(self) -> Result<&'a str> {
        if self.bytes == 0 {
            return Ok("");
        }
        if self.data.is_null() || self.bytes > isize::MAX as usize {
            return Err(Error::invalid_argument(format!("a string of {} bytes has no data", self.bytes)));
        }
        // SAFETY: `data` is not null, `bytes` is at most `isize::MAX`, and the caller guarantees
        // that the bytes are readable for `'a`.
        let bytes = unsafe { std::slice::from_raw_parts(self.data.cast(), self.bytes) };
        std::str::from_utf8(bytes).map_err(|e| Error::invalid_argument(format!("a string is not UTF-8: {e}")))
    }
}
