//! Bitmaps copied to where they begin on a byte.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::rows::SHIFT_BITS;

impl<'a> Jobs<'a> {
    /// Copies bits `first..first + len` to byte `at` of a buffer that is being filled, the first to bit 0 there. What is
    /// left of the last byte becomes zero.
    pub fn shift_bits(
        &mut self,
        from: &'a Buffer,
        first: usize,
        len: usize,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let bytes = len.div_ceil(8);
        let [source, shift] = bits::args(from, first, len);
        let args = [source, shift, JobArg::Value(len as u64), JobArg::write(to, at, bytes)?];
        self.push(&SHIFT_BITS, blocks(bytes), args)
    }
}
