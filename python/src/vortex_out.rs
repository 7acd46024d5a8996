//! A tree as Vortex's protocol has it: nested tuples, whose buffers are capsules.

use crossdock_plugin_api::{EncodedArray, EncodedNode};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{Kind, OrRaise, raise};
use crate::vortex_buffer::give;

/// The tuples of a tree, whose buffers are moved into capsules.
///
/// # Errors
/// Unsupported where a type is as Arrow writes it, or a buffer lies where the protocol has no word for.
pub fn tuples(py: Python<'_>, array: EncodedArray) -> PyResult<Bound<'_, PyAny>> {
    // From the last node to the first, so that children are done before their parents.
    let mut done: Vec<Bound<'_, PyAny>> = Vec::new();
    for index in (0..array.n_nodes()).rev() {
        let node = array.node(index).or_raise()?;
        // Each of them is one of the last that were done, the first one last.
        let from = done.len().saturating_sub(node.n_children());
        let children: Vec<_> = done.drain(from..).rev().collect();
        done.push(tuple(py, node, children)?);
    }
    done.pop().ok_or_else(|| raise(Kind::Data, "a tree without a root"))
}

fn tuple<'py>(
    py: Python<'py>,
    node: EncodedNode<'_>,
    children: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = node.dtype().ok_or_else(|| {
        let words = format!(
            "{}: its type is as Arrow writes it, and Vortex's protocol has Vortex's own: decode() it, and give Vortex the column",
            node.path()
        );
        raise(Kind::Unsupported, words)
    })?;
    let mut buffers = Vec::with_capacity(node.n_buffers());
    for i in 0..node.n_buffers() {
        // SAFETY: the array is this call's alone.
        let buffer = unsafe { node.take_buffer(i) }.or_raise()?;
        buffers.push(give(py, buffer)?);
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
