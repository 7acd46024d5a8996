//! Functions that combine tables or columns.

use crossdock::Table as HostTable;
use pyo3::prelude::*;

use crate::objects::column::Column;
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
