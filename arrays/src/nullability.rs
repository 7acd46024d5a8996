//! Checks that fields that are not nullable have no nulls.

use std::fmt;
use std::ops::Range;

use arrow_schema::{DataType, Field};
use crossdock_memory::{Error, Result, Stream};

use crate::host::{HostArray, Value};
use crate::layout::shown;
use crate::{DeviceArray, DeviceBatch};

/// The rows of an array to check. In a column, these are all rows. In a child, these are the rows
/// to which rows of the parent refer.
enum Rows<'a> {
    Column,
    ChildOf { parent: &'a DeviceArray, index: usize, above: &'a Rows<'a> },
}

/// The names of a column and of the children up to an array.
struct Path<'a> {
    above: Option<&'a Path<'a>>,
    name: &'a str,
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}.")?;
        }
        f.write_str(self.name)
    }
}

/// Finds the first column or child that contains nulls although its field is not nullable. Returns
/// its path and the number of nulls.
///
/// A null in a child is ignored if no valid row of the parent refers to it, because the fields of a
/// null struct may be null in Arrow. A null in a dictionary or in the values of runs is counted
/// once for each row that refers to it.
///
/// If a null count is unknown, blocks until the nulls are counted. Reads contents on the host only
/// if there are nulls.
pub fn find_forbidden_nulls(batch: &DeviceBatch, stream: &Stream) -> Result<Option<(String, usize)>> {
    find_in_columns(batch, 0..batch.columns().len(), stream)
}

fn find_in_columns(
    batch: &DeviceBatch,
    columns: Range<usize>,
    stream: &Stream,
) -> Result<Option<(String, usize)>> {
    let fields = batch.schema().fields().iter().zip(batch.columns());
    for (field, column) in fields.skip(columns.start).take(columns.len()) {
        let path = Path { above: None, name: field.name() };
        let forbidden = in_array(&path, field, column, &Rows::Column, stream)?;
        if forbidden.is_some() {
            return Ok(forbidden);
        }
    }
    Ok(None)
}

/// Rejects a batch with nulls in a field that is not nullable. See [`find_forbidden_nulls`].
///
/// # Errors
///
/// Returns an error that names the first such column.
pub fn check_nullability(batch: &DeviceBatch, stream: &Stream) -> Result<()> {
    check_nullability_of(batch, 0..batch.columns().len(), stream)
}

/// Rejects columns with nulls in a field that is not nullable.
pub(crate) fn check_nullability_of(
    batch: &DeviceBatch,
    columns: Range<usize>,
    stream: &Stream,
) -> Result<()> {
    let Some((path, nulls)) = find_in_columns(batch, columns, stream)? else { return Ok(()) };
    let column = if path.is_empty() { "the column".to_owned() } else { format!("column {}", shown(&path)) };
    Err(Error::bad_data(format!("{column}: the null count is {nulls}, but its field is not nullable")))
}

fn in_array(
    path: &Path<'_>,
    field: &Field,
    array: &DeviceArray,
    rows: &Rows<'_>,
    stream: &Stream,
) -> Result<Option<(String, usize)>> {
    if !field.is_nullable() {
        let nulls = nulls_in(array, rows, stream)?;
        if nulls > 0 {
            return Ok(Some((path.to_string(), nulls)));
        }
    }
    for (index, (field, child)) in array.layout().children.iter().zip(array.children()).enumerate() {
        let rows = Rows::ChildOf { parent: array, index, above: rows };
        let path = Path { above: Some(path), name: field.name() };
        let forbidden = in_array(&path, field, child, &rows, stream)?;
        if forbidden.is_some() {
            return Ok(forbidden);
        }
    }
    Ok(None)
}

/// The number of rows that are null.
fn nulls_in(array: &DeviceArray, rows: &Rows<'_>, stream: &Stream) -> Result<usize> {
    // Unions and null arrays have no validity bitmap, so nullability is not checked for them.
    if array.layout().all_null || matches!(array.data_type(), DataType::Union(..)) {
        return Ok(0);
    }
    let nulls = array.count_nulls(stream)?;
    if nulls > 0 && matches!(rows, Rows::Column) {
        return Ok(nulls);
    }
    let mut below = 0;
    if let Some(values) = values_of(array) {
        below = values.count_nulls(stream)?.max(nulls_below(values, stream)?);
    }
    if nulls == 0 && below == 0 {
        return Ok(0);
    }
    let reached = rows.reached(array.len(), stream)?;
    let host = HostArray::new(array, stream)?;
    let null = |row: &usize| matches!(host.value(*row), Value::Null);
    Ok((0..array.len()).filter(|row| reached.get(*row) == Some(&true)).filter(null).count())
}

/// The values of a dictionary array or of a run-end encoded array.
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
    /// Returns, for each of `len` values, whether a row refers to the value.
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
