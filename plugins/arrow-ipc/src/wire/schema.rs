//! A schema with what IPC adds to it: which dictionary each encoded column uses.

use std::collections::HashMap;

use arrow_schema::{DataType, FieldRef, SchemaRef};
use crossdock_plugin_api::{Error, Result};

use crate::limits::MOST_DEPTH;

/// A schema as IPC has it.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The schema.
    pub arrow: SchemaRef,
    /// Its fields, in order.
    pub columns: Vec<Column>,
}

/// A field and what becomes of it in a record batch's body.
#[derive(Clone, Debug)]
pub struct Column {
    /// The field.
    pub field: FieldRef,
    /// How it is stored.
    pub kind: Kind,
}

/// How a field is stored.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    /// With its children beside it.
    Plain { children: Vec<Column> },
    /// As indices; the values come in dictionary batches under `id`.
    Dictionary { id: i64, values: Box<Column> },
}

impl Schema {
    /// The schema with dictionary ids given out in pre-order.
    pub fn number(arrow: SchemaRef) -> Result<Self> {
        let mut next_id = 0;
        let columns = arrow
            .fields()
            .iter()
            .map(|field| Column::number(field, &mut next_id, 0).map_err(|e| at(e, field.name())))
            .collect::<Result<_>>()?;
        Ok(Self { arrow, columns })
    }

    /// The values' column of each dictionary, by id. Ids may be shared between fields of equal value types.
    pub fn dictionaries(&self) -> Result<HashMap<i64, &Column>> {
        let mut found = HashMap::new();
        self.columns.iter().try_for_each(|column| column.find_dictionaries(&mut found))?;
        Ok(found)
    }
}

impl Column {
    fn number(field: &FieldRef, next_id: &mut i64, depth: usize) -> Result<Self> {
        check_depth(depth)?;
        let kind = match field.data_type() {
            DataType::Dictionary(_, values) => {
                if matches!(**values, DataType::Dictionary(..)) {
                    return Err(Error::unsupported(
                        "a dictionary whose values are dictionary-encoded themselves has no form in Arrow IPC: decode \
                         the outer one first (Table.decode_dictionary in Python, Table::decode_dictionaries in Rust)",
                    ));
                }
                let id = *next_id;
                *next_id += 1;
                let values = values_field(field, values);
                Kind::Dictionary { id, values: Box::new(Self::number(&values, next_id, depth + 1)?) }
            }
            other => {
                let children = children(other).into_iter();
                let children = children
                    .map(|child| Self::number(child, next_id, depth + 1).map_err(|e| at(e, child.name())));
                Kind::Plain { children: children.collect::<Result<_>>()? }
            }
        };
        Ok(Self { field: field.clone(), kind })
    }

    fn find_dictionaries<'a>(&'a self, found: &mut HashMap<i64, &'a Column>) -> Result<()> {
        match &self.kind {
            Kind::Plain { children } => children.iter().try_for_each(|c| c.find_dictionaries(found)),
            Kind::Dictionary { id, values } => {
                if let Some(other) = found.insert(*id, values) {
                    let (a, b) = (other.field.data_type(), values.field.data_type());
                    if !a.equals_datatype(b) || !other.same_ids(values) {
                        return Err(Error::bad_data(format!(
                            "dictionary {id} is used for values of type {a} and of type {b}"
                        )));
                    }
                }
                values.find_dictionaries(found)
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

/// Names and types, for messages.
pub fn names_and_types(schema: &arrow_schema::Schema) -> String {
    // A name may hold line ends, and a message is one line.
    let fields = schema.fields().iter().map(|f| format!("{}: {}", f.name().escape_debug(), f.data_type()));
    fields.collect::<Vec<_>>().join(", ")
}

/// The field under which a dictionary's values are stored: IPC has one field for both.
pub fn values_field(field: &FieldRef, values: &DataType) -> FieldRef {
    FieldRef::new(arrow_schema::Field::new(field.name(), values.clone(), true))
}

/// The fields of a type's children, in order; a dictionary's values are not among them.
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

/// Refuses a field that lies too deep.
pub fn check_depth(depth: usize) -> Result<()> {
    if depth < MOST_DEPTH {
        return Ok(());
    }
    Err(Error::bad_data(format!("the schema is nested more than {MOST_DEPTH} levels deep")))
}

/// Says in which field an error happened.
pub fn at(error: Error, field: &str) -> Error {
    // A name may hold line ends, and a message is one line.
    error.context(format_args!("field '{}'", field.escape_debug()))
}
