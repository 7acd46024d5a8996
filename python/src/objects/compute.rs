//! Arguments and results of the operations on rows and columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema};
use crossdock::{CastMode, ColumnSlice, Literal, Table as HostTable, TensorNulls};
use crossdock_arrays::{import_field, parse_type};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString, PyTuple};

use crate::arrow::capsules::take;
use crate::arrow::import::{Names, from_arrow};
use crate::dlpack::import::{ImportOptions, from_dlpack};
use crate::objects::column::Column;
use crate::objects::request;
use crate::objects::session::Shared;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::work::detached;

/// Converts a type: its name, an object with `__arrow_c_schema__`, or a dtype of NumPy.
pub fn data_type(obj: &Bound<'_, PyAny>) -> PyResult<DataType> {
    if let Ok(name) = obj.cast::<PyString>() {
        return parse_type(name.to_str()?).or_raise();
    }
    if let Some(export) = obj.getattr_opt("__arrow_c_schema__")? {
        let field = import_field(&take(&export.call0()?, "__arrow_c_schema__")?).or_raise()?;
        return Ok(field.data_type().clone());
    }
    // A class such as numpy.float32 is a dtype too.
    let dtype = obj.py().import("numpy").and_then(|numpy| numpy.call_method1("dtype", (obj,)));
    let name = dtype.and_then(|dtype| dtype.getattr("name")?.extract::<String>());
    match name.ok().as_deref().map(parse_type) {
        Some(Ok(data_type)) => Ok(data_type),
        _ => Err(PyTypeError::new_err(format!(
            "type: expected the name of a type such as \"int32\", an Arrow type or a dtype of NumPy, got {}",
            obj.repr()?
        ))),
    }
}

/// The mode of a cast.
pub fn mode(safe: bool) -> CastMode {
    if safe { CastMode::Safe } else { CastMode::Unsafe }
}

/// Converts a value for `fill_null`.
pub fn literal(value: &Bound<'_, PyAny>) -> PyResult<Literal> {
    let convert = value.py().import("crossdock._filter")?.getattr("literal")?;
    crate::objects::request::literal(&convert.call1((value, "fill_null"))?)
}

/// The values of an argument that selects rows.
#[derive(Clone, Copy, PartialEq)]
pub enum Rows {
    Indices,
    Mask,
}

/// Converts indices or a mask to a table of one column: a column, an Arrow array, a tensor, or a
/// sequence of Python's integers or booleans.
pub fn rows_argument(shared: &Arc<Shared>, obj: &Bound<'_, PyAny>, kind: Rows) -> PyResult<HostTable> {
    if let Ok(column) = obj.cast::<Column>() {
        return with_booleans(obj.py(), column.get().table()?.clone(), kind);
    }
    let imported = if obj.hasattr("__arrow_c_array__")? || obj.hasattr("__arrow_c_stream__")? {
        from_arrow(shared, obj, None, Some(true), Names::Strict)?
    } else if obj.hasattr("__dlpack__")? {
        let bools = (kind == Rows::Mask).then_some("bits");
        let options = ImportOptions { schema: None, bools, masks: None, num_rows: None };
        from_dlpack(shared.clone(), obj, &options)?
    } else {
        return rows_from_sequence(shared, obj, kind);
    };
    let table = imported.cast::<Column>()?.get().table()?.clone();
    with_booleans(obj.py(), table, kind)
}

/// Booleans that are stored as bytes become bits.
fn with_booleans(py: Python<'_>, table: HostTable, kind: Rows) -> PyResult<HostTable> {
    let is_bool8 = table.schema().fields().first().is_some_and(|field| {
        *field.data_type() == DataType::Int8 && field.extension_type_name() == Some("arrow.bool8")
    });
    if kind != Rows::Mask || !is_bool8 {
        return Ok(table);
    }
    detached(py, || table.cast(0, &DataType::Boolean, CastMode::Safe))
}

