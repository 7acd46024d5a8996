//! How many values are null.

use crossdock_memory::{Buffer, Result};

use crate::door::Args;
use crate::jobs::{JobArg, summing_blocks};
use crate::table::kernel;
use crate::{Checks, bits};

kernel!(NULL_COUNT, c"crossdock_null_count", (bits: Read, first: Value, len: Value, cell: Write), twin);

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

fn twin(args: Args<'_>) -> Option<()> {
    let (bits, first, len) = (args.read(0)?, args.index(1)?, args.index(2)?);
    args.add(3, len as u64 - bits::count_ones(bits, first, len))
}
