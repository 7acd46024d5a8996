//! Checks whether Vortex has a type for each column.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Metadata};
use crossdock_plugin_api::{Error, Result};

/// Arrow's keys for the name and the metadata of an extension type.
const EXTENSION_KEYS: [&str; 2] = [EXTENSION_NAME, "ARROW:extension:metadata"];
const EXTENSION_NAME: &str = "ARROW:extension:name";

/// Checks that Vortex has a type for a column.
///
/// # Errors
/// Unsupported if it has none. The error names the column and the nested field.
pub fn check(field: &FieldRef) -> Result<()> {
    plain(field, field.name(), &mut Vec::new()).map(drop)
}

/// Returns fields without metadata, and the paths of the fields that have metadata.
///
/// # Errors
/// Unsupported if Vortex has no type for a field, or if a name occurs twice.
pub fn plain_fields(fields: &Fields) -> Result<(Fields, Vec<String>)> {
    let mut with_metadata = Vec::new();
    let fields = children(fields, "", &mut with_metadata)?;
    Ok((fields, with_metadata))
}

fn children(fields: &Fields, parent: &str, with_metadata: &mut Vec<String>) -> Result<Fields> {
    let mut names = HashSet::new();
    let mut plain_children = Vec::with_capacity(fields.len());
    for field in fields {
        let path = match parent {
            "" => field.name().clone(),
            parent => format!("{parent}.{}", field.name()),
        };
        if !names.insert(field.name()) {
            return Err(Error::unsupported(format!(
                "column '{path}': the name occurs twice, but names in a Vortex file must be unique; rename one"
            )));
        }
        plain_children.push(plain(field, &path, with_metadata)?);
    }
    Ok(plain_children.into())
}

fn plain(field: &FieldRef, path: &str, with_metadata: &mut Vec<String>) -> Result<FieldRef> {
    let extension = extension(field);
    if field.metadata().keys().any(|key| extension.is_none() || !EXTENSION_KEYS.contains(&key.as_str())) {
        with_metadata.push(path.to_owned());
    }
    let data_type = match extension {
        Some(_) => field.data_type().clone(),
        None => plain_type(field.data_type(), path, with_metadata)?,
    };
    let pairs = extension.map(|name| (EXTENSION_NAME.to_owned(), name.to_owned()));
    let field = Field::clone(field).with_data_type(data_type).with_metadata(Metadata::from_iter(pairs));
    Ok(Arc::new(field))
}

/// The name of the extension type of Arrow that the crate stores as one of Vortex: UUIDs.
fn extension(field: &Field) -> Option<&str> {
    let name = field.metadata().get(EXTENSION_NAME)?.as_str();
    (name == "arrow.uuid" && *field.data_type() == DataType::FixedSizeBinary(16)).then_some(name)
}

fn plain_type(data_type: &DataType, path: &str, with_metadata: &mut Vec<String>) -> Result<DataType> {
    let mut child = |field: &FieldRef| plain(field, &format!("{path}.{}", field.name()), with_metadata);
    Ok(match data_type {
        DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Union(..)
        | DataType::FixedSizeBinary(_) => {
            return Err(Error::unsupported(format!(
                "column '{path}': Vortex has no type for {data_type}: cast the column, or leave it out"
            )));
        }
        DataType::List(item) => DataType::List(child(item)?),
        DataType::LargeList(item) => DataType::LargeList(child(item)?),
        DataType::ListView(item) => DataType::ListView(child(item)?),
        DataType::LargeListView(item) => DataType::LargeListView(child(item)?),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(child(item)?, *n),
        DataType::Map(entries, sorted) => DataType::Map(child(entries)?, *sorted),
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(ends.clone(), child(values)?),
        DataType::Struct(fields) => DataType::Struct(children(fields, path, with_metadata)?),
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(plain_type(values, path, with_metadata)?))
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::TimeUnit;

    fn field(name: &str, data_type: DataType) -> FieldRef {
        Arc::new(Field::new(name, data_type, true))
    }

    #[test]
    fn error_names_the_path_of_a_type_that_vortex_lacks() {
        let duration = field("d", DataType::Duration(TimeUnit::Second));
        let list = field("l", DataType::List(field("item", DataType::Struct(Fields::from(vec![duration])))));
        let error = check(&list).unwrap_err();
        assert!(
            error.message().starts_with("column 'l.item.d': Vortex has no type for Duration"),
            "{error:?}"
        );
        let dictionary =
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::FixedSizeBinary(2)));
        let error = check(&field("k", dictionary)).unwrap_err();
        assert!(
            error.message().starts_with("column 'k': Vortex has no type for FixedSizeBinary"),
            "{error:?}"
        );
        assert_eq!(check(&field("n", DataType::Null)), Ok(()));
    }

    #[test]
    fn metadata_are_removed_and_their_fields_listed() {
        let marked = |name: &str, data_type| {
            let metadata = [("k".to_owned(), "v".to_owned())].into_iter().collect::<Metadata>();
            Arc::new(Field::new(name, data_type, false).with_metadata(metadata))
        };
        let inner = marked("b", DataType::Int8);
        let fields = Fields::from(vec![field("a", DataType::Struct(Fields::from(vec![inner])))]);
        let (plain, paths) = plain_fields(&fields).unwrap();
        assert_eq!(paths, ["a.b"]);
        let inner = Fields::from(vec![Arc::new(Field::new("b", DataType::Int8, false))]);
        assert_eq!(plain, Fields::from(vec![field("a", DataType::Struct(inner))]));
    }

    #[test]
    fn repeated_names_are_rejected() {
        let twice = Fields::from(vec![field("a", DataType::Int8), field("a", DataType::Int16)]);
        let error = plain_fields(&twice).unwrap_err();
        assert!(error.message().starts_with("column 'a': the name occurs twice"), "{error:?}");
        let error = check(&field("s", DataType::Struct(twice))).unwrap_err();
        assert!(error.message().starts_with("column 's.a': the name occurs twice"), "{error:?}");
    }
}
