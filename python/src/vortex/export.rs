//! Exports encoded arrays with Vortex's protocol: nested tuples, with buffers in capsules.

use crossdock_plugin_api::{EncodedArray, EncodedNode};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::runtime::errors::{Kind, OrRaise, raise};
use crate::vortex::buffer::new_capsule;

/// Converts a tree into tuples, and moves its buffers into capsules.
///
/// # Errors
/// UnsupportedError if a node has an Arrow type, or if a buffer is on a device that the protocol
/// does not support.
pub fn tuples(py: Python<'_>, array: EncodedArray) -> PyResult<Bound<'_, PyAny>> {
    // Converts the nodes from the last to the first, so that children are converted before their
    // parents.
    let mut converted: Vec<Bound<'_, PyAny>> = Vec::new();
    for index in (0..array.n_nodes()).rev() {
        let node = array.node(index).or_raise()?;
        // The last tuples in `converted` are the node's children, in reverse order.
        let from = converted.len().saturating_sub(node.n_children());
        let children: Vec<_> = converted.drain(from..).rev().collect();
        converted.push(tuple(py, node, children)?);
    }
    converted.pop().ok_or_else(|| raise(Kind::Data, "the encoded array has no root"))
}

fn tuple<'py>(
    py: Python<'py>,
    node: EncodedNode<'_>,
    children: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = node.dtype().ok_or_else(|| {
        let message = format!(
            "{}: the node has an Arrow type, expected a Vortex type for Vortex's protocol: call decode(), and export the column",
            node.path()
        );
        raise(Kind::Unsupported, message)
    })?;
    let mut buffers = Vec::with_capacity(node.n_buffers());
    for i in 0..node.n_buffers() {
        // SAFETY: `tuples` owns the array, so no other code uses the buffer.
        let buffer = unsafe { node.take_buffer(i) }.or_raise()?;
        buffers.push(new_capsule(py, buffer)?);
    }
    let parts = (
        node.encoding(),
        PyBytes::new(py, dtype),
        node.length(),
        PyBytes::new(py, node.metadata()),
        PyList::new(py, buffers)?,
        PyList::new(py, children)?,
    );
    Ok(parts.into_pyobject(py)?.into_any())
}
