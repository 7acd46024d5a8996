//! Converts tables to a requested schema.

use arrow_schema::{Field, SchemaRef};
use crossdock_arrays::{DeviceArray, DeviceBatch, Layout, can_cast, cast, layout, type_name};
use crossdock_memory::Stream;

use super::{Table, in_table};
use crate::error::{Error, Result};
use crate::session::Session;

const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

impl Table {
    /// Converts the table to the schema `target`. The table and `target` must have the same column
    /// names in the same order. Numbers are cast if no value changes, and a column may become
    /// non-nullable if it has no nulls. The result has the metadata of `target`.
    ///
    /// # Errors
    /// [`Error::Usage`] if a column cannot be converted. The error names the column, and what was
    /// expected and given.
    pub fn conform(&self, target: &SchemaRef) -> Result<Table> {
        let names = |schema: &SchemaRef| -> Vec<String> {
            schema.fields().iter().map(|field| field.name().clone()).collect()
        };
        if names(target) != names(&self.schema) {
            return Err(Error::usage(format!(
                "expected the columns {:?}, got {:?}",
                names(target),
                names(&self.schema)
            )));
        }
        for (target, got) in target.fields().iter().zip(self.schema.fields()) {
            if !(can_cast(target.data_type()) && can_cast(got.data_type())) {
                difference(target, got).map_or(Ok(()), |what| Err(column_error(target, &what)))?;
            }
            for key in [EXTENSION_NAME, EXTENSION_METADATA] {
                let (expected, actual) = (target.metadata().get(key), got.metadata().get(key));
                if actual.is_some() && expected != actual {
                    return Err(column_error(
                        target,
                        &format!("expected {key} {}, got {}", quoted(expected), quoted(actual)),
                    ));
                }
            }
        }
        let batches = self.batches.iter().map(|batch| conform_batch(&self.session, batch, target));
        let batches = batches.collect::<Result<_>>()?;
        Ok(Self { session: self.session.clone(), schema: target.clone(), batches })
    }
}

fn conform_batch(session: &Session, batch: &DeviceBatch, target: &SchemaRef) -> Result<DeviceBatch> {
    let stream = session.memory().default_stream(batch.device()).map_err(in_table)?;
    let columns = target.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| conform_column(field, column, &stream));
    let columns = columns.collect::<Result<_>>()?;
    let conformed = DeviceBatch::try_new(target.clone(), batch.len(), columns);
    let conformed = conformed.and_then(|new| new.with_default_device(batch.device())).map_err(in_table)?;
    Ok(conformed.with_metadata(batch.metadata().clone()))
}

fn conform_column(field: &Field, column: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let column = if field.data_type() == column.data_type() || !can_cast(field.data_type()) {
        column.clone()
    } else {
        let (cast, changed) = cast(column, field.data_type(), stream).map_err(in_table)?;
        if let Some(value) = changed {
            let (to, from) = (type_name(field.data_type()), type_name(column.data_type()));
            return Err(column_error(
                field,
                &format!("expected {to}, got {from} with the value {value}, which {to} cannot represent"),
            ));
        }
        cast
    };
    if !field.is_nullable() && layout::layout(field.data_type()).has_validity {
        let nulls = column.count_nulls(stream).map_err(in_table)?;
        if nulls > 0 {
            return Err(column_error(field, &format!("expected no nulls, got {nulls}")));
        }
    }
    Ok(column)
}

/// Describes how two types differ. The description includes the names and extension types of nested
/// fields.
fn difference(expected: &Field, got: &Field) -> Option<String> {
    let (expected_type, actual_type) = (expected.data_type(), got.data_type());
    let is_ordered = |field: &Field| field.dict_is_ordered() == Some(true);
    if !expected_type.equals_datatype(actual_type) || is_ordered(expected) != is_ordered(got) {
        return Some(format!(
            "expected {expected_type}, got {actual_type}",
            expected_type = type_name(expected_type),
            actual_type = type_name(actual_type)
        ));
    }
    let children = |layout: Layout<'_>| -> Vec<Field> {
        layout.children.iter().map(|child| child.as_ref().clone()).collect()
    };
    let has_named_fields =
        matches!(expected_type, arrow_schema::DataType::Struct(_) | arrow_schema::DataType::Union(..));
    let pairs =
        children(layout::layout(expected_type)).into_iter().zip(children(layout::layout(actual_type)));
    for (expected, got) in pairs {
        if has_named_fields && expected.name() != got.name() {
            return Some(format!("expected a field '{}', got '{}'", expected.name(), got.name()));
        }
        for key in [EXTENSION_NAME, EXTENSION_METADATA] {
            let (target, actual) = (expected.metadata().get(key), got.metadata().get(key));
            if target != actual {
                let field = expected.name();
                return Some(format!(
                    "field '{field}': expected {key} {}, got {}",
                    quoted(target),
                    quoted(actual)
                ));
            }
        }
        if let Some(what) = difference(&expected, &got) {
            return Some(format!("field '{}': {what}", expected.name()));
        }
    }
    None
}

fn quoted(value: Option<&String>) -> String {
    value.map_or_else(|| "none".into(), |value| format!("{value:?}"))
}

fn column_error(field: &Field, what: &str) -> Error {
    Error::usage(format!("column '{}': {what}", field.name().escape_debug()))
}
