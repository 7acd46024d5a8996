//! Imports tensors as columns and tables.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use crossdock::{Reader, Table as HostTable};
use crossdock_arrays::{DeviceBatch, import_field};
use crossdock_plugin_api::{Capsule, Options, abi};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::arrow::capsules::take;
use crate::dlpack::import_in_place::{InPlace, plain};
use crate::dlpack::producer::{ImportedTensor, import_tensor};
use crate::dlpack::row_counter;
use crate::dlpack::tensor::Managed;
use crate::objects::column::Column;
use crate::objects::session::Shared;
use crate::objects::table::Table;
use crate::runtime::errors::{OrRaise, from_host, usage, with_context};
use crate::runtime::process::{begin, detach};
use crate::runtime::warnings;
use crate::runtime::work::reading;

/// The keyword arguments of `from_dlpack`.
pub struct ImportOptions<'a, 'py> {
    /// The requested schema.
    pub schema: Option<&'a Bound<'py, PyAny>>,
    /// "bytes" or "bits".
    pub bools: Option<&'a str>,
    /// Boolean tensors in the structure of the tensors to import. True marks a null row.
    pub masks: Option<&'a Bound<'py, PyAny>>,
    /// The number of rows, one integer on the session's device.
    pub num_rows: Option<&'a Bound<'py, PyAny>>,
}

/// Imports one tensor as a column, or a list or dict of tensors as a table.
pub fn from_dlpack<'py>(
    shared: Arc<Shared>,
    x: &Bound<'py, PyAny>,
    arguments: &ImportOptions<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let _call = begin(py);
    if arguments.schema.is_some() && arguments.bools.is_some() {
        return Err(usage(
            "bools: the schema determines the type of booleans (bool or arrow.bool8): pass either schema or bools",
        ));
    }
    let is_table =
        x.is_instance_of::<PyDict>() || x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
    if arguments.num_rows.is_some() && !is_table {
        return Err(usage("num_rows: expected a list or a dict of tensors, which become a table"));
    }
    let counter = arguments.num_rows.map(|object| row_counter::import(py, &shared, object)).transpose()?;
    let no_arguments = arguments.schema.is_none() && arguments.bools.is_none() && arguments.masks.is_none();
    if no_arguments && !is_table {
        let imported = import_tensor(py, &shared, x)?;
        let column = column_of(py, shared, imported)?;
        return Ok(Bound::new(py, column)?.into_any());
    }
    let schema = arguments.schema.map(schema_of).transpose()?;
    let (names, tensors) = collect_columns(x, schema.as_deref())?;
    let mut options = Options::new();
    if let Some(bools) = arguments.bools {
        options = options.with("bools", bools);
    }
    let masks = arguments.masks.map(|masks| collect_masks(masks, schema.as_deref(), &names, tensors.len()));
    let masks = masks.transpose()?;
    if masks.is_some() {
        options = options.with("nulls", "mask");
    }
    let mut imported = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let what = names.as_ref().and_then(|names| names.get(i)).map(|name| format!("column '{name}'"));
        let what = what.unwrap_or_else(|| format!("tensor {i}"));
        let import = |object: &Bound<'_, PyAny>, what: &str| {
            let tensor = import_tensor(py, &shared, object);
            let tensor = tensor.and_then(|tensor| tensor.into_ordered(py, &shared));
            tensor.map_err(|error| if is_table { with_context(py, what, error) } else { error })
        };
        let mut column = vec![import(tensor, &what)?];
        if let Some(mask) = masks.as_ref().and_then(|masks| masks.get(i)) {
            column.push(import(mask, &format!("{what}'s mask"))?);
        }
        imported.push(column);
    }
    let table =
        reading(py, || read_columns(&shared, imported, schema.as_deref(), names.as_deref(), &options))?;
    let table = warnings::after(py, table)?;
    if let Some(counter) = counter {
        let pending = counter.add_to(py, &shared, &table)?;
        return Ok(Bound::new(py, Table::pending(pending, shared))?.into_any());
    }
    if is_table {
        return Ok(Bound::new(py, Table::new(table, shared))?.into_any());
    }
    Ok(Bound::new(py, Column::new(table, shared))?.into_any())
}

