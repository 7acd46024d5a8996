//! Filters the rows of batches by comparisons of columns with literals, on any device.

mod compare;
mod comparison;
mod exact;
mod literal;
mod parse;
mod round;
mod value;

use crossdock_kernels::{Jobs, SelectedRows};
use crossdock_memory::{Buffer, Error, Result, Stream};

use crate::nulls::stream_on;
use crate::take::{merge_validity, row_width, take_in_range};
use crate::{DeviceArray, DeviceBatch};
pub(crate) use compare::{Mask, valid};
pub use comparison::{Comparison, Constant};
pub use exact::Decimal;
pub use literal::{Literal, Operator};
pub(crate) use parse::literal as parse_literal;
pub(crate) use value::value_bytes;

/// A comparison of a column, or of a field of nested structs.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    /// The index of the column, and then of the fields of nested structs.
    pub path: Vec<usize>,
    /// The comparison. A null does not fulfil it.
    pub comparison: Comparison,
}

/// Returns the rows that fulfil all predicates; `None` if there are none. If the rows are adjacent,
/// the result shares the memory of the batch. Blocks until the host knows the number of rows.
///
/// # Errors
/// Returns an error if a column does not exist, if it does not have the type of the comparison, or
/// if its contents are malformed.
pub fn filter(batch: &DeviceBatch, predicates: &[Predicate], stream: &Stream) -> Result<Option<DeviceBatch>> {
    let stream = &stream_on(batch.device(), stream)?;
    if batch.is_empty() {
        return Ok(None);
    }
    let mut mask = Mask::All;
    for predicate in predicates {
        let (array, parents) = column(batch, &predicate.path)?;
        mask = both(stream, mask, compare::matches(stream, &array, &predicate.comparison)?, batch.len())?;
        for parent in parents {
            mask = both(stream, mask, compare::valid(stream, &parent)?, batch.len())?;
        }
    }
    match mask {
        Mask::None => Ok(None),
        Mask::All => Ok(Some(batch.clone())),
        Mask::Bits(bits) => select(batch, &bits, stream),
    }
}

/// The column at a path, and the structs that contain it.
fn column(batch: &DeviceBatch, path: &[usize]) -> Result<(DeviceArray, Vec<DeviceArray>)> {
    let missing = || Error::internal(format!("the batch has no column at {path:?}"));
    let (first, rest) = path.split_first().ok_or_else(missing)?;
    let mut array = batch.column(*first).ok_or_else(missing)?.clone();
    let mut parents = Vec::new();
    for index in rest {
        let child = array.children().get(*index).ok_or_else(missing)?;
        let child = child.slice(array.offset(), array.len())?;
        parents.push(std::mem::replace(&mut array, child));
    }
    Ok((array, parents))
}

/// The rows of both masks of `len` rows.
fn both(stream: &Stream, a: Mask, b: Mask, len: usize) -> Result<Mask> {
    Ok(match (a, b) {
        (Mask::None, _) | (_, Mask::None) => Mask::None,
        (Mask::All, other) | (other, Mask::All) => other,
        (Mask::Bits(a), Mask::Bits(b)) => merge_validity(stream, Some((a, 0)), Some((b, 0)), len)?
            .map_or(Mask::All, |(bits, _)| Mask::Bits(bits)),
    })
}

/// The rows whose bits are set.
pub(crate) fn select(batch: &DeviceBatch, bits: &Buffer, stream: &Stream) -> Result<Option<DeviceBatch>> {
    let rows = SelectedRows { bits, len: batch.len() };
    let selected = rows.count(stream)?;
    match selected.n {
        0 => return Ok(None),
        n if n == batch.len() => return Ok(Some(batch.clone())),
        _ => {}
    }
    let width = row_width(batch.len());
    let mut to = stream.memory().alloc(stream, selected.n.saturating_mul(width))?;
    let mut jobs = Jobs::new();
    jobs.place_bits(rows, &selected, &mut to, 0, width)?;
    jobs.launch(stream)?;
    let indices = to.freeze(stream)?;
    let (first, last) = (index(&indices, 0, width, stream)?, index(&indices, selected.n - 1, width, stream)?);
    if last.wrapping_sub(first).wrapping_add(1) == selected.n {
        return batch.slice(first, selected.n).map(Some);
    }
    let take = |column: &DeviceArray| take_in_range(stream, column, &indices, selected.n, width);
    let columns = batch.columns().iter().map(take).collect::<Result<_>>()?;
    let taken =
        DeviceBatch::from_checked_columns(batch.schema().clone(), selected.n, columns, batch.device())?;
    Ok(Some(taken.with_metadata(batch.metadata().clone())))
}

/// Index `i` of a buffer of indices.
fn index(indices: &Buffer, i: usize, width: usize, stream: &Stream) -> Result<usize> {
    let view = indices.host_view_of(i * width, width, stream)?;
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(view.iter()).for_each(|(to, byte)| *to = *byte);
    Ok(u64::from_le_bytes(bytes) as usize)
}
