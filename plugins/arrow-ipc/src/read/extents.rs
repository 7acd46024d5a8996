//! Extents of buffers: in the body of a message, and in the block to which they are copied.

use crossdock_memory::{LoadRange, Result};
use crossdock_plugin_api::Error;

use super::bytes::Bytes;
use crate::wire::Span;
use crate::wire::message_write::aligned;

/// The offset and the length of a buffer.
pub type Extent = (usize, usize);

/// Plans the copies of the whole body, or only of its buffers `from`. Returns the offset and the
/// length of each buffer in the copy, the copies, and their total size.
pub fn plan_loads(
    body: &Bytes,
    from: Vec<Extent>,
    is_whole: bool,
) -> Result<(Vec<Extent>, Vec<LoadRange>, usize)> {
    if is_whole {
        let bytes = to_usize(body.len())?;
        return Ok((from, vec![LoadRange { from: 0, to: 0, bytes }], bytes));
    }
    let lengths: Vec<usize> = from.iter().map(|(_, bytes)| *bytes).collect();
    check_sum(&lengths, body.len())?;
    let (ranges, bytes) = lay_out(&lengths)?;
    let load = |(&(from, bytes), &(to, _)): (&(usize, usize), &(usize, usize))| LoadRange {
        from: from as u64,
        to,
        bytes,
    };
    let loads = from.iter().zip(&ranges).map(load).collect();
    Ok((ranges, loads, bytes))
}

pub fn range(span: &Span) -> Result<(usize, usize)> {
    Ok((to_usize(span.offset)?, to_usize(span.bytes)?))
}

pub fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::out_of_memory(format!("{n} bytes exceed the address space")))
}

pub fn check_sum(lengths: &[usize], body_bytes: u64) -> Result<()> {
    let sum = lengths.iter().try_fold(0u64, |sum, n| sum.checked_add(*n as u64));
    match sum {
        Some(sum) if sum <= body_bytes => Ok(()),
        _ => Err(Error::bad_data(format!("the buffers of a body of {body_bytes} bytes overlap"))),
    }
}

/// Lays out buffers of these lengths. Returns their aligned ranges and their total size in bytes.
pub fn lay_out(lengths: &[usize]) -> Result<(Vec<Extent>, usize)> {
    let mut ranges = Vec::with_capacity(lengths.len());
    let mut end = 0u64;
    for &length in lengths {
        let next = end.checked_add(length as u64).filter(|next| *next < i64::MAX as u64 - 64);
        let next =
            next.ok_or_else(|| Error::bad_data("the sizes of a message's buffers overflow an address"))?;
        ranges.push((to_usize(end)?, length));
        end = aligned(next);
    }
    Ok((ranges, to_usize(end)?))
}
