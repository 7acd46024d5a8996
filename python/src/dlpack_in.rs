//! Tables and columns from tensors.

use std::sync::Arc;

use arrow_schema::{DataType, Schema, SchemaRef};
use crossdock::{Reader, Table as HostTable};
use crossdock_arrays::{DeviceBatch, import_field};
use crossdock_plugin_api::{Capsule, Options, abi};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::capsules::take;
use crate::column::Column;
use crate::dlpack_in_place::{InPlace, plain};
use crate::dlpack_in_producer::{Asked, ask};
use crate::dlpack_tensor::Managed;
use crate::errors::{OrRaise, of_host, usage};
use crate::process::{begin, detach};
use crate::session::Shared;
use crate::table::Table;
use crate::warnings;
use crate::work::reading;

/// How tensors are to be read.
pub struct Wishes<'a, 'py> {
    /// What they are to become.
    pub schema: Option<&'a Bound<'py, PyAny>>,
    /// "bytes" or "bits".
    pub bools: Option<&'a str>,
    /// Tensors of booleans, each true where a row is null, in the shape of what is read.
    pub masks: Option<&'a Bound<'py, PyAny>>,
}

/// A column of one tensor, a table of a list or a dict of them.
pub fn from_dlpack<'py>(
    shared: Arc<Shared>,
    x: &Bound<'py, PyAny>,
    wishes: &Wishes<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let _call = begin(py);
    if wishes.schema.is_some() && wishes.bools.is_some() {
        return Err(usage(
            "bools: the schema says what booleans become (bool or arrow.bool8); leave out one of the two",
        ));
    }
    let bare = wishes.schema.is_none() && wishes.bools.is_none() && wishes.masks.is_none();
    let several =
        x.is_instance_of::<PyDict>() || x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
    if bare && !several {
        let asked = ask(py, &shared, x)?;
        let column = column_of(py, shared, asked)?;
        return Ok(Bound::new(py, column)?.into_any());
    }
    let schema = wishes.schema.map(schema_of).transpose()?;
    let (names, tensors) = given(x, schema.as_deref())?;
    let mut options = Options::new();
    if let Some(bools) = wishes.bools {
        options = options.with("bools", bools);
    }
    let masks = match wishes.masks {
        None => None,
        Some(masks) => {
            options = options.with("nulls", "mask");
            let (_, masks) = given(masks, schema.as_deref().or(named(&names).as_ref()))?;
            if masks.len() != tensors.len() {
                let (masks, tensors) = (masks.len(), tensors.len());
                return Err(usage(format!("masks: {masks} for {tensors} tensors, expected one each")));
            }
            Some(masks)
        }
    };
    let mut asked = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let what = names.as_ref().and_then(|names| names.get(i)).map(|name| format!("column '{name}'"));
        let what = what.unwrap_or_else(|| format!("tensor {i}"));
        let one = |object: &Bound<'_, PyAny>, what: &str| {
            let asked = ask(py, &shared, object).and_then(|asked| asked.in_order(py, &shared));
            asked.map_err(|error| if several { about(py, what, error) } else { error })
        };
        let mut column = vec![one(tensor, &what)?];
        if let Some(mask) = masks.as_ref().and_then(|masks| masks.get(i)) {
            column.push(one(mask, &format!("{what}'s mask"))?);
        }
        asked.push(column);
    }
    let table = reading(py, || read_columns(&shared, asked, schema.as_deref(), names.as_deref(), &options))?;
    let table = warnings::after(py, table)?;
    if several {
        return Ok(Bound::new(py, Table::new(table, shared))?.into_any());
    }
    Ok(Bound::new(py, Column::new(table, shared))?.into_any())
}

/// What somebody calls a schema: an object that exports one, or a field for a single column.
fn schema_of(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = object.call_method0("__arrow_c_schema__").map_err(|_| {
        PyTypeError::new_err("schema: expected a crossdock.Schema, or an object with __arrow_c_schema__")
    })?;
    let field = import_field(&take::<abi::ArrowSchema>(&capsule, "schema")?).or_raise()?;
    Ok(Arc::new(match field.data_type() {
        DataType::Struct(fields) => Schema::new_with_metadata(fields.clone(), field.metadata().clone()),
        _ => Schema::new(vec![field]),
    }))
}

