//! Imports objects that implement Arrow's PyCapsule protocols, as tables and columns.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use crossdock::{Error, Result, Session, Table as HostTable};
use crossdock_arrays::{Arrays, DataStream, DeviceStream, import_field, import_field_replacing, on_cpu};
use crossdock_plugin_api::{Owned, abi};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{ffi, intern};

use crate::arrow::capsules::{name_of, take};
use crate::objects::column::Column;
use crate::objects::schema::{Field, Schema};
use crate::objects::session::Shared;
use crate::objects::table::Table;
use crate::runtime::errors::{OrRaise, is_usage, usage};
use crate::runtime::process::{begin, detach};
use crate::runtime::work::detached;

/// The protocols in order of preference: device before host, stream before array.
const PROTOCOLS: [&str; 4] =
    ["__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"];

/// Attributes that classes of tables have and classes of arrays do not have.
const TABLE_ATTRIBUTES: [&str; 3] = ["columns", "column_names", "num_columns"];

/// Attributes that classes of arrays have and classes of tables do not have.
const ARRAY_ATTRIBUTES: [&str; 2] = ["type", "dtype"];

/// Metadata key of an extension type's name.
const EXTENSION_NAME: &str = "ARROW:extension:name";

/// The result of importing struct arrays.
#[derive(Clone, Copy, PartialEq)]
enum Structs {
    /// A table. A null struct is an error.
    Table,
    /// A column.
    Column,
    /// A column if a struct is null, else a table.
    ByNulls,
}

/// The arguments of an import, and the result that follows from the producer's class.
struct Request {
    /// Whether the caller requires a column or a table.
    as_column: Option<bool>,
    /// The result of importing struct arrays, as determined by the producer's class.
    structs: Option<Structs>,
    /// The requested schema of a table, or a schema whose only field is the requested field of a
    /// column.
    schema: Option<SchemaRef>,
    names: Names,
    /// The name of the Python function in errors.
    function: &'static str,
}

/// How to treat names of columns and fields that are not UTF-8.
#[derive(Clone, Copy, PartialEq)]
pub enum Names {
    /// Raise an error.
    Strict,
    /// Replace invalid bytes by U+FFFD, with a warning.
    Replace,
}

impl Names {
    pub fn parse(names: &str) -> PyResult<Self> {
        match names {
            "strict" => Ok(Self::Strict),
            "replace" => Ok(Self::Replace),
            other => Err(usage(format!("names={other:?}: expected \"strict\" or \"replace\""))),
        }
    }

    fn field(self, schema: &Owned<abi::ArrowSchema>) -> PyResult<ArrowField> {
        if self == Self::Strict {
            return import_field(schema).or_raise();
        }
        let (field, replaced) = import_field_replacing(schema).or_raise()?;
        for path in replaced.iter().map(|path| crossdock::printable(path)) {
            tracing::warn!(
                "column '{path}': the name is not UTF-8; its invalid bytes were replaced by U+FFFD"
            );
        }
        Ok(field)
    }
}

/// Imports `obj` with the first of [`PROTOCOLS`] that it implements.
pub fn from_arrow<'py>(
    shared: &Arc<Shared>,
    obj: &Bound<'py, PyAny>,
    schema: Option<&Bound<'py, PyAny>>,
    as_column: Option<bool>,
    names: Names,
) -> PyResult<Bound<'py, PyAny>> {
    let _call = begin(obj.py());
    let requested = schema.map(RequestedSchema::new).transpose()?;
    let as_column = match (&requested, as_column) {
        (Some(requested), Some(as_column)) if requested.is_field != as_column => {
            let (value, problem) = if as_column {
                ("True", "a Schema, expected a Field")
            } else {
                ("False", "a Field, expected a Schema")
            };
            return Err(usage(format!("from_arrow: as_column={value}, but schema is {problem}")));
        }
        (Some(requested), _) => Some(requested.is_field),
        (None, as_column) => as_column,
    };
    let request = Request {
        as_column,
        structs: structs_of(obj)?,
        schema: requested.as_ref().map(|requested| requested.schema.clone()),
        names,
        function: "from_arrow",
    };
    if let Some((method, protocol)) = protocol_of(obj)? {
        let Some(requested) = &requested else {
            return import_result(shared, &method.call0()?, protocol, &request);
        };
        let py = obj.py();
        let exported = method.call1((&requested.capsule,));
        // Tables and arrays can be exported repeatedly. Other objects, such as readers, may support
        // only one export.
        let can_retry = exported.is_err() || request.structs.is_some();
        return match exported.and_then(|exported| import_result(shared, &exported, protocol, &request)) {
            Err(error) if can_retry && error.is_instance_of::<PyException>(py) && !is_usage(py, &error) => {
                // The producer may be unable to cast. Then this module casts, or returns an error
                // that names the column.
                let result =
                    method.call0().and_then(|exported| import_result(shared, &exported, protocol, &request));
                result.inspect_err(|other| other.set_cause(py, Some(error)))
            }
            result => result,
        };
    }
    Err(PyTypeError::new_err(format!(
        "from_arrow: {} has none of {}; use from_dlpack for tensors",
        obj.get_type().name()?,
        PROTOCOLS.join(", ")
    )))
}

