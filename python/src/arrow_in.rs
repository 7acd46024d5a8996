//! Tables and columns from objects that speak Arrow's PyCapsule protocols.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use crossdock::{Error, Result, Session, Table as HostTable};
use crossdock_arrays::{Arrays, DataStream, DeviceStream, import_field, import_field_replacing, on_cpu};
use crossdock_plugin_api::{Owned, abi};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::capsules::{name_of, take};
use crate::column::Column;
use crate::errors::{OrRaise, is_usage, usage};
use crate::process::{begin, detach};
use crate::schema::{Field, Schema};
use crate::session::Shared;
use crate::table::Table;
use crate::work::detached;

/// What an object may speak, the best first: of a device before of the host, of all batches before of one.
const PROTOCOLS: [&str; 4] =
    ["__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"];

/// What classes of tables have in Python, and those of arrays have not.
const OF_TABLES: [&str; 3] = ["columns", "column_names", "num_columns"];

/// What classes of arrays have, and those of tables have not.
const OF_ARRAYS: [&str; 2] = ["type", "dtype"];

/// The extension type's name in a field's metadata.
const EXTENSION_NAME: &str = "ARROW:extension:name";

/// What arrays of structs become.
#[derive(Clone, Copy, PartialEq)]
enum Structs {
    /// A table: none of them is null.
    Table,
    /// A column.
    Column,
    /// A table, unless one of them is null.
    ByNulls,
}

/// What is known of arrays besides themselves.
struct Expected {
    /// A column, or a table, whatever it is.
    as_column: Option<bool>,
    /// What the producer's class says.
    structs: Option<Structs>,
    /// The schema of the table, or of a column's field alone, that it has to be.
    schema: Option<SchemaRef>,
    names: Names,
    who: &'static str,
}

/// What becomes of names of columns and fields that are not UTF-8.
#[derive(Clone, Copy, PartialEq)]
pub enum Names {
    /// They are an error.
    Strict,
    /// They get U+FFFD for what is not UTF-8, with a warning.
    Replace,
}

impl Names {
    pub fn of(names: &str) -> PyResult<Self> {
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
                "column '{path}': its name is not UTF-8, and U+FFFD stands for each part that is not"
            );
        }
        Ok(field)
    }
}

/// Asks `obj` for the best that it speaks.
pub fn from_arrow<'py>(
    shared: &Arc<Shared>,
    obj: &Bound<'py, PyAny>,
    schema: Option<&Bound<'py, PyAny>>,
    as_column: Option<bool>,
    names: Names,
) -> PyResult<Bound<'py, PyAny>> {
    let _call = begin(obj.py());
    let wanted = schema.map(Wanted::of).transpose()?;
    let as_column = match (&wanted, as_column) {
        (Some(wanted), Some(asked)) if wanted.is_field != asked => {
            let (what, given) = if asked {
                ("True", "a schema, expected a field")
            } else {
                ("False", "a field, expected a schema")
            };
            return Err(usage(format!("from_arrow: as_column={what}, and schema is {given}")));
        }
        (Some(wanted), _) => Some(wanted.is_field),
        (None, asked) => asked,
    };
    let expected = Expected {
        as_column,
        structs: structs_of(obj)?,
        schema: wanted.as_ref().map(|wanted| wanted.schema.clone()),
        names,
        who: "from_arrow",
    };
    for protocol in PROTOCOLS {
        let Some(method) = obj.getattr_opt(protocol)? else { continue };
        let Some(wanted) = &wanted else {
            return answered(shared, &method.call0()?, protocol, &expected);
        };
        let py = obj.py();
        let answer = method.call1((&wanted.capsule,));
        // A container gives its arrays again; what is no table and no array may be read once.
        let again = answer.is_err() || expected.structs.is_some();
        return match answer.and_then(|answer| answered(shared, &answer, protocol, &expected)) {
            Err(error) if again && error.is_instance_of::<PyException>(py) && !is_usage(py, &error) => {
                // What the producer cannot cast may be cast here, or is refused by the column's name.
                let result = method.call0().and_then(|answer| answered(shared, &answer, protocol, &expected));
                result.inspect_err(|other| other.set_cause(py, Some(error)))
            }
            result => result,
        };
    }
    Err(PyTypeError::new_err(format!(
        "from_arrow: a {} speaks none of {}; for tensors there is from_dlpack",
        obj.get_type().name()?,
        PROTOCOLS.join(", ")
    )))
}

/// A schema's capsule, and an array's of either kind.
pub fn from_capsules<'py>(
    shared: &Arc<Shared>,
    schema: &Bound<'py, PyAny>,
    array: &Bound<'py, PyAny>,
    as_column: Option<bool>,
    names: Names,
) -> PyResult<Bound<'py, PyAny>> {
    let _call = begin(schema.py());
    let expected = Expected { as_column, structs: None, schema: None, names, who: "from_capsules" };
    pair_of(shared, schema, array, "from_capsules", &expected)
}

/// What somebody asks for.
struct Wanted<'py> {
    /// For the producer.
    capsule: Bound<'py, PyAny>,
    schema: SchemaRef,
    is_field: bool,
}

