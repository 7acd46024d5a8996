//! Imports encoded arrays with Vortex's protocol: `__vortex_array_metadata__` returns a tree of
//! tuples, which is flattened here. Plugins interpret its types and metadata.

use std::ops::Range;
use std::sync::Arc;

use crossdock_arrays::export_field;
use crossdock_plugin_api::{EncodedArray, EncodedBuffers, LogicalType, NodeParts};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyTuple};

use crate::objects::column::Column;
use crate::objects::session::Shared;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::process::{begin, detach};
use crate::runtime::warnings;
use crate::runtime::work::reading;
use crate::vortex::buffer::take;

/// Maximum number of nodes of one tree.
const MAX_NODES: usize = 1 << 20;

/// Imports an array with Vortex's protocol, and decodes it.
pub fn from_vortex(py: Python<'_>, shared: &Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<Column> {
    // Converts Vortex types to Arrow types, because decoding needs Arrow types.
    let to_type = |encoding: &str, dtype: &[u8]| {
        let field = detach(py, || shared.session.vortex_type(encoding, dtype)).or_raise()?;
        export_field(&field).map(LogicalType::Schema).or_raise()
    };
    let Some(array) = flatten(object, "from_vortex", to_type)? else {
        return Err(PyTypeError::new_err(format!(
            "from_vortex: expected a Vortex array with __vortex_array_metadata__, got {}; use from_arrow for Arrow objects",
            object.get_type().name()?
        )));
    };
    decode(py, shared, array, None)
}

/// Decodes a tree, or rows of it, with the session's plugins.
pub fn decode(
    py: Python<'_>,
    shared: &Arc<Shared>,
    array: EncodedArray,
    rows: Option<Range<u64>>,
) -> PyResult<Column> {
    let session = &shared.session;
    let table = reading(py, || {
        let array = session.with_arrow_types(array)?;
        let batch = match rows {
            Some(rows) => session.decode_rows(array, rows)?,
            None => session.decode(array)?,
        };
        crossdock::Table::from_batches(session, batch.schema().clone(), vec![batch])
    })?;
    Ok(Column::new(warnings::after(py, table.or_raise())?, shared.clone()))
}

/// A node of the protocol: id, dtype, length, metadata, buffers, children.
type Tuple<'py> =
    (String, Bound<'py, PyBytes>, u64, Bound<'py, PyBytes>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Imports an object's tree in pre-order, or returns `None` if the object does not implement the
/// protocol. Moves the buffers out of their capsules. `to_type` converts a node's encoding and
/// dtype (as Vortex serialises it) into the node's type. `who` names the Python function in errors.
pub fn flatten(
    object: &Bound<'_, PyAny>,
    who: &str,
    to_type: impl Fn(&str, &[u8]) -> PyResult<LogicalType>,
) -> PyResult<Option<EncodedArray>> {
    let py = object.py();
    let _call = begin(py);
    let Some(method) = object.getattr_opt(intern!(py, "__vortex_array_metadata__"))? else {
        return Ok(None);
    };
    let root = method.call0().map_err(|error| {
        let lazy = "the array has no metadata: if it is computed lazily, such as a slice or a file scan, call to_arrow_array(), \
                    or vortex.compress() on the result, or read the file with Session.read or Session.scan (plugin vortex-file)";
        with_context(py, &format!("{who}: {lazy}"), error)
    })?;
    // Most trees have at most 8 nodes.
    let (mut parts, mut buffers) = (Vec::with_capacity(8), EncodedBuffers::with_capacity(8));
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        if parts.len() + pending.len() >= MAX_NODES {
            return Err(usage(format!("{who}: the tree has more than {MAX_NODES} nodes")));
        }
        let index = parts.len();
        let invalid = |what: &str, error| with_context(py, &format!("{who}: node {index}: {what}"), error);
        let expected = "expected a tuple of (id, dtype, length, metadata, buffers, children)";
        let tuple = node.cast::<PyTuple>().map_err(|error| invalid(expected, error.into()))?;
        let (encoding, dtype, length, metadata, node_buffers, children): Tuple<'_> =
            tuple.extract().map_err(|error| invalid(expected, error))?;
        let node_buffers = to_list(&node_buffers).map_err(|error| invalid("buffers", error))?;
        let children = to_list(&children).map_err(|error| invalid("children", error))?;
        for buffer in &node_buffers {
            buffers.push(take(buffer).map_err(|error| invalid("buffers", error))?);
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let logical_type = to_type(&encoding, dtype.as_bytes())?;
        parts.push(NodeParts {
            encoding,
            logical_type,
            length,
            metadata: metadata.as_bytes().to_vec(),
            n_buffers: count(node_buffers.len()),
            n_children: count(children.len()),
        });
        // Pushes the children in reverse, because the first child is the next node in pre-order.
        pending.extend(children.into_iter().rev());
    }
    EncodedArray::new(parts, buffers).or_raise().map(Some)
}

/// Creates a UsageError with `error` as its cause. The message is the context and the first line of
/// `error`. Returns exceptions that are not errors, such as KeyboardInterrupt, unchanged.
fn with_context(py: Python<'_>, context: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let message = error.value(py).to_string();
    let with_context = usage(format!("{context}: {}", message.lines().next().unwrap_or_default()));
    with_context.set_cause(py, Some(error));
    with_context
}

/// Collects the objects of a sequence. A sequence that is not a list may have at most [`MAX_NODES`]
/// objects.
fn to_list<'py>(objects: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = objects.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    let sequence = objects.cast::<PySequence>()?;
    // The declared length of a sequence may be wrong, so the objects are counted.
    let list = sequence.try_iter()?.take(MAX_NODES + 1).collect::<PyResult<Vec<_>>>()?;
    if list.len() > MAX_NODES {
        return Err(usage(format!("expected at most {MAX_NODES} objects")));
    }
    Ok(list)
}
