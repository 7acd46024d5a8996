//! Copies strided tensors to contiguous memory.

use crossdock_memory::{Buffer, BufferMut, Error, Result, Stream};

use crate::jobs::{JobArg, Jobs, long_blocks, tile_blocks};
use crate::rows::GATHER;

/// Minimum number of elements along each side of a tile. Copying by tiles is slower for shorter
/// dimensions. Equal to the constant in `plan.cuh`.
const MIN_TILE_SIDE: usize = 8;

/// One dimension of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// The number of elements.
    pub size: usize,
    /// The distance between elements in bytes; may be negative or 0.
    pub stride: i64,
}

impl<'a> Jobs<'a> {
    /// Copies the elements of a tensor, `width` bytes each, in row-major order to byte `at` of
    /// `to`. The first element is at byte `first` of `from`.
    ///
    /// # Errors
    ///
    /// Returns an error if an element is outside of `from`, or if the tensor has too many elements
    /// or dimensions.
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
        let bytes = bytes.ok_or_else(|| {
            Error::invalid_argument("gather: the size of a tensor exceeds the address space")
        })?;
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

/// [`Jobs::gather`] in a separate launch.
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

/// Rejects a tensor with an element outside of the `len` bytes of its buffer.
fn check_reach(first: usize, width: usize, dims: &[Dim], len: usize) -> Result<()> {
    let (mut low, mut high) = (first as i128, first as i128 + width as i128);
    for dim in dims {
        // With at most 63 dimensions, sizes and strides below 2^63 cannot overflow 128 bits.
        let reach = (dim.size as i128 - 1) * i128::from(dim.stride);
        if reach < 0 { low += reach } else { high += reach }
    }
    if low >= 0 && high <= len as i128 {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "gather: the tensor's elements are in bytes {low}..{high}, outside of its buffer of {len} bytes"
    )))
}

/// Predicts whether the kernel copies by tiles. The kernel does so if the dimension with adjacent
/// elements is not the last dimension, and if both dimensions are long enough. A wrong prediction
/// makes the copy slower, because the number of blocks is not optimal.
fn by_tiles(dims: &[Dim], width: usize) -> bool {
    let side_by_side = |dim: &Dim| dim.stride == width as i64;
    let fits = |dim: &Dim| dim.size >= MIN_TILE_SIDE;
    width.is_power_of_two()
        && width <= 16
        && dims.last().is_some_and(|last| fits(last) && !side_by_side(last))
        && dims.iter().any(|dim| fits(dim) && side_by_side(dim))
}

/// Removes dimensions of size 1 and merges contiguous dimensions. At most 63 dimensions remain,
/// because each has two or more elements.
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
