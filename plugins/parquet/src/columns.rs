//! Finds the column chunks of columns and nested fields.
//!
//! Arrow's columns are trees of types. A Parquet file has a column chunk for each leaf of these
//! trees, and numbers the leaves in the order of the schema.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};
use crossdock_arrays::Projection;
use crossdock_plugin_api::{Error, Result};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::schema::types::{SchemaDescriptor, Type};

use crate::error::{of_reader, reading};
use crate::footer::Footer;
use crate::on_device::OnDevice;

/// A needed column.
pub struct Column {
    /// The column, with the needed fields only.
    pub field: FieldRef,
    /// The crate's description of the column.
    pub levels: FieldLevels,
    /// The indices of the needed leaves, in ascending order.
    pub leaves: Vec<usize>,
    /// Whether the number of values of a row is not fixed.
    pub is_repeated: bool,
    /// How the column is decoded on a device; `None` if the crate must decode it on the host.
    pub on_device: Option<OnDevice>,
}

/// A leaf of the schema, with the type of its values in Arrow.
pub struct Leaf {
    pub index: usize,
    pub field: FieldRef,
}

/// The needed columns of a file.
///
/// # Errors
/// Unsupported if the schemas of Parquet and Arrow have different trees.
pub fn columns(footer: &Footer, projection: Option<&Projection>) -> Result<Vec<Arc<Column>>> {
    let fields = footer.schema.fields();
    let roots = roots(footer, fields)?;
    let mut columns = Vec::new();
    for (i, (field, (node, leaves))) in fields.iter().zip(roots).enumerate() {
        let chosen = match projection.map(|projection| projection.get(i)) {
            None => None,
            Some(Some(chosen)) => chosen,
            Some(None) => continue,
        };
        columns.push(Arc::new(column(footer, field, node, leaves, chosen)?));
    }
    Ok(columns)
}

/// Finds the leaf at a path of names, which names no list.
pub fn find(footer: &Footer, path: &[String]) -> Option<Leaf> {
    let (first, rest) = path.split_first()?;
    let fields = footer.schema.fields();
    let at = unique(fields, first)?;
    let (node, leaves) = roots(footer, fields).ok()?.into_iter().nth(at)?;
    let (mut field, mut node, mut index) = (fields.get(at)?, node, leaves.start);
    for name in rest {
        let DataType::Struct(fields) = field.data_type() else { return None };
        let children = children_of(node, fields)?;
        let at = unique(fields, name)?;
        index += children.iter().take(at).map(|child| n_leaves(child)).sum::<usize>();
        (field, node) = (fields.get(at)?, children.get(at)?);
    }
    node.is_primitive().then(|| Leaf { index, field: field.clone() })
}

/// All leaves that are not in lists, each with its number in the depth-first order of Arrow's
/// schema.
pub fn flat_leaves(footer: &Footer) -> Vec<(i32, Leaf)> {
    fn walk(field: &FieldRef, node: &Type, next: (&mut i32, usize), leaves: &mut Vec<(i32, Leaf)>) {
        let (number, mut leaf) = next;
        match field.data_type() {
            DataType::Struct(fields) => {
                *number += 1;
                let children = children_of(node, fields);
                for (i, field) in fields.iter().enumerate() {
                    match children.as_ref().and_then(|children| children.get(i)) {
                        Some(child) => {
                            walk(field, child, (number, leaf), leaves);
                            leaf += n_leaves(child);
                        }
                        None => *number += n_fields(field),
                    }
                }
            }
            _ => {
                if node.is_primitive() {
                    leaves.push((*number, Leaf { index: leaf, field: field.clone() }));
                }
                *number += n_fields(field);
            }
        }
    }
    let (mut number, mut leaves) = (0, Vec::new());
    let fields = footer.schema.fields();
    for (field, (node, range)) in fields.iter().zip(roots(footer, fields).unwrap_or_default()) {
        walk(field, node, (&mut number, range.start), &mut leaves);
    }
    leaves
}

/// The number of fields of the tree of a field.
fn n_fields(field: &FieldRef) -> i32 {
    let of_children = match field.data_type() {
        DataType::Struct(fields) => fields.iter().map(n_fields).sum(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => n_fields(item),
        DataType::RunEndEncoded(ends, values) => n_fields(ends) + n_fields(values),
        _ => 0,
    };
    of_children + 1
}

fn unique(fields: &Fields, name: &str) -> Option<usize> {
    let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name);
    let (index, _) = found.next()?;
    found.next().is_none().then_some(index)
}

