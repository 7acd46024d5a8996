//! Parses devices and sizes.

use crossdock_plugin_api::Device;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::runtime::errors::{OrRaise, usage};

/// Parses "cpu", "cuda" or "cuda:0".
pub fn parse(text: &str) -> PyResult<Device> {
    text.parse::<Device>().or_raise()
}

/// Parses a size in bytes: a number, or a string like "32GiB".
pub fn bytes(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str()?;
        return crossdock::parse_bytes(text).map_err(|why| usage(format!("memory={text:?}: {why}")));
    }
    match value.extract() {
        Ok(0) | Err(_) => Err(usage(format!(
            "memory={}: expected a number of bytes above 0, or a size like \"32GiB\"",
            value.repr()?
        ))),
        Ok(bytes) => Ok(bytes),
    }
}
