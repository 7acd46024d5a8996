//! `crossdock_engine`: an extension module that was built apart from the package `crossdock`, and shares no Rust type with it.
//!
//! [`Engine`] has a host and a session of its own and loads plugin files itself; tables come and go as Arrow's capsules, encoded
//! arrays come in capsules too and are decoded by the engine's own plugins.
//! [`sequence`] has no host: it makes a column in the memory of a session of the package, which it is lent as the capsule
//! `crossdock.host.v1`.

mod capsules;
mod lent;

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

/// A host of its own, with the plugins of one folder.
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
        let host = Host::builder().search(Search::nowhere().given(plugins)).build().map_err(failed)?;
        Ok(Self { session: host.session().device(device).open().map_err(failed)? })
    }

    /// Names of the plugins that it found.
    fn plugins(&self) -> Vec<String> {
        self.session.host().plugins().map(|plugin| plugin.name.clone()).collect()
    }

    /// The encodings that it decodes, and by which plugins, of which the first one is asked: {id: [name]}.
    fn encodings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut names = Vec::new();
        for (id, plugins) in py.detach(|| self.session.encodings()) {
            let plugins: Vec<_> = plugins.iter().map(|plugin| plugin.name().to_owned()).collect();
            names.push((id, plugins));
        }
        names.into_py_dict(py)
    }

    /// The table of any object with `__arrow_c_device_array__`, in this engine's session.
    fn take(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let pair = table.call_method0("__arrow_c_device_array__")?.cast_into::<PyTuple>()?;
        let schema = capsules::take::<abi::ArrowSchema>(&pair.get_item(0)?)?;
        let array = capsules::take::<abi::ArrowDeviceArray>(&pair.get_item(1)?)?;
        let field = import_field(&schema).map_err(|e| PyTypeError::new_err(e.message().to_owned()))?;
        let taken = py.detach(|| {
            let table = Table::from_device_arrays(&self.session, field, &mut VecDeque::from([array]));
            table.and_then(|table| table.move_to(self.session.device()))
        });
        Ok(Rows { table: taken.map_err(failed)? })
    }

    /// The values, as a table of one column, of any object with `__crossdock_encoded_array__`: its tree comes as plain data, and
    /// this engine's own plugins decode it.
    fn decode(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let capsule = array.call_method0("__crossdock_encoded_array__")?;
        let raw = capsules::take::<abi::EncodedArray>(&capsule)?;
        // SAFETY: under its name a capsule holds such an array, and whoever made it vouches for its lists.
        let tree = unsafe { EncodedArray::from_raw(raw) }
            .map_err(|e| PyValueError::new_err(e.message().to_owned()))?;
        let decoded = py.detach(|| {
            let batch = self.session.decode(self.session.with_arrow_types(tree)?)?;
            Table::from_batches(&self.session, batch.schema().clone(), vec![batch])
        });
        Ok(Rows { table: decoded.map_err(failed)? })
    }

    /// The table of a file that one of its plugins reads.
    fn read(&self, py: Python<'_>, path: PathBuf) -> PyResult<Rows> {
        Ok(Rows { table: py.detach(|| Table::read(&self.session, path)).map_err(failed)? })
    }
}

/// A table of an engine's.
#[pyclass(frozen)]
struct Rows {
    table: Table,
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.table.rows() as usize
    }

    /// The rows from `offset` on.
    fn skip(&self, offset: u64) -> PyResult<Self> {
        Ok(Self { table: self.table.slice(offset, u64::MAX).map_err(failed)? })
    }

    /// Writes a file by one of the engine's plugins.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.table.write(path)).map_err(failed)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // A wish that need not be met.
        let _ = requested_schema;
        let mut batches = self.table.to_device_record_batches().map_err(failed)?;
        match (batches.pop(), batches.len()) {
            (Some((array, schema)), 0) => {
                PyTuple::new(py, [capsules::give(py, schema)?, capsules::give(py, array)?])
            }
            (_, more) => {
                Err(PyRuntimeError::new_err(format!("a table of {} batches is no one array", more + 1)))
            }
        }
    }
}

/// The numbers from 0 to `n` exclusive as a column "n" of int64, made in the memory of the session that `host` (an object with
/// `__crossdock_host__`) lends: `crossdock_engine.sequence(session, 10)`.
#[pyfunction]
fn sequence<'py>(py: Python<'py>, host: &Bound<'py, PyAny>, n: i64) -> PyResult<Bound<'py, PyTuple>> {
    let capsule = host.call_method1("__crossdock_host__", ("crossdock_engine",))?;
    let (schema, array) = lent::sequence(&capsule, n)?;
    PyTuple::new(py, [capsules::give(py, schema)?, capsules::give(py, array)?])
}

type Pair = (Owned<abi::ArrowSchema>, Owned<abi::ArrowDeviceArray>);

#[pymodule]
fn crossdock_engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()?;
    module.add_class::<Rows>()?;
    module.add_function(wrap_pyfunction!(sequence, module)?)
}
