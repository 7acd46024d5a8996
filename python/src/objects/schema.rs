//! `Schema` and `Field`, and the lookup of columns by name or index.

use arrow_schema::{DataType, FieldRef, SchemaRef};
use crossdock::Parts;
use crossdock_arrays::metadata::{Pair, field_pairs, pairs};
use crossdock_arrays::{export_field, export_schema, field_type_name};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::arrow::capsules::new_capsule;
use crate::objects::parts;
use crate::runtime::errors::OrRaise;
use crate::runtime::process::begin;

/// Names, types and metadata of a table's columns.
///
/// >>> table.schema
/// id: int64
/// name: string
/// score: double
/// >>> table.schema == session.scan(folder / "people.arrow").schema
/// True
#[pyclass(frozen, eq, module = "crossdock")]
#[derive(PartialEq, Eq)]
pub struct Schema(pub SchemaRef);

/// A column's name, type and metadata.
///
/// >>> table.schema["score"]
/// score: double
/// >>> session.from_arrow(pa.array([1, 2]), table.schema["score"]).to_pylist()
/// [1.0, 2.0]
#[pyclass(frozen, eq, module = "crossdock")]
#[derive(PartialEq, Eq)]
pub struct Field(pub FieldRef);

/// Returns the index of a column, by its name or its index, which may be negative.
///
/// # Errors
/// KeyError if no column or several columns have the name; IndexError if the index is out of range.
pub fn index_of(schema: &SchemaRef, key: &Bound<'_, PyAny>) -> PyResult<usize> {
    let fields = schema.fields();
    if let Ok(name) = key.cast::<PyString>() {
        let name = name.to_str()?;
        let mut indices = fields.iter().enumerate().filter(|(_, field)| field.name() == name).map(|(i, _)| i);
        return match (indices.next(), indices.next()) {
            (Some(i), None) => Ok(i),
            (Some(_), Some(_)) => {
                Err(PyKeyError::new_err(format!("several columns are named {name:?}: use an index")))
            }
            _ => {
                let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
                Err(PyKeyError::new_err(format!("no column is named {name:?}, the columns are {names:?}")))
            }
        };
    }
    let n = fields.len() as isize;
    let argument: isize = key.extract()?;
    let index = if argument < 0 { argument + n } else { argument };
    match usize::try_from(index) {
        Ok(i) if index < n => Ok(i),
        _ => Err(PyIndexError::new_err(format!("column index {argument} is out of range for {n} columns"))),
    }
}

/// Returns the indices of the dictionary-encoded columns.
pub fn dictionaries(schema: &SchemaRef) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    let encoded = fields.filter(|(_, field)| matches!(field.data_type(), DataType::Dictionary(..)));
    encoded.map(|(i, _)| i).collect()
}

#[pymethods]
impl Schema {
    /// Names of the columns.
    ///
    /// >>> table.schema.names
    /// ['id', 'name', 'score']
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// Metadata of the schema. Bytes that are not UTF-8 are decoded as by os.fsdecode. If a key is
    /// repeated, its first value is returned.
    ///
    /// >>> session.from_arrow(pa.table({"x": [1]}, metadata={"unit": "mm"})).schema.metadata
    /// {'unit': 'mm'}
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata_of(py, &pairs(self.0.metadata()))
    }

    fn __len__(&self) -> usize {
        self.0.fields().len()
    }

    /// The field with a name or an index.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Field> {
        let index = index_of(&self.0, key)?;
        self.0
            .fields()
            .get(index)
            .map(|field| Field(field.clone()))
            .ok_or_else(|| PyIndexError::new_err(index))
    }

    pub fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_capsule(py, export_schema(&self.0).or_raise()?)
    }

    /// Takes the schema apart: a header, and buffers with the buffer protocol, in host memory.
    /// `Session.from_parts` rebuilds it, also in another process. It has no buffers.
    ///
    /// >>> session.from_parts(*table.schema.to_parts()) == table.schema
    /// True
    fn to_parts<'py>(&self, py: Python<'py>) -> PyResult<parts::HeaderAndBuffers<'py>> {
        parts::to_python(py, Parts::of_schema(&self.0).or_raise()?)
    }

    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<parts::Reduced<'py>> {
        parts::reduce(py, protocol, Parts::of_schema(&self.0).or_raise()?)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    // A copy would be equal, because schemas are immutable.
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Returns a `pyarrow.Schema`.
    ///
    /// >>> table.schema.to_pyarrow().field("id")
    /// pyarrow.Field<id: int64>
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = begin(slf.py());
        slf.py().import("pyarrow")?.call_method1("schema", (slf,))
    }

    fn __repr__(&self) -> String {
        self.0.fields().iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// HTML for notebooks.
    fn _repr_html_(&self) -> String {
        crate::objects::show::schema_html(self.0.fields())
    }
}

#[pymethods]
impl Field {
    /// Name of the column.
    ///
    /// >>> table.schema[0].name
    /// 'id'
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Arrow type as text, as pyarrow prints it. An extension type is printed as its storage type;
    /// `metadata` contains its name.
    ///
    /// >>> table.schema["score"].type
    /// 'double'
    #[getter]
    fn r#type(&self) -> String {
        field_type_name(&self.0)
    }

    /// Whether values may be null.
    ///
    /// >>> table.schema["name"].nullable
    /// True
    #[getter]
    fn nullable(&self) -> bool {
        self.0.is_nullable()
    }

    /// Metadata of the field, decoded like Schema.metadata. It contains the name of an extension
    /// type.
    ///
    /// >>> table.schema["id"].metadata
    /// {}
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata_of(py, &field_pairs(self.0.data_type(), self.0.metadata()))
    }

    pub fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_capsule(py, export_field(&self.0).or_raise()?)
    }

    /// Takes the field apart: a header, and buffers with the buffer protocol, in host memory.
    /// `Session.from_parts` rebuilds it, also in another process. It has no buffers.
    ///
    /// >>> session.from_parts(*table.schema["id"].to_parts()) == table.schema["id"]
    /// True
    fn to_parts<'py>(&self, py: Python<'py>) -> PyResult<parts::HeaderAndBuffers<'py>> {
        parts::to_python(py, Parts::of_field(&self.0).or_raise()?)
    }

    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<parts::Reduced<'py>> {
        parts::reduce(py, protocol, Parts::of_field(&self.0).or_raise()?)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    // A copy would be equal, because fields are immutable.
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Returns a `pyarrow.Field`.
    ///
    /// >>> table.schema["id"].to_pyarrow()
    /// pyarrow.Field<id: int64>
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
    format!("{}: {}{null}", field.name(), field_type_name(field))
}

/// Converts metadata into a dict. Bytes that are not UTF-8 become lone surrogates, as by
/// `os.fsdecode`. If a key is repeated, its first value is kept.
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
