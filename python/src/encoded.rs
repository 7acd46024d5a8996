//! `EncodedArray`.

use std::sync::{Arc, OnceLock};

use crossdock::EncodedParts;
use crossdock::source::Input;
use crossdock_arrays::import_field;
use crossdock_plugin_api::{EncodedArray as Tree, LogicalType, Named, abi};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::BufferSource;
use crate::capsules::{give, name_of, take};
use crate::column::Column;
use crate::errors::{OrRaise, Undisturbed};
use crate::process::{Own, begin};
use crate::session::Shared;
use crate::vortex_in;
use crate::vortex_out;
use crate::work::detached;

/// An encoded array: a tree of nodes, each with an encoding, a type, metadata and buffers, which plugins decode.
///
/// It is not used up: it can be decoded, written and given to others any number of times. All of them share its buffers, which
/// stay until the last one is gone.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct EncodedArray {
    held: Undisturbed<Own<Held>>,
}

struct Held {
    tree: Arc<Tree>,
    shared: Arc<Shared>,
    /// The root's, once it has been asked for.
    type_in_words: OnceLock<String>,
}

/// An encoded array of whatever speaks one of the protocols, or of bytes.
pub fn encoded(py: Python<'_>, shared: &Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<EncodedArray> {
    Ok(EncodedArray::new(tree_of(py, shared, object, "encoded")?, shared))
}

/// A node, as it is described, and what is below it.
pub struct Parts<'a, 'py> {
    pub encoding: String,
    pub r#type: &'a Bound<'py, PyAny>,
    pub length: u64,
    pub metadata: Vec<u8>,
    pub buffers: Vec<Bound<'py, PyAny>>,
    pub children: Vec<Bound<'py, PyAny>>,
}

/// An encoded array of these parts.
pub fn build(py: Python<'_>, shared: &Arc<Shared>, parts: Parts<'_, '_>) -> PyResult<EncodedArray> {
    let _call = begin(py);
    const WHO: &str = "build_encoded";
    let Some(method) = parts.r#type.getattr_opt(intern!(py, "__arrow_c_schema__"))? else {
        let kind = parts.r#type.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{WHO}: type is a {kind}, which has no __arrow_c_schema__"
        )));
    };
    let schema = take::<abi::ArrowSchema>(&method.call0()?, WHO)?;
    let field = import_field(&schema).or_raise()?;
    let buffer = |object: &Bound<'_, PyAny>| Ok(Input::Bytes(Arc::new(BufferSource::new(object)?)));
    let child = |object: &Bound<'_, PyAny>| tree_of(py, shared, object, WHO);
    let parts = EncodedParts {
        encoding: parts.encoding,
        field,
        length: parts.length,
        metadata: parts.metadata,
        buffers: parts.buffers.iter().map(buffer).collect::<PyResult<_>>()?,
        children: parts.children.iter().map(child).collect::<PyResult<_>>()?,
    };
    Ok(EncodedArray::new(detached(py, || shared.session.build_encoded(parts))?, shared))
}

fn tree_of(py: Python<'_>, shared: &Arc<Shared>, object: &Bound<'_, PyAny>, who: &str) -> PyResult<Tree> {
    let _call = begin(py);
    let in_capsule = |capsule: &Bound<'_, PyAny>| {
        let raw = take::<abi::EncodedArray>(capsule, who)?;
        // SAFETY: under its name a capsule holds such an array, and whoever made it vouches for its lists.
        unsafe { Tree::from_raw(raw) }.or_raise()
    };
    if let Some(method) = object.getattr_opt(intern!(py, "__crossdock_encoded_array__"))? {
        return in_capsule(&method.call0()?);
    }
    if name_of(object).is_some_and(|name| name.as_bytes() == abi::EncodedArray::NAME.to_bytes()) {
        return in_capsule(object);
    }
    if let Some(tree) = vortex_in::flatten(object, who, |_, dtype| Ok(LogicalType::Dtype(dtype.to_vec())))? {
        return Ok(tree);
    }
    let Ok(bytes) = BufferSource::new(object) else {
        return Err(PyTypeError::new_err(format!(
            "{who}: a {} has no __crossdock_encoded_array__, no __vortex_array_metadata__ and no contiguous bytes",
            object.get_type().name()?
        )));
    };
    let input = Input::Bytes(Arc::new(bytes));
    detached(py, || shared.session.read_encoded(&input))
}

impl EncodedArray {
    fn new(tree: Tree, shared: &Arc<Shared>) -> Self {
        let held = Held { tree: Arc::new(tree), shared: shared.clone(), type_in_words: OnceLock::new() };
        Self { held: Undisturbed::new(Own::new(held)) }
    }

    fn held(&self) -> PyResult<&Held> {
        self.held.get()
    }

    /// The same tree, to be given away.
    fn share(&self) -> PyResult<Tree> {
        self.held()?.tree.share().or_raise()
    }

    fn type_in_words(&self, py: Python<'_>) -> PyResult<&str> {
        let held = self.held()?;
        if let Some(words) = held.type_in_words.get() {
            return Ok(words);
        }
        let root = held.tree.root().or_raise()?;
        let field = detached(py, || held.shared.session.encoded_type(root))?;
        Ok(held.type_in_words.get_or_init(|| field.data_type().to_string()))
    }
}

#[pymethods]
impl EncodedArray {
    /// The id of the root's encoding.
    #[getter]
    fn encoding(&self) -> PyResult<String> {
        Ok(self.held()?.tree.root().or_raise()?.encoding().to_owned())
    }

    /// The Arrow type of its values, in words.
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<&str> {
        self.type_in_words(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        let length = self.held()?.tree.root().or_raise()?.length();
        Ok(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The whole tree as bytes, which session.encoded() and the format "encodings" read. What was read is written as the same
    /// bytes again; buffers on devices are copied to the host for it.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (session, tree) = (&self.held()?.shared.session, self.share()?);
        let bytes = detached(py, || session.encoded_to_bytes(tree))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Its values, decoded by the plugins that the session has for its encodings, on the session's device.
    fn decode(&self, py: Python<'_>) -> PyResult<Column> {
        vortex_in::decode(py, &self.held()?.shared, self.share()?)
    }

    /// The tree as Vortex's protocol has it: nested tuples of (id, dtype, length, metadata, buffers, children). What it gave is
    /// good for one consumer; each call gives new capsules of the same buffers.
    fn __vortex_array_metadata__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (session, tree) = (&self.held()?.shared.session, self.share()?);
        let tree = detached(py, || session.with_vortex_types(tree))?;
        vortex_out::tuples(py, tree)
    }

    /// A capsule `crossdock_encoded_array`: its pointer is to the struct of that name in crossdock.h. It is good for one
    /// consumer; each call gives a new one of the same buffers.
    fn __crossdock_encoded_array__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        give(py, self.share()?.into_raw())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let root = self.held()?.tree.root().or_raise()?;
        let (encoding, n) = (crossdock::one_line(root.encoding()), root.length());
        // One whose type nobody knows has a name all the same.
        let of = self.type_in_words(py).map_or_else(|_| String::new(), |words| format!(" of {words}"));
        Ok(format!("crossdock.EncodedArray: {encoding}{of}, {n} values"))
    }
}
