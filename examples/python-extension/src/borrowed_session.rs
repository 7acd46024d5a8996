//! Creates a column in the memory of a session that another module owns.

use arrow_schema::{DataType, Field};
use crossdock_arrays::{DeviceArray, export_device_array, export_field};
use crossdock_memory::Memory;
use crossdock_plugin_api::{Error, Host, Result};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::FieldAndArray;

/// Returns a column with the numbers from 0 to `n` - 1.
///
/// `capsule`: the capsule `crossdock.host.v1` of the session.
pub fn sequence(capsule: &Bound<'_, PyAny>, n: i64) -> PyResult<FieldAndArray> {
    let rows =
        usize::try_from(n).map_err(|_| PyValueError::new_err(format!("{n} rows: expected 0 or more")))?;
    // SAFETY: `PyCapsule_GetPointer` accepts any object, and returns NULL unless it is a capsule of
    // this name. Capsules of this name contain a live `crossdock_host`, which `retain` keeps alive.
    let host = unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"crossdock.host.v1".as_ptr());
        if pointer.is_null() {
            let _ = PyErr::take(capsule.py());
            return Err(PyTypeError::new_err("expected a capsule 'crossdock.host.v1'"));
        }
        Host::retain(pointer.cast_const().cast())
    };
    let column = host.and_then(|host| capsule.py().detach(|| create_column(&host, rows)));
    column.map_err(|error| PyRuntimeError::new_err(error.message().to_owned()))
}

fn create_column(host: &Host, rows: usize) -> Result<FieldAndArray> {
    let session = host.session().ok_or_else(|| Error::unsupported("the host does not state its session"))?;
    let memory = Memory::from_host(host)?;
    let stream = memory.default_stream(session.device)?;
    let numbers = memory.alloc_with(&stream, rows * 8, |to| {
        for (number, to) in to.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&(number as i64).to_le_bytes());
        }
        Ok(())
    })?;
    let buffers = vec![None, Some(numbers.freeze(&stream)?)];
    let column = DeviceArray::try_new(DataType::Int64, rows, 0, Some(0), buffers, Vec::new(), None)?;
    let schema = export_field(&Field::new("n", DataType::Int64, false))?;
    Ok((schema, export_device_array(&column, &stream)?))
}
