//! Copies strided tensors to contiguous memory.

use crossdock_kernels::Dim;

use crate::door::Args;

pub(crate) fn run(args: Args<'_>) -> Option<()> {
    let (from, first, width, to) = (args.read(0)?, args.index(1)?, args.index(2)?, args.write(3)?);
    let dims: Option<Vec<Dim>> = (4..args.len())
        .step_by(2)
        .map(|i| Some(Dim { size: args.index(i)?, stride: args.value(i + 1)? as i64 }))
        .collect();
    let dims = dims?;
    let (inner, outer) = dims.split_last()?;
    let mut to = to.chunks_exact_mut(inner.size.checked_mul(width)?);
    // Iterates over the rows of the inner dimension. The indices of the outer dimensions count up
    // like digits.
    let mut digits = vec![0; outer.len()];
    let mut at = first as i64;
    loop {
        row(from, at, *inner, width, to.next()?)?;
        let mut has_next = false;
        for (digit, dim) in digits.iter_mut().zip(outer).rev() {
            *digit += 1;
            at = at.checked_add(dim.stride)?;
            if *digit < dim.size {
                has_next = true;
                break;
            }
            at = at.checked_sub(dim.stride.checked_mul(dim.size as i64)?)?;
            *digit = 0;
        }
        if !has_next {
            return Some(());
        }
    }
}

/// Copies one row, after checking that both of its ends are within `from`.
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
