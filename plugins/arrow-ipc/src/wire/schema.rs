//! Adds the ids of dictionaries to a schema.

use std::collections::HashMap;

use arrow_schema::{DataType, FieldRef, SchemaRef};
use crossdock_plugin_api::{Error, Result};

use crate::limits::MAX_DEPTH;

/// A schema with the dictionary ids of its columns.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The Arrow schema.
    pub arrow: SchemaRef,
    /// The columns, one for each field, in order.
    pub columns: Vec<Column>,
}

/// A field, and the way it is stored in the body of a record batch.
#[derive(Clone, Debug)]
pub struct Column {
    /// The field.
    pub field: FieldRef,
    /// The way the field is stored.
    pub kind: Kind,
}

/// The way a field is stored.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    /// The field is stored as values, with children.
    Plain { children: Vec<Column> },
    /// The field is stored as indices. The values are in dictionary batches with `id`.
    Dictionary { id: i64, values: Box<Column> },
}

impl Schema {
    /// Assigns dictionary ids in pre-order.
    pub fn assign_ids(arrow: SchemaRef) -> Result<Self> {
        let mut next_id = 0;
        let columns = arrow
            .fields()
            .iter()
            .map(|field| Column::assign_ids(field, &mut next_id, 0).map_err(|e| in_field(e, field.name())))
            .collect::<Result<_>>()?;
        Ok(Self { arrow, columns })
    }

    /// Returns the column of each dictionary's values, by id. Fields with equal value types may
    /// share an id.
    pub fn dictionaries(&self) -> Result<HashMap<i64, &Column>> {
        let mut dictionaries = HashMap::new();
        self.columns.iter().try_for_each(|column| column.find_dictionaries(&mut dictionaries))?;
        Ok(dictionaries)
    }
}

impl Column {
    fn assign_ids(field: &FieldRef, next_id: &mut i64, depth: usize) -> Result<Self> {
        check_depth(depth)?;
        let kind = match field.data_type() {
            DataType::Dictionary(_, values) => {
                if matches!(**values, DataType::Dictionary(..)) {
                    return Err(Error::unsupported(
                        "Arrow IPC cannot represent a dictionary with dictionary-encoded values: decode the outer one \
                         first (Table.decode_dictionary in Python, Table::decode_dictionaries in Rust)",
                    ));
                }
                let id = *next_id;
                *next_id += 1;
                let values = values_field(field, values);
                Kind::Dictionary { id, values: Box::new(Self::assign_ids(&values, next_id, depth + 1)?) }
            }
            other => {
                let children = children(other).into_iter();
                let children = children.map(|child| {
                    Self::assign_ids(child, next_id, depth + 1).map_err(|e| in_field(e, child.name()))
                });
                Kind::Plain { children: children.collect::<Result<_>>()? }
            }
        };
        Ok(Self { field: field.clone(), kind })
    }

    fn find_dictionaries<'a>(&'a self, dictionaries: &mut HashMap<i64, &'a Column>) -> Result<()> {
        match &self.kind {
            Kind::Plain { children } => children.iter().try_for_each(|c| c.find_dictionaries(dictionaries)),
            Kind::Dictionary { id, values } => {
                if let Some(other) = dictionaries.insert(*id, values) {
                    let (a, b) = (other.field.data_type(), values.field.data_type());
                    if !a.equals_datatype(b) || !other.same_ids(values) {
                        return Err(Error::bad_data(format!(
                            "dictionary {id} is used for values of type {a} and of type {b}"
                        )));
                    }
                }
                values.find_dictionaries(dictionaries)
            }
        }
    }

    fn same_ids(&self, other: &Column) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Plain { children: a }, Kind::Plain { children: b }) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_ids(b))
            }
            (Kind::Dictionary { id: a, .. }, Kind::Dictionary { id: b, .. }) => a == b,
            _ => false,
        }
    }
}

/// Whether the fields of two schemas have the same names and types.
pub fn same_types(a: &arrow_schema::Schema, b: &arrow_schema::Schema) -> bool {
    let same =
        |(a, b): (&FieldRef, &FieldRef)| a.name() == b.name() && a.data_type().equals_datatype(b.data_type());
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(same)
}

/// Returns the names and types of the fields, for error messages.
pub fn names_and_types(schema: &arrow_schema::Schema) -> String {
    // A name may contain line ends, which must be escaped because an error is one line.
    let fields = schema
        .fields()
        .iter()
        .map(|f| format!("{}: {}", f.name().escape_debug(), crossdock_arrays::type_name(f.data_type())));
    fields.collect::<Vec<_>>().join(", ")
}

/// Returns the field of a dictionary's values. IPC has only one field for the keys and the values.
pub fn values_field(field: &FieldRef, values: &DataType) -> FieldRef {
    FieldRef::new(arrow_schema::Field::new(field.name(), values.clone(), true))
}

/// Returns the fields of a type's children, in order. The values of a dictionary are not included.
pub fn children(data_type: &DataType) -> Vec<&FieldRef> {
    match data_type {
        DataType::List(f)
        | DataType::LargeList(f)
        | DataType::ListView(f)
        | DataType::LargeListView(f)
        | DataType::FixedSizeList(f, _)
        | DataType::Map(f, _) => vec![f],
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, f)| f).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends, values],
        _ => Vec::new(),
    }
}

/// Returns an error if a field is nested too deep.
pub fn check_depth(depth: usize) -> Result<()> {
    if depth < MAX_DEPTH {
        return Ok(());
    }
    Err(Error::bad_data(format!("the schema is nested more than {MAX_DEPTH} levels deep")))
}

/// Adds the name of the field to an error.
pub fn in_field(error: Error, field: &str) -> Error {
    // A name may contain line ends, which must be escaped because an error is one line.
    error.context(format_args!("field '{}'", field.escape_debug()))
}
