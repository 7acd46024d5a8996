//! Copies bitmaps to begin at bit 0.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::rows::SHIFT_BITS;

impl<'a> Jobs<'a> {
    /// Copies bits `first..first + len` so that bit `first` becomes bit 0 of byte `at` of `to`. The
    /// unused bits of the last byte become 0.
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
