//! Tables under a schema that somebody asked for.

use arrow_schema::{Field, SchemaRef};
use crossdock_arrays::{DeviceArray, DeviceBatch, Layout, cast, is_cast, layout};
use crossdock_memory::Stream;

use super::{Table, in_table};
use crate::error::{Error, Result};
use crate::session::Session;

const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

impl Table {
    /// The table under `wanted`: the same columns by name and order, with its metadata. Numbers of other types are cast where
    /// none of them changes; a column that may not have nulls has none.
    ///
    /// # Errors
    /// [`Error::Usage`] where a column is not what is wanted, by its name, what was expected and what there is.
    pub fn conform(&self, wanted: &SchemaRef) -> Result<Table> {
        let names = |schema: &SchemaRef| -> Vec<String> {
            schema.fields().iter().map(|field| field.name().clone()).collect()
        };
        if names(wanted) != names(&self.schema) {
            return Err(Error::usage(format!(
                "expected the columns {:?}, got {:?}",
                names(wanted),
                names(&self.schema)
            )));
        }
        for (wanted, got) in wanted.fields().iter().zip(self.schema.fields()) {
            if !(is_cast(wanted.data_type()) && is_cast(got.data_type())) {
                difference(wanted, got).map_or(Ok(()), |what| Err(column_error(wanted, &what)))?;
            }
            for key in [EXTENSION_NAME, EXTENSION_METADATA] {
                let (expected, there) = (wanted.metadata().get(key), got.metadata().get(key));
                if there.is_some() && expected != there {
                    return Err(column_error(
                        wanted,
                        &format!("expected {key} {}, got {}", shown(expected), shown(there)),
                    ));
                }
            }
        }
        let batches = self.batches.iter().map(|batch| conformed(&self.session, batch, wanted));
        let batches = batches.collect::<Result<_>>()?;
        Ok(Self { session: self.session.clone(), schema: wanted.clone(), batches })
    }
}

fn conformed(session: &Session, batch: &DeviceBatch, wanted: &SchemaRef) -> Result<DeviceBatch> {
    let stream = session.memory().default_stream(batch.device()).map_err(in_table)?;
    let columns = wanted.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| column_of(field, column, &stream)).collect::<Result<_>>()?;
    let made = DeviceBatch::try_new(wanted.clone(), batch.len(), columns);
    let made = made.and_then(|made| made.lying_on(batch.device())).map_err(in_table)?;
    Ok(made.with_metadata(batch.metadata().clone()))
}

fn column_of(field: &Field, column: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let column = if field.data_type() == column.data_type() || !is_cast(field.data_type()) {
        column.clone()
    } else {
        let (made, changed) = cast(column, field.data_type(), stream).map_err(in_table)?;
        if let Some(value) = changed {
            let (to, from) = (field.data_type(), column.data_type());
            return Err(column_error(
                field,
                &format!("expected {to}, got {from}, and {to} does not hold {value}"),
            ));
        }
        made
    };
    if !field.is_nullable() && layout::layout(field.data_type()).has_validity {
        let nulls = column.count_nulls(stream).map_err(in_table)?;
        if nulls > 0 {
            return Err(column_error(field, &format!("expected no nulls, got {nulls}")));
        }
    }
    Ok(column)
}

/// How two types differ, the names and extensions of what is below them included.
fn difference(wanted: &Field, got: &Field) -> Option<String> {
    let (expected, there) = (wanted.data_type(), got.data_type());
    let ordered = |field: &Field| field.dict_is_ordered() == Some(true);
    if !expected.equals_datatype(there) || ordered(wanted) != ordered(got) {
        return Some(format!("expected {expected}, got {there}"));
    }
    let below = |layout: Layout<'_>| -> Vec<Field> {
        layout.children.iter().map(|child| child.as_ref().clone()).collect()
    };
    let named = matches!(expected, arrow_schema::DataType::Struct(_) | arrow_schema::DataType::Union(..));
    let pairs = below(layout::layout(expected)).into_iter().zip(below(layout::layout(there)));
    for (expected, there) in pairs {
        if named && expected.name() != there.name() {
            return Some(format!("expected a field '{}', got '{}'", expected.name(), there.name()));
        }
        for key in [EXTENSION_NAME, EXTENSION_METADATA] {
            let (wanted, got) = (expected.metadata().get(key), there.metadata().get(key));
            if wanted != got {
                let field = expected.name();
                return Some(format!(
                    "field '{field}': expected {key} {}, got {}",
                    shown(wanted),
                    shown(got)
                ));
            }
        }
        if let Some(what) = difference(&expected, &there) {
            return Some(format!("field '{}': {what}", expected.name()));
        }
    }
    None
}

fn shown(value: Option<&String>) -> String {
    value.map_or_else(|| "none".into(), |value| format!("{value:?}"))
}

fn column_error(field: &Field, what: &str) -> Error {
    Error::usage(format!("column '{}': {what}", field.name().escape_debug()))
}