/// Imports a schema, or a field as a schema of one column.
pub fn schema_of(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = object.call_method0("__arrow_c_schema__").map_err(|_| {
        PyTypeError::new_err("schema: expected a crossdock.Schema, or an object with __arrow_c_schema__")
    })?;
    let field = import_field(&take::<abi::ArrowSchema>(&capsule, "schema")?).or_raise()?;
    Ok(Arc::new(match field.data_type() {
        DataType::Struct(fields) => Schema::new_with_metadata(fields.clone(), field.metadata().clone()),
        _ => Schema::new(vec![field]),
    }))
}

/// Returns a schema that has the names and no types.
fn schema_of_names(names: &Option<Vec<String>>) -> Option<Schema> {
    let fields = names.as_ref()?.iter().map(|name| arrow_schema::Field::new(name, DataType::Null, true));
    Some(Schema::new(fields.collect::<Vec<_>>()))
}

type Columns<'py> = (Option<Vec<String>>, Vec<Bound<'py, PyAny>>);

/// Returns the tensors of `x`, and their names if `x` is a dict. If there is a schema, the tensors
/// of a dict are returned in the order of the schema.
fn collect_columns<'py>(x: &Bound<'py, PyAny>, schema: Option<&Schema>) -> PyResult<Columns<'py>> {
    if let Ok(dict) = x.cast::<PyDict>() {
        let mut names = Vec::with_capacity(dict.len());
        for key in dict.keys() {
            let key = key
                .cast::<PyString>()
                .map_err(|_| PyTypeError::new_err(format!("column name: expected str, got {key}")))?;
            names.push(key.to_str()?.to_owned());
        }
        let Some(schema) = schema else { return Ok((Some(names), dict.values().iter().collect())) };
        let expected: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(unknown) = names.iter().find(|name| !expected.contains(name)) {
            return Err(PyKeyError::new_err(format!(
                "column {unknown:?} is not in the schema, which has {expected:?}"
            )));
        }
        let value = |name: &String| {
            dict.get_item(name)?.ok_or_else(|| {
                PyKeyError::new_err(format!("no tensor for the column {name:?} of the schema"))
            })
        };
        let values = expected.iter().map(value).collect::<PyResult<_>>()?;
        return Ok((Some(expected), values));
    }
    if let Ok(list) = x.cast::<PyList>() {
        return Ok((None, list.iter().collect()));
    }
    if let Ok(tuple) = x.cast::<PyTuple>() {
        return Ok((None, tuple.iter().collect()));
    }
    Ok((None, vec![x.clone()]))
}

/// Returns the masks of `tensors` tensors, in the same order.
fn collect_masks<'py>(
    masks: &Bound<'py, PyAny>,
    schema: Option<&Schema>,
    names: &Option<Vec<String>>,
    tensors: usize,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (_, masks) = collect_columns(masks, schema.or(schema_of_names(names).as_ref()))?;
    if masks.len() != tensors {
        let masks = masks.len();
        return Err(usage(format!("masks: expected one mask for each of {tensors} tensors, got {masks}")));
    }
    Ok(masks)
}

