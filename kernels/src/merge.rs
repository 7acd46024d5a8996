//! Merges two bitmaps.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::rows::MERGE_BITS;

impl<'a> Jobs<'a> {
    /// Writes the bitwise AND of two bitmaps (each a buffer and its first bit) of `len` bits, from
    /// byte `at` of `to` on. The unused bits of the last byte become 0.
    pub fn merge_bits(
        &mut self,
        a: (&'a Buffer, usize),
        b: (&'a Buffer, usize),
        len: usize,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let bytes = len.div_ceil(8);
        let [bits_a, first_a] = bits::args(a.0, a.1, len);
        let [bits_b, first_b] = bits::args(b.0, b.1, len);
        let args =
            [bits_a, first_a, bits_b, first_b, JobArg::Value(len as u64), JobArg::write(to, at, bytes)?];
        self.push(&MERGE_BITS, blocks(bytes), args)
    }
}