impl<'py> Wanted<'py> {
    fn of(schema: &Bound<'py, PyAny>) -> PyResult<Self> {
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
            "from_arrow: schema is a {kind}, expected a crossdock.Schema or Field"
        )))
    }
}

/// What a protocol's method gave.
fn answered<'py>(
    shared: &Arc<Shared>,
    answer: &Bound<'py, PyAny>,
    protocol: &str,
    expected: &Expected,
) -> PyResult<Bound<'py, PyAny>> {
    if protocol.ends_with("_stream__") {
        return from_stream(shared, answer, protocol, expected);
    }
    let pair = answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(|| {
        PyTypeError::new_err(format!("{protocol}: expected a pair of capsules, got {answer}"))
    })?;
    pair_of(shared, &pair.get_item(0)?, &pair.get_item(1)?, protocol, expected)
}

/// What structs of an object of this class are; `None` where it does not tell.
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
    if has_any(&OF_TABLES)? {
        return Ok(Some(Structs::Table));
    }
    Ok(has_any(&OF_ARRAYS)?.then_some(Structs::Column))
}

fn pair_of<'py>(
    shared: &Arc<Shared>,
    schema: &Bound<'py, PyAny>,
    array: &Bound<'py, PyAny>,
    who: &str,
    expected: &Expected,
) -> PyResult<Bound<'py, PyAny>> {
    let py = schema.py();
    let schema = take::<abi::ArrowSchema>(schema, who)?;
    let array = if name_of(array).as_deref() == Some("arrow_array") {
        on_cpu(take(array, who)?)
    } else {
        take::<abi::ArrowDeviceArray>(array, who)?
    };
    let mut one = VecDeque::from([array]);
    of_arrays(py, shared, &schema, &mut one, expected)
}

fn from_stream<'py>(
    shared: &Arc<Shared>,
    stream: &Bound<'py, PyAny>,
    who: &str,
    expected: &Expected,
) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    // A producer may do its work in these calls, or read files.
    if name_of(stream).as_deref() == Some("arrow_array_stream") {
        let mut stream = DataStream::new(take(stream, who)?);
        let schema = detach(py, || stream.schema()).or_raise()?;
        return of_arrays(py, shared, &schema, &mut stream, expected);
    }
    let mut stream = DeviceStream::new(take(stream, who)?);
    let schema = detach(py, || stream.schema()).or_raise()?;
    of_arrays(py, shared, &schema, &mut stream, expected)
}

/// A table of batches, or a column of arrays; on the session's device.
fn of_arrays<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    schema: &Owned<abi::ArrowSchema>,
    arrays: &mut dyn Arrays,
    expected: &Expected,
) -> PyResult<Bound<'py, PyAny>> {
    let field = expected.names.field(schema)?;
    let structs = expected.structs(&field)?;
    let session = &shared.session;
    let (table, is_column) = detached(py, || {
        let (table, is_column) = tables_of(session, field, arrays, structs)?;
        let table = match &expected.schema {
            Some(wanted) => conformed(&table, wanted)?,
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

impl Expected {
    /// What arrays of `field` become.
    fn structs(&self, field: &ArrowField) -> PyResult<Structs> {
        let is_struct = matches!(field.data_type(), DataType::Struct(_));
        let (who, kind) = (self.who, field.data_type());
        match self.as_column {
            Some(true) => return Ok(Structs::Column),
            Some(false) if is_struct => return Ok(Structs::Table),
            Some(false) => {
                return Err(usage(format!(
                    "{who}: expected a table, got a column of {kind}: only structs are rows of a table"
                )));
            }
            None => {}
        }
        // Some producers name the schema of a table, and some say that it may be null; none does both.
        Ok(match self.structs {
            _ if !is_struct || field.metadata().contains_key(EXTENSION_NAME) => Structs::Column,
            Some(structs) => structs,
            None if field.is_nullable() && !field.name().is_empty() => Structs::Column,
            None => Structs::ByNulls,
        })
    }
}

fn tables_of(
    session: &Session,
    field: ArrowField,
    arrays: &mut dyn Arrays,
    structs: Structs,
) -> Result<(HostTable, bool)> {
    match structs {
        Structs::Table => Ok((HostTable::from_device_arrays(session, field, arrays)?, false)),
        Structs::Column => Ok((HostTable::column_from_device_arrays(session, field, arrays)?, true)),
        Structs::ByNulls => HostTable::from_device_arrays_by_nulls(session, field, arrays),
    }
}

/// The table under the schema that it was asked for. A column without a name takes the one that is wanted.
fn conformed(table: &HostTable, wanted: &SchemaRef) -> Result<HostTable> {
    let named = match (&table.schema().fields()[..], &wanted.fields()[..]) {
        ([one], [field]) if one.name().is_empty() => {
            let one = one.as_ref().clone().with_name(field.name());
            let schema = ArrowSchema::new_with_metadata(vec![one], table.schema().metadata().clone());
            Some(table.with_schema(&Arc::new(schema))?)
        }
        _ => None,
    };
    named.as_ref().unwrap_or(table).conform(wanted).map_err(|error| match error {
        Error::Usage(what) => Error::Usage(format!("from_arrow: {what}")),
        other => other,
    })
}
