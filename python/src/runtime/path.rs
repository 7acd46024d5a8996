//! Converts Python paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A path from a `str`, from `bytes`, or from an object whose `__fspath__` returns a `str` or
/// `bytes`. In a `str`, lone surrogates represent bytes that are not UTF-8, as in `os.fsdecode`.
pub struct FsPath(pub PathBuf);

impl<'py> FromPyObject<'_, 'py> for FsPath {
    type Error = PyErr;

    fn extract(path: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let path = path.py().import("os")?.call_method1("fspath", (path,))?;
        match path.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self(OsString::from_vec(bytes.as_bytes().to_vec()).into())),
            Err(_) => Ok(Self(path.extract()?)),
        }
    }
}
