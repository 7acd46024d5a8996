//! Checks whether Parquet can store each column.

use arrow_schema::{DataType, Field, FieldRef, Schema};
use crossdock_plugin_api::{Error, Result};
use parquet::arrow::ArrowSchemaConverter;

use crate::error::{text_of, writing};

/// Checks that a column can be written, and read as the same type.
///
/// # Errors
/// Unsupported if it cannot. The error names the column.
pub fn check(field: &FieldRef) -> Result<()> {
    let unsupported = |why: String| {
        Error::unsupported(format!("column '{}': {why}: cast the column, or leave it out", field.name()))
    };
    check_type(field.data_type()).map_err(unsupported)?;
    let schema = Schema::new(vec![Field::clone(field)]);
    writing(|| match ArrowSchemaConverter::new().convert(&schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(unsupported(text_of(&error))),
    })
}

/// Rejects types whose values the crate does not write, or does not read again.
fn check_type(data_type: &DataType) -> std::result::Result<(), String> {
    let no_type = || {
        Err(format!(
            "Parquet has no type for {data_type}",
            data_type = crossdock_arrays::type_name(data_type)
        ))
    };
    match data_type {
        DataType::Union(..) | DataType::Interval(_) => no_type(),
        DataType::Struct(fields) if fields.is_empty() => no_type(),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| check_type(field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => check_type(item.data_type()),
        DataType::Dictionary(_, values) => check_type(values),
        DataType::RunEndEncoded(_, values) => check_type(values.data_type()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn error_names_the_column_and_the_type() {
        let empty = DataType::Struct(arrow_schema::Fields::empty());
        let list = DataType::new_list(empty, true);
        let error = check(&Arc::new(Field::new("a", list, true))).unwrap_err();
        assert!(error.message().starts_with("column 'a': Parquet has no type for struct"), "{error:?}");
        assert_eq!(check(&Arc::new(Field::new("a", DataType::Null, true))), Ok(()));
    }
}
