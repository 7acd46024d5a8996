//! The extension module `crossdock_engine`, which is built separately from the package `crossdock`
//! and shares no Rust types with it.
//!
//! - [`Engine`] has its own host and session, and loads plugin files. It imports and exports tables
//!   as Arrow's capsules. It also imports capsules with encoded arrays, and decodes the arrays with
//!   its plugins.
//! - [`sequence`] needs no host. It creates a column in the memory of a session of the package,
//!   from the session's capsule `crossdock.host.v1`.

mod borrowed_session;
mod capsules;

use std::collections::VecDeque;
use std::path::PathBuf;

use crossdock::discovery::Search;
use crossdock::{Host, Session, Table};
use crossdock_arrays::import_field;
use crossdock_plugin_api::{Device, EncodedArray, Owned, abi};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};

fn failed(error: crossdock::Error) -> PyErr {
    PyRuntimeError::new_err(error.one_line())
}

/// A host and a session, with the plugins of one folder.
#[pyclass(frozen)]
struct Engine {
    session: Session,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (plugins, device="cpu"))]
    fn new(plugins: PathBuf, device: &str) -> PyResult<Self> {
        let device: Device = device
            .parse()
            .map_err(|e: crossdock_plugin_api::Error| PyTypeError::new_err(e.message().to_owned()))?;
        let host = Host::builder().search(Search::nowhere().with_path(plugins)).build().map_err(failed)?;
        Ok(Self { session: host.session().device(device).open().map_err(failed)? })
    }

    /// The names of the loaded plugins.
    fn plugins(&self) -> Vec<String> {
        self.session.host().plugins().map(|plugin| plugin.name.clone()).collect()
    }

    /// Returns a dict from the id of each encoding that the engine decodes to a list of plugin
    /// names. The first plugin in the list decodes the encoding.
    fn encodings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut names = Vec::new();
        for (id, plugins) in py.detach(|| self.session.encodings()) {
            let plugins: Vec<_> = plugins.iter().map(|plugin| plugin.name().to_owned()).collect();
            names.push((id, plugins));
        }
        names.into_py_dict(py)
    }

    /// Imports an object with `__arrow_c_device_array__` as a table of this engine's session.
    fn take(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let pair = table.call_method0("__arrow_c_device_array__")?.cast_into::<PyTuple>()?;
        let schema = capsules::from_capsule::<abi::ArrowSchema>(&pair.get_item(0)?)?;
        let array = capsules::from_capsule::<abi::ArrowDeviceArray>(&pair.get_item(1)?)?;
        let field = import_field(&schema).map_err(|e| PyTypeError::new_err(e.message().to_owned()))?;
        let moved = py.detach(|| {
            let table = Table::from_device_arrays(&self.session, field, &mut VecDeque::from([array]));
            table.and_then(|table| table.move_to(self.session.device()))
        });
        Ok(Rows { table: moved.map_err(failed)? })
    }

    /// Decodes an object with `__crossdock_encoded_array__` with this engine's plugins. Returns a
    /// table of one column.
    fn decode(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let capsule = array.call_method0("__crossdock_encoded_array__")?;
        let raw = capsules::from_capsule::<abi::EncodedArray>(&capsule)?;
        // SAFETY: `from_capsule` checked the name of the capsule. A capsule of this name contains a
        // valid array, whose lists have the declared lengths.
        let tree = unsafe { EncodedArray::from_raw(raw) }
            .map_err(|e| PyValueError::new_err(e.message().to_owned()))?;
        let decoded = py.detach(|| {
            let batch = self.session.decode(self.session.with_arrow_types(tree)?)?;
            Table::from_batches(&self.session, batch.schema().clone(), vec![batch])
        });
        Ok(Rows { table: decoded.map_err(failed)? })
    }

    /// Reads a file with one of the engine's plugins.
    fn read(&self, py: Python<'_>, path: PathBuf) -> PyResult<Rows> {
        Ok(Rows { table: py.detach(|| Table::read(&self.session, path)).map_err(failed)? })
    }
}

/// A table of an engine.
#[pyclass(frozen)]
struct Rows {
    table: Table,
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.table.rows() as usize
    }

    /// Returns the rows that begin at `offset`.
    fn skip(&self, offset: u64) -> PyResult<Self> {
        Ok(Self { table: self.table.slice(offset, u64::MAX).map_err(failed)? })
    }

    /// Writes a file with one of the engine's plugins.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.table.write(path)).map_err(failed)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The protocol permits ignoring the requested schema.
        let _ = requested_schema;
        let mut batches = self.table.to_device_record_batches().map_err(failed)?;
        let n_batches = batches.len();
        match batches.pop() {
            Some((array, schema)) if n_batches == 1 => {
                PyTuple::new(py, [capsules::to_capsule(py, schema)?, capsules::to_capsule(py, array)?])
            }
            _ => Err(PyRuntimeError::new_err(format!("a table of {n_batches} batches, expected 1"))),
        }
    }
}

/// Returns a column "n" of type int64 with the numbers from 0 to `n` - 1. Its memory belongs to a
/// session of the package, for example `crossdock_engine.sequence(session, 10)`.
///
/// host: an object with `__crossdock_host__`.
#[pyfunction]
fn sequence<'py>(py: Python<'py>, host: &Bound<'py, PyAny>, n: i64) -> PyResult<Bound<'py, PyTuple>> {
    let capsule = host.call_method1("__crossdock_host__", ("crossdock_engine",))?;
    let (schema, array) = borrowed_session::sequence(&capsule, n)?;
    PyTuple::new(py, [capsules::to_capsule(py, schema)?, capsules::to_capsule(py, array)?])
}

/// A column as Arrow's C structs.
type FieldAndArray = (Owned<abi::ArrowSchema>, Owned<abi::ArrowDeviceArray>);

#[pymodule]
fn crossdock_engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()?;
    module.add_class::<Rows>()?;
    module.add_function(wrap_pyfunction!(sequence, module)?)
}