fn named(names: &Option<Vec<String>>) -> Option<Schema> {
    let fields = names.as_ref()?.iter().map(|name| arrow_schema::Field::new(name, DataType::Null, true));
    Some(Schema::new(fields.collect::<Vec<_>>()))
}

type Given<'py> = (Option<Vec<String>>, Vec<Bound<'py, PyAny>>);

/// Names, where it is a dict, and what is under them: in the schema's order where there is one.
fn given<'py>(x: &Bound<'py, PyAny>, schema: Option<&Schema>) -> PyResult<Given<'py>> {
    if let Ok(dict) = x.cast::<PyDict>() {
        let mut names = Vec::with_capacity(dict.len());
        for key in dict.keys() {
            let key = key
                .cast::<PyString>()
                .map_err(|_| PyTypeError::new_err(format!("a column's name: expected a str, got {key}")))?;
            names.push(key.to_str()?.to_owned());
        }
        let Some(schema) = schema else { return Ok((Some(names), dict.values().iter().collect())) };
        let wanted: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(unknown) = names.iter().find(|name| !wanted.contains(name)) {
            return Err(PyKeyError::new_err(format!("{unknown:?} is not among the columns {wanted:?}")));
        }
        let value = |name: &String| {
            dict.get_item(name)?
                .ok_or_else(|| PyKeyError::new_err(format!("no tensor for the column {name:?}")))
        };
        let values = wanted.iter().map(value).collect::<PyResult<_>>()?;
        return Ok((Some(wanted), values));
    }
    if let Ok(list) = x.cast::<PyList>() {
        return Ok((None, list.iter().collect()));
    }
    if let Ok(tuple) = x.cast::<PyTuple>() {
        return Ok((None, tuple.iter().collect()));
    }
    Ok((None, vec![x.clone()]))
}

/// An error of one of several, with that one's name before its words. The exception stays the one that it is.
fn about(py: Python<'_>, what: &str, error: PyErr) -> PyErr {
    let value = error.value(py);
    let renamed = || -> PyResult<()> {
        let arguments = value.getattr("args")?.cast_into::<PyTuple>()?;
        match arguments.get_item(0).ok().and_then(|words| words.cast_into::<PyString>().ok()) {
            Some(words) if arguments.len() == 1 => value.setattr("args", (format!("{what}: {words}"),)),
            // Other errors make their words of several arguments, or of none.
            _ => value.call_method1("add_note", (what,)).map(drop),
        }
    };
    // What keeps its arguments to itself is raised as it is.
    let _ = renamed();
    error
}

