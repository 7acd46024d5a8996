//! Bitmaps copied to where they begin on a byte.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::bits;
use crate::door::Args;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::table::kernel;

kernel!(SHIFT_BITS, c"crossdock_shift_bits", (from: Read, first: Value, len: Value, to: Write), twin);

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

fn twin(args: Args<'_>) -> Option<()> {
    let (from, shift, len, to) = (args.read(0)?, args.index(1)? % 8, args.index(2)?, args.write(3)?);
    for (i, to) in to.iter_mut().enumerate() {
        *to = bits::byte(from, shift, i);
    }
    bits::clear_after(to, len);
    Some(())
}
