//! The Python module `crossdock_datafusion`: scans of Crossdock as tables of DataFusion's Python
//! package. Both are compiled separately. They exchange C structs of the crate `datafusion-ffi`,
//! whose layout changes with each major version of DataFusion.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crossdock::api::{Device, Options};
use crossdock::{Host, Policy, ReadOptions, ScanOptions, ScanSource};
use crossdock_datafusion::ScanTable;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tokio::runtime::Runtime;

/// The threads that open and read files, which all tables share.
fn runtime() -> PyResult<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let start = || tokio::runtime::Builder::new_multi_thread().thread_name("crossdock-datafusion").build();
    RUNTIME
        .get_or_init(start)
        .as_ref()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))
}

/// A table of `datafusion.SessionContext.register_table`.
#[pyclass(frozen, module = "crossdock_datafusion")]
struct Table(Arc<ScanTable>);

#[pymethods]
impl Table {
    /// Opens files of one schema.
    ///
    /// plugins: paths of plugin files and folders.
    /// format: the name of a format; None: recognised.
    /// device: the device that decodes the files.
    /// memory: the maximum number of bytes to hold at once.
    /// options, storage_options: options of the format, and of the plugin that opens URIs.
    #[new]
    #[pyo3(signature = (files, *, plugins, format=None, device="cpu", memory=None, threads=None, options=vec![], storage_options=vec![]))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        plugins: Vec<PathBuf>,
        format: Option<String>,
        device: &str,
        memory: Option<usize>,
        threads: Option<usize>,
        options: Vec<(String, String)>,
        storage_options: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let device: Device = device
            .parse()
            .map_err(|_| PyValueError::new_err(format!("device={device:?}: expected a device")))?;
        let of = |pairs: Vec<(String, String)>| {
            pairs.into_iter().fold(Options::new(), |all, (key, value)| all.with(key, value))
        };
        let read = ReadOptions { from: format, options: of(options), ..ReadOptions::default() };
        let options = ScanOptions { read, storage: of(storage_options), ..ScanOptions::default() };
        let handle = runtime()?.handle().clone();
        let open = move || -> Result<ScanTable, String> {
            let policy = Policy::from_standard_files().map_err(|error| error.to_string())?;
            let mut host =
                plugins.into_iter().fold(Host::builder().policy(policy), |host, path| host.plugins(path));
            host = memory.into_iter().fold(host, |host, bytes| host.memory_limit_bytes(bytes));
            host = threads.into_iter().fold(host, |host, threads| host.threads(threads));
            let session = host.build().and_then(|host| host.session().device(device).open());
            let session = session.map_err(|error| error.to_string())?;
            let table = ScanTable::try_new(&session, ScanSource::Files(files), options);
            table.map(|table| table.with_runtime(handle)).map_err(|error| error.to_string())
        };
        py.detach(open).map(|table| Self(Arc::new(table))).map_err(PyRuntimeError::new_err)
    }

    /// Called by DataFusion.
    fn __datafusion_table_provider__<'py>(
        &self,
        py: Python<'py>,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        check_version(py)?;
        let codec = codec_of(session)?;
        let provider = self.0.clone();
        let runtime = Some(runtime()?.handle().clone());
        let provider = FFI_TableProvider::new_with_ffi_codec(provider, true, runtime, codec);
        PyCapsule::new_with_value(py, provider, c"datafusion_table_provider")
    }
}

/// Returns an error unless the installed package `datafusion` has the structs of this module. Their
/// own version can be read only at an offset that depends on the version.
fn check_version(py: Python<'_>) -> PyResult<()> {
    let version: String = py.import("datafusion")?.getattr("__version__")?.extract()?;
    let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    let expected = datafusion_ffi::version();
    if major == Some(expected) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "crossdock_datafusion was compiled for DataFusion {expected}, and the package datafusion {version} is \
         installed: install datafusion {expected}.*, or a crossdock_datafusion for your version"
    )))
}

/// The codec of a session, which parses the filters of queries.
fn codec_of(session: &Bound<'_, PyAny>) -> PyResult<FFI_LogicalExtensionCodec> {
    const METHOD: &str = "__datafusion_logical_extension_codec__";
    if !session.hasattr(METHOD)? {
        let kind = session.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "got a {kind}, expected a session of DataFusion with {METHOD}"
        )));
    }
    let capsule = session.call_method0(METHOD)?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"datafusion_logical_extension_codec"))?;
    // SAFETY: a capsule of this name contains the struct, and `check_version` compared the versions
    // of its layout. The capsule is alive.
    let codec = unsafe { pointer.cast::<FFI_LogicalExtensionCodec>().as_ref() };
    Ok(codec.clone())
}

/// Scans of Crossdock as tables of DataFusion.
#[pymodule]
#[pyo3(name = "crossdock_datafusion")]
fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Table>()
}
