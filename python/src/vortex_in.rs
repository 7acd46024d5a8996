//! Columns from whatever speaks Vortex's protocol: `__vortex_array_metadata__` gives a tree of tuples, which is flattened
//! here. What their types and metadata mean is a plugin's business.

use std::sync::Arc;

use crossdock_arrays::export_field;
use crossdock_plugin_api::{EncodedArray, EncodedBuffers, LogicalType, NodeParts};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyTuple};

use crate::column::Column;
use crate::errors::{OrRaise, usage};
use crate::process::{begin, detach};
use crate::session::Shared;
use crate::vortex_buffer::take;
use crate::warnings;
use crate::work::reading;

/// The most nodes that are taken from one object, before any of their parts are looked at.
const MOST_NODES: usize = 1 << 20;

/// A column of an array that speaks the protocol.
pub fn from_vortex(py: Python<'_>, shared: &Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<Column> {
    // What is decoded at once is given the types that its nodes are decoded by.
    let typed = |encoding: &str, dtype: &[u8]| {
        let field = detach(py, || shared.session.vortex_type(encoding, dtype)).or_raise()?;
        export_field(&field).map(LogicalType::Schema).or_raise()
    };
    let Some(array) = flatten(object, "from_vortex", typed)? else {
        return Err(PyTypeError::new_err(format!(
            "from_vortex: a {} has no __vortex_array_metadata__, expected an array of vortex; for Arrow's objects there is \
             from_arrow",
            object.get_type().name()?
        )));
    };
    decode(py, shared, array)
}

/// A column of a tree, decoded by the plugins that the session has.
pub fn decode(py: Python<'_>, shared: &Arc<Shared>, array: EncodedArray) -> PyResult<Column> {
    let session = &shared.session;
    let table = reading(py, || {
        let batch = session.decode(session.with_arrow_types(array)?)?;
        crossdock::Table::from_batches(session, batch.schema().clone(), vec![batch])
    })?;
    Ok(Column::new(warnings::after(py, table.or_raise())?, shared.clone()))
}

/// The tree in pre-order, as `who` asks for it; `None` for what does not speak the protocol. Each buffer is taken out of its
/// capsule: what an object gave is good for one call. `typed` makes of an id and its type, as
/// Vortex writes it, what the tree is to have.
pub fn flatten(
    object: &Bound<'_, PyAny>,
    who: &str,
    typed: impl Fn(&str, &[u8]) -> PyResult<LogicalType>,
) -> PyResult<Option<EncodedArray>> {
    let py = object.py();
    let _call = begin(py);
    let Some(method) = object.getattr_opt(intern!(py, "__vortex_array_metadata__"))? else {
        return Ok(None);
    };
    let root = method.call0().map_err(|error| {
        let lazy = "the array does not tell its metadata; one that is computed when it is needed (a slice, a scan of a file) has \
                    to be made canonical first: to_arrow_array(), or vortex.compress() of that";
        because(py, &format!("{who}: {lazy}"), error)
    })?;
    // Most trees are no larger.
    let (mut parts, mut buffers) = (Vec::with_capacity(8), EncodedBuffers::with_capacity(8));
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        if parts.len() + open.len() >= MOST_NODES {
            return Err(usage(format!("{who}: a tree of more than {MOST_NODES} nodes")));
        }
        let number = parts.len();
        let wrong = |what: &str, error| because(py, &format!("{who}: node {number}: {what}"), error);
        let shape = "expected a tuple of (id, dtype, length, metadata, buffers, children)";
        let tuple = node.cast::<PyTuple>().map_err(|error| wrong(shape, error.into()))?;
        type Parts<'py> =
            (String, Bound<'py, PyBytes>, u64, Bound<'py, PyBytes>, Bound<'py, PyAny>, Bound<'py, PyAny>);
        let (encoding, dtype, length, metadata, own, children): Parts<'_> =
            tuple.extract().map_err(|error| wrong(shape, error))?;
        let own = listed(&own).map_err(|error| wrong("its buffers", error))?;
        let children = listed(&children).map_err(|error| wrong("its children", error))?;
        for buffer in &own {
            buffers.push(take(buffer).map_err(|error| wrong("its buffers", error))?);
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let logical_type = typed(&encoding, dtype.as_bytes())?;
        parts.push(NodeParts {
            encoding,
            logical_type,
            length,
            metadata: metadata.as_bytes().to_vec(),
            n_buffers: count(own.len()),
            n_children: count(children.len()),
        });
        // The first one comes next.
        open.extend(children.into_iter().rev());
    }
    EncodedArray::new(parts, buffers).or_raise().map(Some)
}

/// What is wrong, and the error that it was seen by. What is no error, such as an interrupt, stays what it is.
fn because(py: Python<'_>, what: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let words = error.value(py).to_string();
    let wrong = usage(format!("{what}: {}", words.lines().next().unwrap_or_default()));
    wrong.set_cause(py, Some(error));
    wrong
}

/// A list, or a tuple, of at most as many objects as a tree has nodes.
fn listed<'py>(objects: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = objects.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    let sequence = objects.cast::<PySequence>()?;
    // Its length is a claim like any other.
    let listed = sequence.try_iter()?.take(MOST_NODES + 1).collect::<PyResult<Vec<_>>>()?;
    if listed.len() > MOST_NODES {
        return Err(usage(format!("more than {MOST_NODES} of them")));
    }
    Ok(listed)
}