/// Parquet's type and the leaves of each column.
fn roots<'a>(footer: &'a Footer, fields: &Fields) -> Result<Vec<(&'a Type, Range<usize>)>> {
    let root = descriptor(footer).root_schema();
    let mut begin = 0;
    let roots = root.get_fields().iter().map(|node| {
        let leaves = begin..begin + n_leaves(node);
        begin = leaves.end;
        (&**node, leaves)
    });
    // A group without fields is no column of Arrow's schema.
    let roots: Vec<_> = roots.filter(|(_, leaves)| !leaves.is_empty()).collect();
    if roots.len() == fields.len() {
        return Ok(roots);
    }
    Err(Error::unsupported(format!(
        "Parquet's schema has {} columns, but Arrow's schema of the file has {}",
        roots.len(),
        fields.len()
    )))
}

fn descriptor(footer: &Footer) -> &SchemaDescriptor {
    footer.metadata.file_metadata().schema_descr()
}

fn n_leaves(node: &Type) -> usize {
    match node {
        Type::PrimitiveType { .. } => 1,
        Type::GroupType { fields, .. } => fields.iter().map(|field| n_leaves(field)).sum(),
    }
}

/// The nodes of the fields of a struct. `None` if Parquet's schema has others.
fn children_of<'a>(node: &'a Type, fields: &Fields) -> Option<Vec<&'a Type>> {
    let Type::GroupType { fields: nodes, .. } = node else { return None };
    let nodes: Vec<_> = nodes.iter().map(|node| &**node).filter(|node| n_leaves(node) > 0).collect();
    let same = |(node, field): (&&Type, &FieldRef)| node.name() == field.name();
    (nodes.len() == fields.len() && nodes.iter().zip(fields).all(same)).then_some(nodes)
}

fn column(
    footer: &Footer,
    field: &FieldRef,
    node: &Type,
    leaves: Range<usize>,
    chosen: Option<&Projection>,
) -> Result<Column> {
    let mut needed = Vec::new();
    let mut next = leaves.start;
    add_leaves(field, node, chosen, &mut next, &mut needed)?;
    let schema = descriptor(footer);
    let levels = reading(|| {
        let mask = ProjectionMask::leaves(schema, needed.iter().copied());
        let hint = Some(footer.schema.fields());
        parquet_to_arrow_field_levels(schema, mask, hint).map_err(|error| of_reader(&error))
    });
    let levels = levels.map_err(|error| error.context(format_args!("column '{}'", field.name())))?;
    let expected = match chosen {
        Some(chosen) => chosen.data_type(field.data_type())?,
        None => field.data_type().clone(),
    };
    let is_repeated = needed
        .iter()
        .any(|leaf| schema.columns().get(*leaf).is_some_and(|descriptor| descriptor.max_rep_level() > 0));
    let on_device = match needed.as_slice() {
        [leaf] => OnDevice::of(footer, *leaf, &expected),
        _ => None,
    };
    let field = Arc::new(Field::clone(field).with_data_type(expected));
    Ok(Column { field, levels, leaves: needed, is_repeated, on_device })
}

fn add_leaves(
    field: &Field,
    node: &Type,
    chosen: Option<&Projection>,
    next: &mut usize,
    needed: &mut Vec<usize>,
) -> Result<()> {
    let Some(chosen) = chosen else {
        let end = *next + n_leaves(node);
        needed.extend(*next..end);
        *next = end;
        return Ok(());
    };
    let DataType::Struct(fields) = field.data_type() else {
        return Err(Error::internal(format!(
            "fields of {} were chosen",
            crossdock_arrays::type_name(field.data_type())
        )));
    };
    let children = children_of(node, fields).ok_or_else(|| {
        Error::unsupported(format!("Parquet's schema of '{}' has other fields than Arrow's", field.name()))
    })?;
    for (i, (field, node)) in fields.iter().zip(children).enumerate() {
        match chosen.get(i) {
            Some(chosen) => add_leaves(field, node, chosen, next, needed)?,
            None => *next += n_leaves(node),
        }
    }
    Ok(())
}
