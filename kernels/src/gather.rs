//! Tensors with any strides, made contiguous.

use crossdock_memory::{Buffer, BufferMut, Error, Result, Stream};

use crate::door::Args;
use crate::jobs::{JobArg, Jobs, long_blocks, tile_blocks};
use crate::table::kernel;

kernel!(
    GATHER,
    c"crossdock_gather",
    (from: Read, first: Value, width: Value, to: Write),
    [size: Value, stride: Value],
    twin
);

/// Elements along either side of a tile, for which it pays; as plan.cuh has it.
const SHORTEST_SIDE: usize = 8;

/// One dimension of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// How many.
    pub size: usize,
    /// How many bytes lie from one to the next; may be negative or 0.
    pub stride: i64,
}

impl<'a> Jobs<'a> {
    /// Copies the elements of a tensor, each `width` bytes, in row-major order to byte `at` of a buffer that is being filled.
    /// Its first element lies at byte `first` of `from`, and all of them within it, else it is refused.
    pub fn gather(
        &mut self,
        from: &'a Buffer,
        first: usize,
        width: usize,
        dims: &[Dim],
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let elements = dims.iter().try_fold(1usize, |n, dim| n.checked_mul(dim.size));
        let bytes = elements.and_then(|n| n.checked_mul(width)).filter(|_| width > 0);
        let bytes =
            bytes.ok_or_else(|| Error::invalid_argument("gather: a tensor beyond what can be counted"))?;
        if bytes == 0 {
            return Ok(());
        }
        let dims = merged(dims, width as i64);
        let len = from.len().ok_or_else(|| Error::internal("gather: a buffer of unknown length"))?;
        check_reach(first, width, &dims, len)?;
        let mut args = vec![
            JobArg::Read(from, 0, len),
            JobArg::Value(first as u64),
            JobArg::Value(width as u64),
            JobArg::write(to, at, bytes)?,
        ];
        for dim in &dims {
            args.extend([JobArg::Value(dim.size as u64), JobArg::Value(dim.stride as u64)]);
        }
        let blocks = if by_tiles(&dims, width) { tile_blocks(bytes) } else { long_blocks(bytes) };
        self.push(&GATHER, blocks, args)
    }
}

/// [`Jobs::gather`], launched at once.
pub fn gather(
    stream: &Stream,
    from: &Buffer,
    first: usize,
    width: usize,
    dims: &[Dim],
    to: &mut BufferMut,
    at: usize,
) -> Result<()> {
    let mut jobs = Jobs::new();
    jobs.gather(from, first, width, dims, to, at)?;
    jobs.launch(stream)
}

/// Refuses a tensor of which an element lies outside the `len` bytes that there are.
fn check_reach(first: usize, width: usize, dims: &[Dim], len: usize) -> Result<()> {
    let (mut low, mut high) = (first as i128, first as i128 + width as i128);
    for dim in dims {
        // At most 63 dimensions of at most 2^63 elements and as many bytes: no overflow before it is seen to leave.
        let reach = (dim.size as i128 - 1) * i128::from(dim.stride);
        if reach < 0 { low += reach } else { high += reach }
    }
    if low >= 0 && high <= len as i128 {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "gather: the tensor's elements lie in bytes {low}..{high} of a buffer of {len} bytes"
    )))
}

/// Whether the kernel will go by tiles, if all lies aligned: elements that it moves as one lie side by side along another
/// dimension than the last, and both are long enough. Were this wrong, it would do with the blocks that there are.
fn by_tiles(dims: &[Dim], width: usize) -> bool {
    let side_by_side = |dim: &Dim| dim.stride == width as i64;
    let fits = |dim: &Dim| dim.size >= SHORTEST_SIDE;
    width.is_power_of_two()
        && width <= 16
        && dims.last().is_some_and(|last| fits(last) && !side_by_side(last))
        && dims.iter().any(|dim| fits(dim) && side_by_side(dim))
}

/// Without dimensions of one (so that at most 63 are left), and with those that lie side by side made one.
fn merged(dims: &[Dim], width: i64) -> Vec<Dim> {
    let mut merged: Vec<Dim> = Vec::with_capacity(dims.len() + 1);
    for dim in dims.iter().filter(|dim| dim.size > 1) {
        match merged.last_mut() {
            Some(outer)
                if i64::try_from(dim.size).ok().and_then(|n| n.checked_mul(dim.stride))
                    == Some(outer.stride) =>
            {
                *outer = Dim { size: outer.size * dim.size, stride: dim.stride };
            }
            _ => merged.push(*dim),
        }
    }
    if merged.is_empty() {
        merged.push(Dim { size: 1, stride: width });
    }
    merged
}

fn twin(args: Args<'_>) -> Option<()> {
    let (from, first, width, to) = (args.read(0)?, args.index(1)?, args.index(2)?, args.write(3)?);
    let dims: Option<Vec<Dim>> = (4..args.len())
        .step_by(2)
        .map(|i| Some(Dim { size: args.index(i)?, stride: args.value(i + 1)? as i64 }))
        .collect();
    let dims = dims?;
    let (inner, outer) = dims.split_last()?;
    let mut to = to.chunks_exact_mut(inner.size.checked_mul(width)?);
    // Where each row of the inner dimension begins: an odometer over the outer ones.
    let mut digits = vec![0; outer.len()];
    let mut at = first as i64;
    loop {
        row(from, at, *inner, width, to.next()?)?;
        let mut turned = false;
        for (digit, dim) in digits.iter_mut().zip(outer).rev() {
            *digit += 1;
            at = at.checked_add(dim.stride)?;
            if *digit < dim.size {
                turned = true;
                break;
            }
            at = at.checked_sub(dim.stride.checked_mul(dim.size as i64)?)?;
            *digit = 0;
        }
        if !turned {
            return Some(());
        }
    }
}

/// Copies one row, after a look at whether both of its ends lie within `from`.
fn row(from: &[u8], at: i64, inner: Dim, width: usize, to: &mut [u8]) -> Option<()> {
    let start = usize::try_from(at).ok()?;
    if inner.stride == width as i64 {
        to.copy_from_slice(from.get(start..start.checked_add(to.len())?)?);
        return Some(());
    }
    let last = at.checked_add(inner.stride.checked_mul(inner.size as i64 - 1)?)?;
    from.get(usize::try_from(last).ok()?..)?.get(..width)?;
    from.get(start..)?.get(..width)?;
    match width {
        1 => elements::<1>(from, start, inner.stride, to),
        2 => elements::<2>(from, start, inner.stride, to),
        4 => elements::<4>(from, start, inner.stride, to),
        8 => elements::<8>(from, start, inner.stride, to),
        _ => {
            for (i, to) in to.chunks_exact_mut(width).enumerate() {
                let at = start.wrapping_add_signed(inner.stride as isize * i as isize);
                to.copy_from_slice(from.get(at..at + width)?);
            }
            Some(())
        }
    }
}

fn elements<const WIDTH: usize>(from: &[u8], start: usize, stride: i64, to: &mut [u8]) -> Option<()> {
    let (to, _) = to.as_chunks_mut::<WIDTH>();
    let mut at = start;
    for to in to {
        *to = *from.get(at..)?.first_chunk::<WIDTH>()?;
        at = at.wrapping_add_signed(stride as isize);
    }
    Some(())
}
