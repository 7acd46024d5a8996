//! NumPy arrays of bfloat16 and float8, which only the package ml_dtypes adds to NumPy.

use crossdock_arrays::ExtensionNumber;
use crossdock_plugin_api::Device;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dlpack::abi::{Code, DataType, DeviceType};
use crate::dlpack::export::{CopyPolicy, ExportRequest, tensor};
use crate::dlpack::tensor::{Form, new_capsule};
use crate::objects::column::Column;

/// Returns the type of a column's numbers if NumPy needs ml_dtypes for it.
pub fn number_of(column: &Column) -> PyResult<Option<ExtensionNumber>> {
    let number = column.table()?.schema().fields().first().map(|field| ExtensionNumber::of(field));
    Ok(number.and_then(Result::ok).flatten().filter(|number| !number.is_complex()))
}

/// Returns a column on the CPU as an array. NumPy imports unsigned integers of the same width,
/// because it does not import such numbers through DLPack, and views them as the type of ml_dtypes.
///
/// # Errors
/// ImportError if ml_dtypes is not installed; ExportError if the column cannot be exported.
pub fn array<'py>(
    py: Python<'py>,
    column: &Column,
    number: ExtensionNumber,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = number.name();
    let module = py.import("ml_dtypes").map_err(|cause| {
        let message = format!(
            "a NumPy array of {name} needs the package ml_dtypes: install it, or use torch.from_dlpack(column)"
        );
        let error = PyImportError::new_err(message);
        error.set_cause(py, Some(cause));
        error
    })?;
    let dtype = module.getattr(name)?;
    let copy = CopyPolicy::new(copy);
    let request = ExportRequest { form: Form::Versioned, copy, to: Device::CPU, consumer: None };
    let mut exported = tensor(py, column, request)?;
    exported.set_dtype(DataType { code: Code::UINT, bits: number.bits(), lanes: 1 });
    let exported = Bound::new(py, Exported { capsule: new_capsule(py, exported)?.unbind() })?;
    py.import("numpy")?.call_method1("from_dlpack", (exported,))?.call_method1("view", (dtype,))
}

/// An object with one tensor on the CPU, for `numpy.from_dlpack`.
#[pyclass(frozen)]
struct Exported {
    capsule: Py<PyAny>,
}

#[pymethods]
impl Exported {
    #[pyo3(signature = (**_arguments))]
    fn __dlpack__(&self, py: Python<'_>, _arguments: Option<&Bound<'_, PyDict>>) -> Py<PyAny> {
        self.capsule.clone_ref(py)
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        (DeviceType::CPU.0, 0)
    }
}
