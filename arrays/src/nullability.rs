//! Whether fields that allow no nulls have none.

use arrow_schema::{DataType, Field};
use crossdock_memory::{Error, Result, Stream};

use crate::host::{HostArray, Value};
use crate::layout::shown;
use crate::{DeviceArray, DeviceBatch};

/// Where the rows of an array come from: a column has all of its own, and a child those that rows of its parent reach.
enum Rows<'a> {
    Column,
    ChildOf { parent: &'a DeviceArray, index: usize, above: &'a Rows<'a> },
}

/// The first column, or child of one, whose field allows no nulls and that has some: its path, and how many. Values of a child
/// that no valid row of its parent reaches do not count: an Arrow struct that is null may have null fields. Nulls of a
/// dictionary and of runs are those of the rows that have them.
///
/// Counts the nulls of each such field whose count is unknown, and blocks for the answer; contents are read on the host only
/// where there are nulls.
pub fn forbidden_nulls(batch: &DeviceBatch, stream: &Stream) -> Result<Option<(String, usize)>> {
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let found = in_array(field.name().clone(), field, column, &Rows::Column, stream)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Refuses a batch with such nulls, and names the column: a format that has no place for them would hold other values.
pub fn check_nullability(batch: &DeviceBatch, stream: &Stream) -> Result<()> {
    let Some((path, nulls)) = forbidden_nulls(batch, stream)? else { return Ok(()) };
    let column = if path.is_empty() { "the column".to_owned() } else { format!("column {}", shown(&path)) };
    Err(Error::bad_data(format!("{column}: {nulls} nulls, expected none: its field is not nullable")))
}

fn in_array(
    path: String,
    field: &Field,
    array: &DeviceArray,
    rows: &Rows<'_>,
    stream: &Stream,
) -> Result<Option<(String, usize)>> {
    if !field.is_nullable() {
        let nulls = nulls_in(array, rows, stream)?;
        if nulls > 0 {
            return Ok(Some((path, nulls)));
        }
    }
    for (index, (field, child)) in array.layout().children.iter().zip(array.children()).enumerate() {
        let rows = Rows::ChildOf { parent: array, index, above: rows };
        let found = in_array(format!("{path}.{}", field.name()), field, child, &rows, stream)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// How many of the rows are null.
fn nulls_in(array: &DeviceArray, rows: &Rows<'_>, stream: &Stream) -> Result<usize> {
    // A union and the null type have no nulls that a field could allow or forbid.
    if array.layout().all_null || matches!(array.data_type(), DataType::Union(..)) {
        return Ok(0);
    }
    let own = array.count_nulls(stream)?;
    if own > 0 && matches!(rows, Rows::Column) {
        return Ok(own);
    }
    let mut below = 0;
    if let Some(values) = values_of(array) {
        below = values.count_nulls(stream)?.max(nulls_below(values, stream)?);
    }
    if own == 0 && below == 0 {
        return Ok(0);
    }
    let reached = rows.reached(array.len(), stream)?;
    let host = HostArray::new(array, stream)?;
    let null = |row: &usize| matches!(host.value(*row), Value::Null);
    Ok((0..array.len()).filter(|row| reached.get(*row) == Some(&true)).filter(null).count())
}

/// What the values of a dictionary or of runs are.
fn values_of(array: &DeviceArray) -> Option<&DeviceArray> {
    match array.data_type() {
        DataType::RunEndEncoded(..) => array.children().get(1),
        _ => array.dictionary(),
    }
}

fn nulls_below(array: &DeviceArray, stream: &Stream) -> Result<usize> {
    match values_of(array) {
        Some(values) => Ok(values.count_nulls(stream)?.max(nulls_below(values, stream)?)),
        None => Ok(0),
    }
}

impl Rows<'_> {
    /// Of each of `len` values, whether a row reaches it.
    fn reached(&self, len: usize, stream: &Stream) -> Result<Vec<bool>> {
        let Rows::ChildOf { parent, index, above } = self else { return Ok(vec![true; len]) };
        let mut reached = vec![false; len];
        let (host, rows) = (HostArray::new(parent, stream)?, above.reached(parent.len(), stream)?);
        for row in (0..parent.len()).filter(|row| rows.get(*row) == Some(&true)) {
            if let Some(values) = host.child_rows(*index, row).and_then(|range| reached.get_mut(range)) {
                values.fill(true);
            }
        }
        Ok(reached)
    }
}