/// Returns the method of the first of [`PROTOCOLS`] that `obj` implements, and its name.
fn protocol_of<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, &'static str)>> {
    let py = obj.py();
    let names = [
        intern!(py, PROTOCOLS[0]),
        intern!(py, PROTOCOLS[1]),
        intern!(py, PROTOCOLS[2]),
        intern!(py, PROTOCOLS[3]),
    ];
    for (name, protocol) in names.into_iter().zip(PROTOCOLS) {
        // SAFETY: the function accepts any two objects. It creates no exception if the attribute is
        // missing, which takes longer than the other lookups of the import.
        if unsafe { ffi::PyObject_HasAttr(obj.as_ptr(), name.as_ptr()) } == 1 {
            return Ok(Some((obj.getattr(name)?, protocol)));
        }
    }
    // `PyObject_HasAttr` ignores errors.
    for (name, protocol) in names.into_iter().zip(PROTOCOLS) {
        if let Some(method) = obj.getattr_opt(name)? {
            return Ok(Some((method, protocol)));
        }
    }
    Ok(None)
}

/// Imports a schema's capsule and the capsule of an array or a device array.
pub fn from_capsules<'py>(
    shared: &Arc<Shared>,
    schema: &Bound<'py, PyAny>,
    array: &Bound<'py, PyAny>,
    as_column: Option<bool>,
    names: Names,
) -> PyResult<Bound<'py, PyAny>> {
    let _call = begin(schema.py());
    let request = Request { as_column, structs: None, schema: None, names, function: "from_capsules" };
    import_pair(shared, schema, array, "from_capsules", &request)
}

/// The argument `schema` of `from_arrow`.
struct RequestedSchema<'py> {
    /// The capsule that is passed to the producer.
    capsule: Bound<'py, PyAny>,
    schema: SchemaRef,
    is_field: bool,
}

impl<'py> RequestedSchema<'py> {
    fn new(schema: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = schema.py();
        if let Ok(schema) = schema.cast::<Schema>() {
            let schema = schema.get();
            return Ok(Self {
                capsule: schema.__arrow_c_schema__(py)?,
                schema: schema.0.clone(),
                is_field: false,
            });
        }
        if let Ok(field) = schema.cast::<Field>() {
            let field = field.get();
            let schema = Arc::new(ArrowSchema::new(vec![field.0.clone()]));
            return Ok(Self { capsule: field.__arrow_c_schema__(py)?, schema, is_field: true });
        }
        let kind = schema.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "from_arrow: schema: expected a crossdock.Schema or crossdock.Field, got {kind}"
        )))
    }
}

/// Imports the result of a protocol's method.
fn import_result<'py>(
    shared: &Arc<Shared>,
    exported: &Bound<'py, PyAny>,
    protocol: &str,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    if protocol.ends_with("_stream__") {
        return import_stream(shared, exported, protocol, request);
    }
    let pair = exported.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(|| {
        PyTypeError::new_err(format!("{protocol}: expected a pair of capsules, got {exported}"))
    })?;
    import_pair(shared, &pair.get_item(0)?, &pair.get_item(1)?, protocol, request)
}

