//! Tables and columns from objects that speak Arrow's PyCapsule protocols.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::DataType;
use crossdock::Table as HostTable;
use crossdock_arrays::{Arrays, DataStream, DeviceStream, import_field, on_cpu};
use crossdock_plugin_api::{Owned, abi};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::capsules::{name_of, take};
use crate::column::Column;
use crate::errors::OrRaise;
use crate::schema::Schema;
use crate::session::Shared;
use crate::table::Table;
use crate::work::detached;

/// What an object may speak, the best first: of a device before of the host, of all batches before of one.
const PROTOCOLS: [&str; 4] =
    ["__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"];

/// Asks `obj` for the best that it speaks.
pub fn from_arrow<'py>(
    shared: &Arc<Shared>,
    obj: &Bound<'py, PyAny>,
    schema: Option<&Schema>,
) -> PyResult<Bound<'py, PyAny>> {
    let wanted = schema.map(|schema| schema.__arrow_c_schema__(obj.py())).transpose()?;
    for protocol in PROTOCOLS {
        let Some(method) = obj.getattr_opt(protocol)? else { continue };
        let answer = match &wanted {
            Some(wanted) => method.call1((wanted,))?,
            None => method.call0()?,
        };
        if protocol.ends_with("_stream__") {
            return from_stream(shared, &answer, protocol);
        }
        let pair = answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(|| {
            PyTypeError::new_err(format!("{protocol}: expected a pair of capsules, got {answer}"))
        })?;
        return from_pair(shared, &pair.get_item(0)?, &pair.get_item(1)?, protocol);
    }
    Err(PyTypeError::new_err(format!(
        "from_arrow: a {} speaks none of {}; for tensors there is from_dlpack",
        obj.get_type().name()?,
        PROTOCOLS.join(", ")
    )))
}

/// A schema's capsule, and an array's of either kind.
pub fn from_pair<'py>(
    shared: &Arc<Shared>,
    schema: &Bound<'py, PyAny>,
    array: &Bound<'py, PyAny>,
    who: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = schema.py();
    let schema = take::<abi::ArrowSchema>(schema, who)?;
    let array = if name_of(array).as_deref() == Some("arrow_array") {
        on_cpu(take(array, who)?)
    } else {
        take::<abi::ArrowDeviceArray>(array, who)?
    };
    let mut one = VecDeque::from([array]);
    of_arrays(py, shared, &schema, &mut one)
}

fn from_stream<'py>(
    shared: &Arc<Shared>,
    stream: &Bound<'py, PyAny>,
    who: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    // A producer may do its work in these calls, or read files.
    if name_of(stream).as_deref() == Some("arrow_array_stream") {
        let mut stream = DataStream::new(take(stream, who)?);
        let schema = py.detach(|| stream.schema()).or_raise()?;
        return of_arrays(py, shared, &schema, &mut stream);
    }
    let mut stream = DeviceStream::new(take(stream, who)?);
    let schema = py.detach(|| stream.schema()).or_raise()?;
    of_arrays(py, shared, &schema, &mut stream)
}

/// A table of batches, or a column of arrays that are no structs; on the session's device.
fn of_arrays<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    schema: &Owned<abi::ArrowSchema>,
    arrays: &mut dyn Arrays,
) -> PyResult<Bound<'py, PyAny>> {
    let field = import_field(schema).or_raise()?;
    let is_table = matches!(field.data_type(), DataType::Struct(_));
    let session = &shared.session;
    let table =
        detached(py, || HostTable::from_device_arrays(session, field, arrays)?.move_to(session.device()))?;
    if is_table {
        Ok(Bound::new(py, Table::new(table, shared.clone()))?.into_any())
    } else {
        Ok(Bound::new(py, Column::new(table, shared.clone()))?.into_any())
    }
}