/// The columns in one table. Tensors of several devices come one by one, as they would alone, and all to the session's.
fn read_columns(
    shared: &Shared,
    tensors: Vec<Vec<Managed>>,
    schema: Option<&Schema>,
    names: Option<&[String]>,
    options: &Options,
) -> PyResult<HostTable> {
    let place = |tensor: &Managed| tensor.tensor().map(|tensor| tensor.device);
    let mut places = tensors.iter().flatten().map(place);
    let first = places.next();
    if places.all(|place| Some(place) == first) {
        let capsules = tensors.into_iter().flatten().map(Managed::into_capsule).collect();
        // The option's names are separated by commas; the names themselves come afterwards.
        let listed = names
            .filter(|_| schema.is_none())
            .map(|names| names.iter().map(|name| name.replace(',', ";")).collect::<Vec<_>>().join(","));
        let options = listed.into_iter().fold(options.clone(), |options, names| options.with("names", names));
        return read(shared, capsules, schema, names, &options);
    }
    if let Some(schema) = schema.filter(|schema| schema.fields().len() != tensors.len()) {
        let (got, expected) = (tensors.len(), schema.fields().len());
        return Err(usage(format!(
            "{got} tensors of several devices, expected one for each of {expected} columns"
        )));
    }
    let own_fields = schema.map(Schema::fields);
    let (mut fields, mut columns, mut rows) = (Vec::new(), Vec::new(), None);
    for (i, column) in tensors.into_iter().enumerate() {
        let own = own_fields.and_then(|fields| fields.get(i)).cloned();
        let name = names.and_then(|names| names.get(i)).cloned();
        let name = name.or_else(|| own.as_ref().map(|field| field.name().clone()));
        let name = name.unwrap_or_else(|| format!("col_{i}"));
        let own = own.map(|field| Schema::new(vec![field]));
        let capsules = column.into_iter().map(Managed::into_capsule).collect();
        let table = read(shared, capsules, own.as_ref(), Some(std::slice::from_ref(&name)), options)
            .map_err(|error| Python::attach(|py| about(py, &format!("column '{name}'"), error)))?;
        let table = table.move_to(shared.session.device()).or_raise()?;
        let [batch] = table.batches() else {
            return Err(usage(format!("column '{name}': {} batches of one tensor", table.batches().len())));
        };
        let expected = *rows.get_or_insert(batch.len());
        if batch.len() != expected {
            let got = batch.len();
            return Err(usage(format!("column '{name}' is {got} rows long, expected {expected}")));
        }
        fields.extend(table.schema().fields().iter().cloned());
        columns.extend(batch.columns().iter().cloned());
    }
    let schema = Arc::new(schema.cloned().unwrap_or_else(|| Schema::new(fields)));
    let batch = DeviceBatch::try_new(schema.clone(), rows.unwrap_or(0), columns).or_raise()?;
    HostTable::from_batches(&shared.session, schema, vec![batch]).or_raise()
}

/// Without the interpreter's lock: elements may have to be gathered.
fn read(
    shared: &Shared,
    capsules: Vec<Capsule>,
    schema: Option<&Schema>,
    names: Option<&[String]>,
    options: &Options,
) -> PyResult<HostTable> {
    let (reader, mut batches) = read_all(shared, capsules, schema, options).map_err(failed(shared))?;
    let own = reader.schema().clone();
    let same = |names: &[String]| own.fields().iter().zip(names).all(|(field, name)| field.name() == name);
    let schema = match names {
        Some(names) if !same(names) => {
            let renamed = own.fields().iter().zip(names).map(|(f, name)| f.as_ref().clone().with_name(name));
            let schema = Schema::new_with_metadata(renamed.collect::<Vec<_>>(), own.metadata().clone());
            let schema = Arc::new(schema);
            let renamed = batches.into_iter().map(|batch| batch.with_schema(schema.clone()));
            batches = renamed.collect::<crossdock_plugin_api::Result<_>>().or_raise()?;
            schema
        }
        _ => own,
    };
    HostTable::from_batches(&shared.session, schema, batches).or_raise()
}

/// What the plugin says, as an exception.
fn failed(shared: &Shared) -> impl FnOnce(crossdock::Error) -> PyErr + '_ {
    |error| {
        shared.tensors.after(&error);
        of_host(error)
    }
}

fn read_all(
    shared: &Shared,
    capsules: Vec<Capsule>,
    schema: Option<&Schema>,
    options: &Options,
) -> crossdock::Result<(Reader, Vec<DeviceBatch>)> {
    let mut reader = shared.tensors.reading(&shared.session)?.read(capsules, schema, options)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next()? {
        batches.push(batch);
    }
    Ok((reader, batches))
}

/// A column of one tensor that nobody describes.
pub fn column_of(py: Python<'_>, shared: Arc<Shared>, asked: Asked) -> PyResult<Column> {
    let asked = match InPlace::of(&shared, asked)? {
        Ok(tensor) => return Ok(Column::of_tensor(tensor, shared)),
        Err(asked) => asked,
    };
    let dtype = asked.tensor.tensor().and_then(|tensor| plain(tensor, shared.session.device()));
    let capsules = vec![asked.in_order(py, &shared)?.into_capsule()];
    let table = warnings::after(py, detach(py, || read(&shared, capsules, None, None, &Options::new())))?;
    if let Some(plain) = dtype {
        shared.tensors.remember(plain.dtype, table.schema());
    }
    Ok(Column::new(table, shared))
}