/// Returns whether struct arrays of this class become a table or a column, or `None` if the class
/// does not determine the result.
fn structs_of(obj: &Bound<'_, PyAny>) -> PyResult<Option<Structs>> {
    let class = obj.get_type();
    let has_any = |names: &[&str]| -> PyResult<bool> {
        for name in names {
            if class.hasattr(*name)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if has_any(&TABLE_ATTRIBUTES)? {
        return Ok(Some(Structs::Table));
    }
    Ok(has_any(&ARRAY_ATTRIBUTES)?.then_some(Structs::Column))
}

fn import_pair<'py>(
    shared: &Arc<Shared>,
    schema: &Bound<'py, PyAny>,
    array: &Bound<'py, PyAny>,
    who: &str,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    let py = schema.py();
    let schema = take::<abi::ArrowSchema>(schema, who)?;
    let array = if name_of(array).as_deref() == Some("arrow_array") {
        on_cpu(take(array, who)?)
    } else {
        take::<abi::ArrowDeviceArray>(array, who)?
    };
    let mut arrays = VecDeque::from([array]);
    import_arrays(py, shared, &schema, &mut arrays, request)
}

fn import_stream<'py>(
    shared: &Arc<Shared>,
    stream: &Bound<'py, PyAny>,
    who: &str,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    // The producer may compute or read files in these calls, so the interpreter's lock is released.
    if name_of(stream).as_deref() == Some("arrow_array_stream") {
        let mut stream = DataStream::new(take(stream, who)?);
        let schema = detach(py, || stream.schema()).or_raise()?;
        return import_arrays(py, shared, &schema, &mut stream, request);
    }
    let mut stream = DeviceStream::new(take(stream, who)?);
    let schema = detach(py, || stream.schema()).or_raise()?;
    import_arrays(py, shared, &schema, &mut stream, request)
}

/// Imports arrays as a table or a column on the session's device.
fn import_arrays<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    schema: &Owned<abi::ArrowSchema>,
    arrays: &mut dyn Arrays,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    let field = request.names.field(schema)?;
    let structs = request.structs(&field)?;
    let session = &shared.session;
    let (table, is_column) = detached(py, || {
        let (table, is_column) = import_as(session, field, arrays, structs)?;
        let table = match &request.schema {
            Some(requested) => conform(&table, requested)?,
            None => table,
        };
        Ok((table.move_to(session.device())?, is_column))
    })?;
    if is_column {
        Ok(Bound::new(py, Column::new(table, shared.clone()))?.into_any())
    } else {
        Ok(Bound::new(py, Table::new(table, shared.clone()))?.into_any())
    }
}

impl Request {
    /// Returns whether arrays of the type of `field` become a table or a column.
    fn structs(&self, field: &ArrowField) -> PyResult<Structs> {
        let is_struct = matches!(field.data_type(), DataType::Struct(_));
        match self.as_column {
            Some(true) => return Ok(Structs::Column),
            Some(false) if is_struct => return Ok(Structs::Table),
            Some(false) => {
                return Err(usage(format!(
                    "{}: expected structs for a table, got {}: pass as_column=True",
                    self.function,
                    crossdock_arrays::field_type_name(field)
                )));
            }
            None => {}
        }
        // Some producers give the schema of a table a name, and others make it nullable. No known
        // producer does both.
        Ok(match self.structs {
            _ if !is_struct || field.metadata().contains_key(EXTENSION_NAME) => Structs::Column,
            Some(structs) => structs,
            None if field.is_nullable() && !field.name().is_empty() => Structs::Column,
            None => Structs::ByNulls,
        })
    }
}

fn import_as(
    session: &Session,
    field: ArrowField,
    arrays: &mut dyn Arrays,
    structs: Structs,
) -> Result<(HostTable, bool)> {
    match structs {
        Structs::Table => Ok((HostTable::from_device_arrays(session, field, arrays)?, false)),
        Structs::Column => Ok((HostTable::column_from_device_arrays(session, field, arrays)?, true)),
        Structs::ByNulls => HostTable::from_device_arrays_with_nulls(session, field, arrays),
    }
}

/// Converts the table to the requested schema. A single column without a name gets the requested
/// name.
fn conform(table: &HostTable, requested: &SchemaRef) -> Result<HostTable> {
    let named = match (&table.schema().fields()[..], &requested.fields()[..]) {
        ([column], [field]) if column.name().is_empty() => {
            let column = column.as_ref().clone().with_name(field.name());
            let schema = ArrowSchema::new_with_metadata(vec![column], table.schema().metadata().clone());
            Some(table.with_schema(&Arc::new(schema))?)
        }
        _ => None,
    };
    named.as_ref().unwrap_or(table).conform(requested).map_err(|error| match error {
        Error::Usage(what) => Error::Usage(format!("from_arrow: {what}")),
        other => other,
    })
}
