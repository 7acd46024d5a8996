//! Rebuilds objects from a header and buffers.

use std::sync::Arc;

use crossdock::{PartsHeader, Rebuilt};
use pyo3::prelude::*;

use crate::objects::column::Column;
use crate::objects::encoded::EncodedArray;
use crate::objects::parts::{header_of, received};
use crate::objects::schema::{Field, Schema};
use crate::objects::session::{Session, Shared};
use crate::objects::table::Table;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::work::detached;

/// Rebuilds an object in a session.
pub fn from_parts<'py>(
    shared: &Arc<Shared>,
    header: &Bound<'py, PyAny>,
    buffers: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    rebuild_in(header.py(), shared, header_of(header)?, buffers)
}

fn rebuild_in<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    header: PartsHeader,
    buffers: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let buffers = buffers.try_iter()?.map(|buffer| received(&buffer?)).collect::<PyResult<Vec<_>>>()?;
    let rebuilt = detached(py, || shared.session.rebuild(header, buffers))?;
    into_python(py, rebuilt, Some(shared))
}

/// Wraps a rebuilt object. A table belongs to the session.
pub fn into_python<'py>(
    py: Python<'py>,
    rebuilt: Rebuilt,
    shared: Option<&Arc<Shared>>,
) -> PyResult<Bound<'py, PyAny>> {
    let shared = || shared.cloned().ok_or_else(|| usage("a table cannot be rebuilt without a session"));
    Ok(match rebuilt {
        Rebuilt::Table(table) => Bound::new(py, Table::new(table, shared()?))?.into_any(),
        Rebuilt::Column(table) => Bound::new(py, Column::new(table, shared()?))?.into_any(),
        Rebuilt::Schema(schema) => Bound::new(py, Schema(schema))?.into_any(),
        Rebuilt::Field(field) => Bound::new(py, Field(field))?.into_any(),
        Rebuilt::Encoded(tree) => Bound::new(py, EncodedArray::new(tree, &shared()?))?.into_any(),
    })
}

/// Rebuilds an object in the session that `session_on` returns for the name of the object's device.
/// A schema or a field needs no session.
#[pyfunction]
pub fn rebuild<'py>(
    py: Python<'py>,
    header: &Bound<'py, PyAny>,
    buffers: &Bound<'py, PyAny>,
    session_on: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let header = header_of(header)?;
    let Some(device) = header.device() else {
        let schema = header.schema().or_raise()?.ok_or_else(|| usage("the object has no schema"))?;
        return into_python(py, schema, None);
    };
    let session = session_on.call1((device.to_string(),))?.cast_into::<Session>()?;
    rebuild_in(py, &session.get().shared()?, header, buffers)
}
