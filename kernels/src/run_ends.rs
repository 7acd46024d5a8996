//! Checks run ends.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::jobs::{JobArg, long_blocks};
use crate::rows::CHECK_RUN_ENDS;

impl<'a> Checks<'a> {
    /// Finds the first of `len` run ends, from entry `first` on, that is not greater than the
    /// preceding run end or, without a preceding run end, than 0. The result is `len` if the last
    /// end is less than `covered`, the number of values that the runs must cover.
    pub fn run_ends(
        &mut self,
        ends: &'a Buffer,
        width_bytes: usize,
        first: usize,
        len: usize,
        covered: u64,
    ) -> Result<usize> {
        if ![2, 4, 8].contains(&width_bytes) {
            return Err(Error::internal(format!("a kernel cannot check run ends of {width_bytes} bytes")));
        }
        let cell = self.cells(1);
        let bytes = len.saturating_mul(width_bytes);
        let args = [
            JobArg::Read(ends, first.saturating_mul(width_bytes), bytes),
            JobArg::Value(width_bytes as u64),
            JobArg::Value(covered),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_RUN_ENDS, long_blocks(bytes), args)?;
        Ok(cell)
    }
}
