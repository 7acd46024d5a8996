//! Converts booleans between one bit per value, as in Arrow, and one byte per value, as in DLPack.

use crossdock_memory::{Buffer, BufferMut, Result, Stream};

use crate::bits;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::rows::{PACK_BYTES, UNPACK_BITS};

impl<'a> Jobs<'a> {
    /// Writes bits `first..first + len` as bytes 0 and 1, from byte `at` of `to` on. `invert`
    /// exchanges 0 and 1, which converts a validity bitmap to a mask of nulls.
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

    /// Writes bytes `first..first + len` as bits, from byte `at` of `to` on. A bit is set if the
    /// byte is not 0, or with `invert` if it is 0. The unused bits of the last byte become 0.
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

/// [`Jobs::unpack_bits`] in a separate launch.
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

/// [`Jobs::pack_bytes`] in a separate launch.
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
