//! Booleans: one bit a value, as Arrow has them, and one byte a value, as DLPack does.

use crossdock_memory::{Buffer, BufferMut, Result, Stream};

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::rows::{PACK_BYTES, UNPACK_BITS};

impl<'a> Jobs<'a> {
    /// Writes bits `first..first + len` as bytes from byte `at` of a buffer that is being filled, 1 for a set bit and 0 for
    /// a clear one; the other way round if `invert`, which makes a mask of what is null out of a validity bitmap.
    pub fn unpack_bits(
        &mut self,
        from: &'a Buffer,
        first: usize,
        len: usize,
        invert: bool,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let [source, shift] = bits::args(from, first, len);
        let args = [source, shift, JobArg::Value(invert.into()), JobArg::write(to, at, len)?];
        self.push(&UNPACK_BITS, blocks(len), args)
    }

    /// Writes bytes `first..first + len` as bits from byte `at` of a buffer that is being filled, set for any byte but 0;
    /// the other way round if `invert`. What is left of the last byte becomes zero.
    pub fn pack_bytes(
        &mut self,
        from: &'a Buffer,
        first: usize,
        len: usize,
        invert: bool,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let target = JobArg::write(to, at, len.div_ceil(8))?;
        let args = [JobArg::Read(from, first, len), JobArg::Value(invert.into()), target];
        self.push(&PACK_BYTES, blocks(len / 4), args)
    }
}

/// [`Jobs::unpack_bits`], launched at once.
pub fn unpack_bits(
    stream: &Stream,
    from: &Buffer,
    first: usize,
    len: usize,
    invert: bool,
    to: &mut BufferMut,
    at: usize,
) -> Result<()> {
    let mut jobs = Jobs::new();
    jobs.unpack_bits(from, first, len, invert, to, at)?;
    jobs.launch(stream)
}

/// [`Jobs::pack_bytes`], launched at once.
pub fn pack_bytes(
    stream: &Stream,
    from: &Buffer,
    first: usize,
    len: usize,
    invert: bool,
    to: &mut BufferMut,
    at: usize,
) -> Result<()> {
    let mut jobs = Jobs::new();
    jobs.pack_bytes(from, first, len, invert, to, at)?;
    jobs.launch(stream)
}
