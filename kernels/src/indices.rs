//! Checks dictionary keys.

use crossdock_memory::{Buffer, Error, Result};

use crate::jobs::{JobArg, long_blocks};
use crate::rows::CHECK_INDICES;
use crate::words::IntType;
use crate::{Checks, bits};

impl<'a> Checks<'a> {
    /// Finds the first of `len` keys, from key `first` on, that is out of range: negative, or not
    /// less than `limit`. Null keys (`validity`: bitmap and its first bit) are ignored.
    pub fn indices(
        &mut self,
        keys: &'a Buffer,
        key_type: IntType,
        first: usize,
        len: usize,
        validity: Option<(&'a Buffer, usize)>,
        limit: u64,
    ) -> Result<usize> {
        let width = key_type.width_bytes;
        if ![1, 2, 4, 8].contains(&width) {
            return Err(Error::internal(format!("a kernel cannot check keys of {width} bytes")));
        }
        let cell = self.cells(1);
        let [bits, shift] = bits::optional_args(validity, len, keys);
        let bytes = len.saturating_mul(width);
        let args = [
            JobArg::Read(keys, first.saturating_mul(width), bytes),
            JobArg::Value(width as u64),
            JobArg::Value(key_type.signed.into()),
            bits,
            shift,
            JobArg::Value(limit),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_INDICES, long_blocks(bytes), args)?;
        Ok(cell)
    }
}
