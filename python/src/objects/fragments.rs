//! Creates the objects of the Python class `Fragment`, and scans of them.

use crossdock::{Fragment, ScanSource};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::runtime::errors::usage;

fn class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("crossdock._fragments")?.getattr("Fragment")
}

pub fn is_fragment(source: &Bound<'_, PyAny>) -> PyResult<bool> {
    source.is_instance(&class(source.py())?)
}

/// Describes the table of a fragment in `session`.
///
/// # Errors
/// UsageError if there are other arguments.
pub fn scan<'py>(
    session: &Bound<'py, PyAny>,
    fragment: &Bound<'py, PyAny>,
    has_others: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if has_others {
        return Err(usage(
            "scan: expected no other arguments, because a Fragment has the arguments of its scan: pass \
             Fragment.source, and Fragment.token as fragment",
        ));
    }
    fragment.call_method1("scan", (session,))
}

/// Returns the object of the Python class for a fragment of the scan of `source` with the keyword
/// arguments `keywords`.
pub fn new<'py>(
    session: &Bound<'py, PyAny>,
    settings: &Bound<'py, PyAny>,
    source: &Bound<'py, PyAny>,
    keywords: &Bound<'py, PyDict>,
    fragment: &Fragment,
    statistics: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = session.py();
    let source = match fragment.source() {
        ScanSource::Files(files) => match files.first() {
            Some(file) => file.as_os_str().into_pyobject(py)?.into_any(),
            None => source.clone(),
        },
        ScanSource::Input(_) => source.clone(),
    };
    let arguments = keywords.copy()?;
    arguments.set_item("rows", py.None())?;
    arguments.set_item("limit", py.None())?;
    arguments.set_item("fragment", PyBytes::new(py, fragment.token()))?;
    class(py)?.call1((session, settings, source, arguments, fragment.n_rows(), fragment.bytes(), statistics))
}
