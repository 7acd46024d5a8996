//! Chooses columns and nested fields of schemas and batches.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use crossdock_memory::{Error, Result};

use crate::{DeviceArray, DeviceBatch};

/// Columns and nested fields of a schema, in the schema's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection(Vec<Chosen>);

/// A chosen column or field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chosen {
    /// The position among the columns of the schema or the fields of the struct.
    index: usize,
    /// The chosen fields of a struct; `None` for the whole column.
    fields: Option<Projection>,
}

impl Projection {
    /// Finds the columns and fields at `paths`. A path is a list of names from the top-level column
    /// down. A path that is listed twice, or that continues another path, adds nothing.
    ///
    /// # Errors
    /// Invalid argument if a path is not in the schema, if its name is not unique there, or if it
    /// names a field of a column that is not a struct.
    pub fn new(schema: &Schema, paths: &[Vec<String>]) -> Result<Self> {
        let mut projection = Self(Vec::new());
        for path in paths {
            choose(schema.fields(), path, 0, &mut projection)?;
        }
        Ok(projection)
    }

    /// Chooses the fields `fields` of the only column of a schema.
    pub fn nested(fields: Projection) -> Self {
        Self(vec![Chosen { index: 0, fields: Some(fields) }])
    }

    /// Whether the column or field at `index` is chosen: as a whole, or the fields of the returned
    /// projection.
    pub fn get(&self, index: usize) -> Option<Option<&Projection>> {
        let at = self.0.binary_search_by_key(&index, |chosen| chosen.index).ok()?;
        self.0.get(at).map(|chosen| chosen.fields.as_ref())
    }

    /// The struct type with the chosen fields of `data_type`.
    ///
    /// # Errors
    /// Internal if the type is not the struct that the projection was created for.
    pub fn data_type(&self, data_type: &DataType) -> Result<DataType> {
        let DataType::Struct(fields) = data_type else { return Err(other_schema()) };
        project_fields(fields, self).map(DataType::Struct)
    }

    /// The schema of the chosen columns.
    ///
    /// # Errors
    /// Internal if the schema is not the one that the projection was created for.
    pub fn schema(&self, schema: &Schema) -> Result<Schema> {
        Ok(Schema::new(project_fields(schema.fields(), self)?).with_metadata(schema.metadata().clone()))
    }

    /// The chosen columns of a batch, which share its buffers. `schema` is the result of
    /// [`Projection::schema`].
    ///
    /// # Errors
    /// Internal if the batch does not have the schema that the projection was created for.
    pub fn batch(&self, batch: &DeviceBatch, schema: &SchemaRef) -> Result<DeviceBatch> {
        let columns = project_arrays(batch.columns(), schema.fields(), self)?;
        let projected = DeviceBatch::try_new(schema.clone(), batch.len(), columns)?;
        projected.with_metadata(batch.metadata().clone()).with_default_device(batch.device())
    }
}

/// Adds the field at `path[level..]` of `fields` to `projection`, in the order of `fields`.
fn choose(fields: &Fields, path: &[String], level: usize, projection: &mut Projection) -> Result<()> {
    let Some(name) = path.get(level) else { return Ok(()) };
    let mut matches = fields.iter().enumerate().filter(|(_, field)| field.name() == name);
    let (index, field) = match (matches.next(), matches.next()) {
        (Some(found), None) => found,
        (None, _) => {
            let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
            return Err(Error::invalid_argument(format!(
                "there is no column '{}'; the columns are: {}",
                path.get(..=level).unwrap_or_default().join("."),
                names.join(", ")
            )));
        }
        (Some(_), Some(_)) => {
            return Err(Error::invalid_argument(format!(
                "column '{}': expected a unique name, but several columns have it",
                path.get(..=level).unwrap_or_default().join(".")
            )));
        }
    };
    let nested = match field.data_type() {
        _ if path.len() == level + 1 => None,
        DataType::Struct(nested) => Some(nested),
        other => {
            return Err(Error::invalid_argument(format!(
                "the column '{}' has the type {}, expected a struct with a field '{}'",
                path.get(..=level).unwrap_or_default().join("."),
                crate::type_name(other),
                path.get(level + 1..).unwrap_or_default().join(".")
            )));
        }
    };
    let chosen = &mut projection.0;
    let at = chosen.partition_point(|other| other.index < index);
    let is_new = chosen.get(at).is_none_or(|other| other.index != index);
    if is_new {
        chosen.insert(at, Chosen { index, fields: nested.map(|_| Projection(Vec::new())) });
    }
    let Some(entry) = chosen.get_mut(at) else { return Ok(()) };
    match (nested, &mut entry.fields) {
        (Some(nested), Some(fields)) => choose(nested, path, level + 1, fields),
        // The whole column includes each of its fields.
        (None, fields) => {
            *fields = None;
            Ok(())
        }
        (Some(nested), None) => choose(nested, path, level + 1, &mut Projection(Vec::new())),
    }
}

fn project_fields(fields: &Fields, projection: &Projection) -> Result<Fields> {
    projection
        .0
        .iter()
        .map(|chosen| {
            let field = fields.get(chosen.index).ok_or_else(other_schema)?;
            project_field(field, chosen)
        })
        .collect()
}

fn project_field(field: &FieldRef, chosen: &Chosen) -> Result<FieldRef> {
    let Some(fields) = &chosen.fields else { return Ok(field.clone()) };
    Ok(Arc::new(Field::clone(field).with_data_type(fields.data_type(field.data_type())?)))
}

fn project_arrays(
    arrays: &[DeviceArray],
    fields: &Fields,
    projection: &Projection,
) -> Result<Vec<DeviceArray>> {
    projection
        .0
        .iter()
        .zip(fields)
        .map(|(chosen, field)| {
            let array = arrays.get(chosen.index).ok_or_else(other_schema)?;
            let Some(nested) = &chosen.fields else { return Ok(array.clone()) };
            let DataType::Struct(fields) = field.data_type() else { return Err(other_schema()) };
            let children = project_arrays(array.children(), fields, nested)?;
            array.clone().with_fields(field.data_type().clone(), children)
        })
        .collect()
}

fn other_schema() -> Error {
    Error::internal("a projection was used with another schema than its own")
}
