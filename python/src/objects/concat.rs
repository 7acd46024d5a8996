//! Functions that combine tables or columns.

use crossdock::Table as HostTable;
use pyo3::prelude::*;

use crate::objects::column::Column;
use crate::objects::compute::tensor_nulls;
use crate::objects::table::Table;
use crate::runtime::errors::usage;
use crate::runtime::work::detached;

/// Concatenates the rows of tables.
#[pyfunction]
pub fn concatenate(py: Python<'_>, tables: Vec<Bound<'_, Table>>) -> PyResult<Table> {
    let all = tables.iter().map(|table| table.get().table().cloned()).collect::<PyResult<Vec<_>>>()?;
    let Some(first) = tables.first() else {
        return Err(usage("concat: expected at least one table, got none"));
    };
    first.get().with(detached(py, || HostTable::concatenate(&all))?)
}

/// Converts columns of the rows of tables as `Column.to_tensor` does, and also returns the masks of
/// those whose nulls are `"mask"`. The thread of a loader makes one call instead of one for each
/// column, because each call may wait for the interpreter.
#[pyfunction]
pub fn tensors_of(
    py: Python<'_>,
    tables: Vec<Bound<'_, Table>>,
    columns: Vec<(String, Option<Bound<'_, PyAny>>)>,
) -> PyResult<Vec<(Column, Option<Column>)>> {
    let all = tables.iter().map(|table| table.get().table().cloned()).collect::<PyResult<Vec<_>>>()?;
    let Some(first) = tables.first() else {
        return Err(usage("tensors: expected at least one table, got none"));
    };
    let columns = columns.iter().map(|(name, nulls)| Ok((name, tensor_nulls(nulls.as_ref())?)));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let tensors = detached(py, || {
        let table = HostTable::concatenate(&all)?;
        let tensor = |(name, nulls): &(&String, _)| {
            let position = table.schema().fields().iter().position(|field| field.name() == *name);
            // Without a position, `select` describes the error.
            table.select(&[position.unwrap_or(usize::MAX)])?.to_tensor(nulls)
        };
        columns.iter().map(tensor).collect::<crossdock::Result<Vec<_>>>()
    })?;
    let shared = first.get().shared()?;
    let column = |table| Column::new(table, shared.clone());
    Ok(tensors.into_iter().map(|(tensor, mask)| (column(tensor), mask.map(column))).collect())
}

/// Combines columns of equal length into a table.
#[pyfunction]
pub fn table_of_columns(py: Python<'_>, columns: Vec<(String, Bound<'_, Column>)>) -> PyResult<Table> {
    let all = columns.iter().map(|(name, column)| Ok((name.clone(), column.get().table()?.clone())));
    let all = all.collect::<PyResult<Vec<_>>>()?;
    let Some((_, first)) = columns.first() else {
        return Err(usage("table: expected at least one column, got none"));
    };
    let table = detached(py, || HostTable::from_column_tables(&all))?;
    Ok(Table::new(table, first.get().shared()?.clone()))
}
