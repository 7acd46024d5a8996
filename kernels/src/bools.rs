//! Booleans: one bit a value, as Arrow has them, and one byte a value, as DLPack does.

use crossdock_memory::{Buffer, BufferMut, Result, Stream};

use crate::bits;
use crate::door::Args;
use crate::jobs::{JobArg, Jobs, blocks};
use crate::table::kernel;

kernel!(UNPACK_BITS, c"crossdock_unpack_bits", (from: Read, first: Value, invert: Value, to: Write), unpack);
kernel!(PACK_BYTES, c"crossdock_pack_bytes", (from: Read, invert: Value, to: Write), pack);

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

fn unpack(args: Args<'_>) -> Option<()> {
    let (from, first, invert, to) = (args.read(0)?, args.index(1)?, args.value(2)?, args.write(3)?);
    let invert = if invert == 0 { 0 } else { 0xff };
    // The values up to the first whole byte, then eight at a time.
    let (head, rest) = to.split_at_mut(to.len().min((8 - first % 8) % 8));
    for (i, to) in head.iter_mut().enumerate() {
        *to = (from.get((first + i) / 8)? ^ invert) >> ((first + i) % 8) & 1;
    }
    let from = from.get((first + head.len()) / 8..)?;
    for (to, byte) in rest.chunks_mut(8).zip(from) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = (byte ^ invert) >> i & 1;
        }
    }
    Some(())
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

fn pack(args: Args<'_>) -> Option<()> {
    let (from, invert, to) = (args.read(0)?, args.value(1)? != 0, args.write(2)?);
    let byte = |values: &[u8]| {
        values.iter().enumerate().fold(0, |byte, (i, value)| byte | u8::from((*value != 0) != invert) << i)
    };
    let eights = from.chunks_exact(8);
    let last = eights.remainder();
    for (to, values) in to.iter_mut().zip(eights) {
        *to = byte(values);
    }
    if let ([.., to], false) = (to, last.is_empty()) {
        *to = byte(last);
    }
    Some(())
}
