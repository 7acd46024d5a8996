//! `EncodedArray`: a tree of encoded nodes that is not decoded yet.

use std::sync::{Arc, OnceLock};

use crossdock::source::Input;
use crossdock::{EncodedParts, Parts as HostParts};
use crossdock_arrays::{field_type_name, import_field};
use crossdock_plugin_api::{CapsuleObject, EncodedArray as Tree, LogicalType, abi};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrow::capsules::{name_of, new_capsule, take};
use crate::objects::bytes::BufferSource;
use crate::objects::column::Column;
use crate::objects::parts;
use crate::objects::request::one_range;
use crate::objects::session::Shared;
use crate::runtime::errors::{KeepException, OrRaise};
use crate::runtime::process::{ProcessLocal, begin};
use crate::runtime::work::detached;
use crate::vortex;

/// An encoded array: a tree of nodes, each with an encoding, a type, metadata and buffers. Plugins
/// decode it.
///
/// It can be decoded, written and exported any number of times. All results share its buffers.
///
/// >>> array = table["id"].encode("fastlanes.for")
/// >>> array
/// crossdock.EncodedArray: fastlanes.for of int64, 3 values
/// >>> array.decode().to_pylist()
/// [1, 2, 3]
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct EncodedArray {
    state: KeepException<ProcessLocal<State>>,
}

struct State {
    tree: Arc<Tree>,
    shared: Arc<Shared>,
    /// The root's type, which is determined at its first use.
    type_text: OnceLock<String>,
}

/// Imports an encoded array from bytes, or from an object that implements Crossdock's or Vortex's
/// protocol.
pub fn encoded(py: Python<'_>, shared: &Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<EncodedArray> {
    Ok(EncodedArray::new(tree_of(py, shared, object, "encoded")?, shared))
}

/// The arguments of `build_encoded`: a node and its children.
pub struct Parts<'a, 'py> {
    pub encoding: String,
    pub r#type: &'a Bound<'py, PyAny>,
    pub length: u64,
    pub metadata: Vec<u8>,
    pub buffers: Vec<Bound<'py, PyAny>>,
    pub children: Vec<Bound<'py, PyAny>>,
}

/// Builds an encoded array.
pub fn build(py: Python<'_>, shared: &Arc<Shared>, parts: Parts<'_, '_>) -> PyResult<EncodedArray> {
    let _call = begin(py);
    const WHO: &str = "build_encoded";
    let Some(method) = parts.r#type.getattr_opt(intern!(py, "__arrow_c_schema__"))? else {
        let kind = parts.r#type.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{WHO}: type: expected an object with __arrow_c_schema__, got {kind}"
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
    let from_capsule = |capsule: &Bound<'_, PyAny>| {
        let raw = take::<abi::EncodedArray>(capsule, who)?;
        // SAFETY: `take` checked the capsule's name. A producer that uses this name guarantees a
        // valid `crossdock_encoded_array`.
        unsafe { Tree::from_raw(raw) }.or_raise()
    };
    if let Some(method) = object.getattr_opt(intern!(py, "__crossdock_encoded_array__"))? {
        return from_capsule(&method.call0()?);
    }
    if name_of(object).is_some_and(|name| name.as_bytes() == abi::EncodedArray::NAME.to_bytes()) {
        return from_capsule(object);
    }
    if let Some(tree) =
        vortex::import::flatten(object, who, |_, dtype| Ok(LogicalType::Dtype(dtype.to_vec())))?
    {
        return Ok(tree);
    }
    let Ok(bytes) = BufferSource::new(object) else {
        return Err(PyTypeError::new_err(format!(
            "{who}: expected an object with __crossdock_encoded_array__ or __vortex_array_metadata__, or contiguous bytes, got {}",
            object.get_type().name()?
        )));
    };
    let input = Input::Bytes(Arc::new(bytes));
    detached(py, || shared.session.read_encoded(&input))
}

impl EncodedArray {
    pub fn new(tree: Tree, shared: &Arc<Shared>) -> Self {
        let state = State { tree: Arc::new(tree), shared: shared.clone(), type_text: OnceLock::new() };
        Self { state: KeepException::new(ProcessLocal::new(state)) }
    }

    fn state(&self) -> PyResult<&State> {
        self.state.get()
    }

    /// Returns another reference to the tree, for a consumer that takes ownership.
    fn share(&self) -> PyResult<Tree> {
        self.state()?.tree.share().or_raise()
    }

