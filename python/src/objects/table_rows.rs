//! Functions on the rows of the host's tables.

use arrow_schema::SchemaRef;
use crossdock::{Session, Table as HostTable};
use crossdock_plugin_api::{Device, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::runtime::errors::OrRaise;
use crate::runtime::work::{detached, reading};

/// Returns the device of a table, which is the session's device if the table has no batches.
pub fn device_of(table: &HostTable) -> Device {
    table.device()
}

/// Returns `length` rows from `offset` on; `None`: all of them.
pub fn rows_of_slice(table: &HostTable, offset: u64, length: Option<u64>) -> PyResult<HostTable> {
    table.slice(offset, length.unwrap_or(u64::MAX)).or_raise()
}

/// Concatenates the batches into one batch with offset 0, on the table's device.
pub fn combined(py: Python<'_>, table: &HostTable) -> PyResult<HostTable> {
    // If only one of the batches has rows, the result is this batch, which may have an offset.
    compacted(py, &detached(py, || table.combine())?)
}

/// Returns the same batches with offset 0. Batches with another offset are copied on their device.
pub fn compacted(py: Python<'_>, table: &HostTable) -> PyResult<HostTable> {
    let session = table.session();
    let batches = reading(py, || {
        let batches = table.batches().iter().map(|batch| batch.without_offsets(session.stream()));
        batches.collect::<crossdock_plugin_api::Result<Vec<_>>>()
    })?;
    HostTable::from_batches(session, table.schema().clone(), batches.or_raise()?).or_raise()
}

/// Implements `Table.plan`.
pub fn plan<'py>(
    py: Python<'py>,
    session: &Session,
    to: &str,
    schema: &SchemaRef,
    from: Device,
    options: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let plan = detached(py, || session.plan_columns(to, schema, from, options))?;
    let row = |column: crossdock_plugin_api::ColumnPlan| {
        let dict = PyDict::new(py);
        dict.set_item("name", column.name)?;
        dict.set_item("verdict", column.verdict.to_string())?;
        dict.set_item("device", column.to.to_string())?;
        dict.set_item("reason", column.reason)?;
        Ok(dict)
    };
    let rows = plan.into_iter().map(row).collect::<PyResult<Vec<_>>>()?;
    py.import("crossdock._plan")?.getattr("Plan")?.call1((rows,))
}
