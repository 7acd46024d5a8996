//! Replaces nulls by a value.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, long_blocks};
use crate::rows::FILL_NULLS;
use crate::{Jobs, Source, bits};

impl<'a> Jobs<'a> {
    /// Copies values of 1, 2, 4, 8, 16 or 32 bytes to byte `at` of `to`, and writes `null` instead
    /// of each null value. `validity` is the bitmap and its first bit, `null` a value that is
    /// extended to 32 bytes, the lowest word first.
    pub fn fill_nulls(
        &mut self,
        from: Source<'a>,
        width: usize,
        validity: (&'a Buffer, usize),
        null: [u64; 4],
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        if ![1, 2, 4, 8, 16, 32].contains(&width) {
            return Err(Error::internal(format!("a kernel cannot fill nulls of {width} bytes")));
        }
        let bytes = from.len.saturating_mul(width);
        let target = JobArg::write(to, at, bytes)?;
        let [bits, first] = bits::args(validity.0, validity.1, from.len);
        let [a, b, c, d] = null.map(JobArg::Value);
        let args = [from.arg(width), bits, first, a, b, c, d, target, JobArg::Value(width as u64)];
        self.push(&FILL_NULLS, long_blocks(bytes), args)
    }
}