    fn parts(&self, py: Python<'_>) -> PyResult<HostParts> {
        let (session, tree) = (&self.state()?.shared.session, self.share()?);
        detached(py, || session.encoded_to_parts(tree))
    }

    fn type_text(&self, py: Python<'_>) -> PyResult<&str> {
        let state = self.state()?;
        if let Some(text) = state.type_text.get() {
            return Ok(text);
        }
        let root = state.tree.root().or_raise()?;
        let field = detached(py, || state.shared.session.encoded_type(root))?;
        Ok(state.type_text.get_or_init(|| field_type_name(&field)))
    }
}

#[pymethods]
impl EncodedArray {
    /// Id of the root's encoding.
    ///
    /// >>> table["id"].encode("fastlanes.for").encoding
    /// 'fastlanes.for'
    #[getter]
    fn encoding(&self) -> PyResult<String> {
        Ok(self.state()?.tree.root().or_raise()?.encoding().to_owned())
    }

    /// Arrow type of the values as text, as pyarrow prints it.
    ///
    /// >>> table["id"].encode("fastlanes.for").type
    /// 'int64'
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<&str> {
        self.type_text(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        let length = self.state()?.tree.root().or_raise()?.length();
        Ok(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Serialises the tree. `Session.encoded` and the format "encodings" read the bytes. A tree
    /// that was read from bytes serialises to the same bytes. Buffers on devices are copied to the
    /// host.
    ///
    /// >>> data = table["id"].encode("fastlanes.for").to_bytes()
    /// >>> session.encoded(data).decode().to_pylist()
    /// [1, 2, 3]
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (session, tree) = (&self.state()?.shared.session, self.share()?);
        let bytes = detached(py, || session.encoded_to_bytes(tree))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Takes the array apart: a header, and buffers with the buffer protocol, in host memory.
    /// `Session.from_parts` rebuilds it, also in another process. Buffers in host memory are
    /// shared.
    ///
    /// >>> header, buffers = table["id"].encode("fastlanes.for").to_parts()
    /// >>> session.from_parts(header, buffers).encoding
    /// 'fastlanes.for'
    fn to_parts<'py>(&self, py: Python<'py>) -> PyResult<parts::HeaderAndBuffers<'py>> {
        parts::to_python(py, self.parts(py)?)
    }

    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<parts::Reduced<'py>> {
        parts::reduce(py, protocol, self.parts(py)?)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    // A copy would be equal, because encoded arrays are immutable.
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Decodes the values with the session's plugins, on the session's device.
    ///
    /// rows: (start, stop) or a range: decode only these values, as far as the encodings allow it.
    /// Positions behind the last value are ignored. None: all values.
    ///
    /// >>> table["id"].encode("fastlanes.for").decode(rows=(1, 3)).to_pylist()
    /// [2, 3]
    #[pyo3(signature = (*, rows=None))]
    fn decode(&self, py: Python<'_>, rows: Option<&Bound<'_, PyAny>>) -> PyResult<Column> {
        let state = self.state()?;
        let length = state.tree.root().or_raise()?.length();
        let rows = rows.map(one_range).transpose()?;
        let rows = rows.map(|rows| rows.start.min(length)..rows.end.clamp(rows.start.min(length), length));
        vortex::import::decode(py, &state.shared, self.share()?, rows)
    }

    /// Exports the tree with Vortex's protocol: nested tuples (id, dtype, length, metadata,
    /// buffers, children). Each call returns new capsules of the same buffers, for one consumer.
    fn __vortex_array_metadata__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (session, tree) = (&self.state()?.shared.session, self.share()?);
        let tree = detached(py, || session.with_vortex_types(tree))?;
        vortex::export::tuples(py, tree)
    }

    /// Exports the tree in a capsule `crossdock_encoded_array`, whose pointer is the struct of that
    /// name in crossdock.h. Each call returns a new capsule of the same buffers, for one consumer.
    fn __crossdock_encoded_array__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_capsule(py, self.share()?.into_raw())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let root = self.state()?.tree.root().or_raise()?;
        let (encoding, n) = (crossdock::one_line(root.encoding()), root.length());
        // The type is unknown if no plugin of the session reads Vortex types.
        let values = self.type_text(py).map_or_else(|_| String::new(), |text| format!(" of {text}"));
        Ok(format!("crossdock.EncodedArray: {encoding}{values}, {n} values"))
    }
}
