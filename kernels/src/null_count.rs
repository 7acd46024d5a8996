//! Counts nulls.

use crossdock_memory::{Buffer, Result};

use crate::jobs::{JobArg, summing_blocks};
use crate::rows::NULL_COUNT;
use crate::{Checks, bits};

impl<'a> Checks<'a> {
    /// Counts the zero bits among bits `first..first + len` of a validity bitmap.
    pub fn null_count(&mut self, validity: &'a Buffer, first: usize, len: usize) -> Result<usize> {
        let cell = self.cells(1);
        let [bits, shift] = bits::args(validity, first, len);
        let args = [bits, shift, JobArg::Value(len as u64), JobArg::Cells(cell, 1)];
        self.push(&NULL_COUNT, summing_blocks(len / 8), args)?;
        Ok(cell)
    }
}