fn rows_from_sequence(shared: &Arc<Shared>, obj: &Bound<'_, PyAny>, kind: Rows) -> PyResult<HostTable> {
    let (expected, of) = match kind {
        Rows::Indices => ("integers", DataType::Int64),
        Rows::Mask => ("booleans", DataType::Boolean),
    };
    let wrong =
        || PyTypeError::new_err(format!("expected a column, an array, a tensor or a sequence of {expected}"));
    let schema = Arc::new(Schema::new(vec![ArrowField::new("rows", of, true)]));
    let session = &shared.session;
    match kind {
        Rows::Indices => {
            let values: Vec<Option<i64>> = obj.extract().map_err(|_| wrong())?;
            let valid: Vec<bool> = values.iter().map(Option::is_some).collect();
            let values: Vec<i64> = values.into_iter().map(Option::unwrap_or_default).collect();
            let column = ColumnSlice::new(values.as_slice()).with_validity(&valid);
            HostTable::from_columns(session, schema, &[column]).or_raise()
        }
        Rows::Mask => {
            let values: Vec<Option<bool>> = obj.extract().map_err(|_| wrong())?;
            let valid: Vec<bool> = values.iter().map(Option::is_some).collect();
            let values: Vec<bool> = values.into_iter().map(Option::unwrap_or_default).collect();
            let column = ColumnSlice::new(values.as_slice()).with_validity(&valid);
            HostTable::from_columns(session, schema, &[column]).or_raise()
        }
    }
}

/// Returns the rows of a slice such as `t[10:20]`. With a step other than 1, the rows are copied.
pub fn sliced(
    py: Python<'_>,
    shared: &Arc<Shared>,
    table: &HostTable,
    slice: &Bound<'_, PySlice>,
) -> PyResult<HostTable> {
    let indices = slice.indices(table.rows() as isize)?;
    let (start, len) = (indices.start as i64, indices.slicelength as i64);
    if indices.step == 1 {
        return table.slice(start as u64, len as u64).or_raise();
    }
    let rows: Vec<i64> = (0..len).map(|i| start + i * indices.step as i64).collect();
    let schema = Arc::new(Schema::new(vec![ArrowField::new("rows", DataType::Int64, false)]));
    let rows = HostTable::from_columns(&shared.session, schema, &[ColumnSlice::new(rows.as_slice())]);
    let rows = rows.or_raise()?;
    detached(py, || table.take(&rows))
}

/// Converts an index of a row, which may be negative.
///
/// # Errors
/// IndexError if there is no such row.
pub fn row_index(index: isize, rows: u64) -> PyResult<u64> {
    let at = if index < 0 { index as i128 + i128::from(rows) } else { index as i128 };
    match u64::try_from(at) {
        Ok(at) if at < rows => Ok(at),
        _ => Err(PyIndexError::new_err(format!("row {index} is out of range for {rows} rows"))),
    }
}

/// Converts the argument `nulls` of `to_tensor`.
pub fn tensor_nulls(nulls: Option<&Bound<'_, PyAny>>) -> PyResult<TensorNulls> {
    let Some(nulls) = nulls else { return Ok(TensorNulls::Error) };
    match nulls.extract::<&str>().ok() {
        Some("error") => Ok(TensorNulls::Error),
        Some("mask") => Ok(TensorNulls::Mask),
        Some(other) => Err(usage(format!("nulls={other:?}: expected \"error\", \"mask\" or a value"))),
        None => Ok(TensorNulls::Value(literal(nulls)?)),
    }
}

/// Implements `Table.filter`.
pub fn filtered(
    py: Python<'_>,
    shared: &Arc<Shared>,
    table: &HostTable,
    condition: &Bound<'_, PyAny>,
) -> PyResult<HostTable> {
    let comparisons = condition.cast::<PyList>().ok();
    let is_mask = comparisons.is_none_or(|list| list.iter().any(|item| !item.is_instance_of::<PyTuple>()));
    if is_mask {
        let mask = rows_argument(shared, condition, Rows::Mask)?;
        return detached(py, || table.filter(&mask));
    }
    let predicates = request::filter(condition)?;
    detached(py, || table.filter_by(&predicates))
}