/// Reads tensors as one table. Tensors on different devices are read one by one and moved to the
/// session's device.
fn read_columns(
    shared: &Shared,
    tensors: Vec<Vec<Managed>>,
    schema: Option<&Schema>,
    names: Option<&[String]>,
    options: &Options,
) -> PyResult<HostTable> {
    let device = |tensor: &Managed| tensor.tensor().map(|tensor| tensor.device);
    let mut devices = tensors.iter().flatten().map(device);
    let first = devices.next();
    if devices.all(|device| Some(device) == first) {
        let capsules = tensors.into_iter().flatten().map(Managed::into_capsule).collect();
        // Commas separate the names in the option, so commas within names are replaced. `read` sets
        // the original names afterwards.
        let list = names
            .filter(|_| schema.is_none())
            .map(|names| names.iter().map(|name| name.replace(',', ";")).collect::<Vec<_>>().join(","));
        let options = list.into_iter().fold(options.clone(), |options, names| options.with("names", names));
        return read(shared, capsules, schema, names, &options);
    }
    if let Some(schema) = schema.filter(|schema| schema.fields().len() != tensors.len()) {
        let (got, expected) = (tensors.len(), schema.fields().len());
        return Err(usage(format!(
            "expected one tensor for each of {expected} columns, got {got} tensors on different devices"
        )));
    }
    let schema_fields = schema.map(Schema::fields);
    let (mut fields, mut columns, mut rows) = (Vec::new(), Vec::new(), None);
    for (i, column) in tensors.into_iter().enumerate() {
        let field = schema_fields.and_then(|fields| fields.get(i)).cloned();
        let name = names.and_then(|names| names.get(i)).cloned();
        let name = name.or_else(|| field.as_ref().map(|field| field.name().clone()));
        let name = name.unwrap_or_else(|| format!("col_{i}"));
        let column_schema = field.map(|field| Schema::new(vec![field]));
        let capsules = column.into_iter().map(Managed::into_capsule).collect();
        let names = Some(std::slice::from_ref(&name));
        let table = read(shared, capsules, column_schema.as_ref(), names, options)
            .map_err(|error| Python::attach(|py| with_context(py, &format!("column '{name}'"), error)))?;
        let table = table.move_to(shared.session.device()).or_raise()?;
        let [batch] = table.batches() else {
            let n = table.batches().len();
            return Err(usage(format!("column '{name}': expected one batch, got {n}")));
        };
        let expected = *rows.get_or_insert(batch.len());
        if batch.len() != expected {
            let got = batch.len();
            return Err(usage(format!("column '{name}': expected {expected} rows, got {got}")));
        }
        fields.extend(table.schema().fields().iter().cloned());
        columns.extend(batch.columns().iter().cloned());
    }
    let schema = Arc::new(schema.cloned().unwrap_or_else(|| Schema::new(fields)));
    let batch = DeviceBatch::try_new(schema.clone(), rows.unwrap_or(0), columns).or_raise()?;
    HostTable::from_batches(&shared.session, schema, vec![batch]).or_raise()
}

/// Reads tensors of one device as a table. Runs without the interpreter's lock, because gathering
/// elements can take long.
fn read(
    shared: &Shared,
    capsules: Vec<Capsule>,
    schema: Option<&Schema>,
    names: Option<&[String]>,
    options: &Options,
) -> PyResult<HostTable> {
    let (reader, mut batches) = read_all(shared, capsules, schema, options).map_err(to_exception(shared))?;
    let read = reader.schema().clone();
    let has_names =
        |names: &[String]| read.fields().iter().zip(names).all(|(field, name)| field.name() == name);
    let schema = match names {
        Some(names) if !has_names(names) => {
            let fields = read.fields().iter().zip(names).map(|(f, name)| f.as_ref().clone().with_name(name));
            let schema = Schema::new_with_metadata(fields.collect::<Vec<_>>(), read.metadata().clone());
            let schema = Arc::new(schema);
            let renamed = batches.into_iter().map(|batch| batch.with_schema(schema.clone()));
            batches = renamed.collect::<crossdock_plugin_api::Result<_>>().or_raise()?;
            schema
        }
        _ => read,
    };
    HostTable::from_batches(&shared.session, schema, batches).or_raise()
}

/// Converts an error of the plugin into an exception.
fn to_exception(shared: &Shared) -> impl FnOnce(crossdock::Error) -> PyErr + '_ {
    |error| {
        shared.tensors.note_error(&error);
        from_host(error)
    }
}

fn read_all(
    shared: &Shared,
    capsules: Vec<Capsule>,
    schema: Option<&Schema>,
    options: &Options,
) -> crossdock::Result<(Reader, Vec<DeviceBatch>)> {
    let mut reader = shared.tensors.import_format(&shared.session)?.read(capsules, schema, options)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next()? {
        batches.push(batch);
    }
    Ok((reader, batches))
}

/// Imports one tensor as a column, without a schema.
pub fn column_of(py: Python<'_>, shared: Arc<Shared>, imported: ImportedTensor) -> PyResult<Column> {
    let imported = match InPlace::try_new(&shared, imported)? {
        Ok(tensor) => return Ok(Column::from_tensor(tensor, shared)),
        Err(imported) => imported,
    };
    let dtype = imported.tensor.tensor().and_then(|tensor| plain(tensor, shared.session.device()));
    let capsules = vec![imported.into_ordered(py, &shared)?.into_capsule()];
    let table = warnings::after(py, detach(py, || read(&shared, capsules, None, None, &Options::new())))?;
    if let Some(plain) = dtype {
        shared.tensors.set_schema(plain.dtype, table.schema());
    }
    Ok(Column::new(table, shared))
}
