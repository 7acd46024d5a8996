//! Starts this interpreter as the process of an isolated plugin.

use std::ffi::OsString;
use std::path::PathBuf;

use crossdock::isolation::{self, Program};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;

/// The Python program of an isolated process. It loads this extension module from its file, without
/// the package, and serves the host.
const SERVE: &str = "\
import importlib.machinery as machinery, importlib.util as util, sys
loader = machinery.ExtensionFileLoader('_native', sys.argv[1])
module = util.module_from_spec(util.spec_from_loader('_native', loader))
loader.exec_module(module)
module.serve_isolated()
";

/// Lets this interpreter's executable run isolated plugins. An embedded interpreter has no
/// executable, so a host in it needs a policy that names a program.
pub fn serve_with(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let executable: Option<PathBuf> = module.py().import("sys")?.getattr("executable")?.extract()?;
    let file: Option<OsString> = module.getattr_opt("__file__")?.map(|file| file.extract()).transpose()?;
    if let (Some(path), Some(file)) = (executable.filter(|path| path.is_file()), file) {
        let arguments = ["-I", "-S", "-c", SERVE].iter().map(OsString::from).chain([file]).collect();
        isolation::serve_with(Program { path, arguments, environment: Vec::new() });
    }
    Ok(())
}

/// Serves the host that started this process, until the host closes the connection.
#[pyfunction]
pub fn serve_isolated() -> PyResult<()> {
    isolation::serve();
    Err(PySystemExit::new_err(1))
}
