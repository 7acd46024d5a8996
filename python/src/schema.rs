//! `Schema` and `Field`.

use arrow_schema::{FieldRef, SchemaRef};
use crossdock_arrays::metadata::{Pair, field_pairs, pairs};
use crossdock_arrays::{export_field, export_schema};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::capsules::give;
use crate::errors::OrRaise;
use crate::process::begin;

/// Names, types and metadata of a table's columns.
#[pyclass(frozen, eq, module = "crossdock")]
#[derive(PartialEq, Eq)]
pub struct Schema(pub SchemaRef);

/// A column's name, type and metadata.
#[pyclass(frozen, eq, module = "crossdock")]
#[derive(PartialEq, Eq)]
pub struct Field(pub FieldRef);

/// The index of the column that `key`, a name or a number, means.
///
/// # Errors
/// KeyError for a name that no column or that several have, IndexError for a number out of range.
pub fn index_of(schema: &SchemaRef, key: &Bound<'_, PyAny>) -> PyResult<usize> {
    let fields = schema.fields();
    if let Ok(name) = key.cast::<PyString>() {
        let name = name.to_str()?;
        let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name).map(|(i, _)| i);
        return match (found.next(), found.next()) {
            (Some(i), None) => Ok(i),
            (Some(_), Some(_)) => {
                Err(PyKeyError::new_err(format!("several columns are called {name:?}: use an index")))
            }
            _ => {
                let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
                Err(PyKeyError::new_err(format!("no column is called {name:?}: there are {names:?}")))
            }
        };
    }
    let n = fields.len() as isize;
    let given: isize = key.extract()?;
    let index = if given < 0 { given + n } else { given };
    match usize::try_from(index) {
        Ok(i) if index < n => Ok(i),
        _ => Err(PyIndexError::new_err(format!("column {given} of a table of {n} columns"))),
    }
}

#[pymethods]
impl Schema {
    /// The columns' names.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The schema's own metadata; what is not UTF-8 as by os.fsdecode, of a key that comes twice the first value.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata_of(py, &pairs(self.0.metadata()))
    }

    fn __len__(&self) -> usize {
        self.0.fields().len()
    }

    /// The field of a name or an index.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Field> {
        let index = index_of(&self.0, key)?;
        self.0
            .fields()
            .get(index)
            .map(|field| Field(field.clone()))
            .ok_or_else(|| PyIndexError::new_err(index))
    }

    pub fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        give(py, export_schema(&self.0).or_raise()?)
    }

    /// The same as a `pyarrow.Schema`.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = begin(slf.py());
        slf.py().import("pyarrow")?.call_method1("schema", (slf,))
    }

    fn __repr__(&self) -> String {
        self.0.fields().iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[pymethods]
impl Field {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Its Arrow type, in words.
    #[getter]
    fn r#type(&self) -> String {
        self.0.data_type().to_string()
    }

    /// Whether values may be null.
    #[getter]
    fn nullable(&self) -> bool {
        self.0.is_nullable()
    }

    /// Its metadata, an extension type's name included, as Schema.metadata has it.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata_of(py, &field_pairs(self.0.data_type(), self.0.metadata()))
    }

    pub fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        give(py, export_field(&self.0).or_raise()?)
    }

    /// The same as a `pyarrow.Field`.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = begin(slf.py());
        slf.py().import("pyarrow")?.call_method1("field", (slf,))
    }

    fn __repr__(&self) -> String {
        line(&self.0)
    }
}

fn line(field: &FieldRef) -> String {
    let null = if field.is_nullable() { "" } else { " not null" };
    format!("{}: {}{null}", field.name(), field.data_type())
}

/// As `os.fsdecode` does it, bytes that are not UTF-8 are lone surrogates; of a key that comes twice there is the first value.
fn metadata_of<'py>(py: Python<'py>, pairs: &[Pair]) -> PyResult<Bound<'py, PyDict>> {
    let text = |bytes: &[u8]| {
        PyBytes::new(py, bytes).call_method1(intern!(py, "decode"), ("utf-8", "surrogateescape"))
    };
    let dict = PyDict::new(py);
    for (key, value) in pairs {
        let key = text(key)?;
        if !dict.contains(&key)? {
            dict.set_item(key, text(value)?)?;
        }
    }
    Ok(dict)
}
