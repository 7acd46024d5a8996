//! Compares the schema of an input with the schema that the caller expects.

use std::sync::Arc;

use arrow_schema::{Field, Schema};
use crossdock_plugin_api::{Error, Result};

/// Returns an error unless `got` has the columns of `expected`: the same names and types in the
/// same order, and no nullable column where a column without nulls is expected.
pub fn expect_schema(got: &Schema, expected: &Schema) -> Result<()> {
    let matches = |(got, expected): (&Arc<Field>, &Arc<Field>)| {
        got.name() == expected.name()
            && got.data_type().equals_datatype(expected.data_type())
            && (expected.is_nullable() || !got.is_nullable())
    };
    let (all_got, all_expected) = (got.fields(), expected.fields());
    if all_got.len() == all_expected.len() && all_got.iter().zip(all_expected).all(matches) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "another schema: expected [{}], got [{}]",
        columns(expected),
        columns(got)
    )))
}

fn columns(schema: &Schema) -> String {
    let column = |field: &Arc<Field>| {
        let nulls = if field.is_nullable() { "" } else { " not null" };
        // A name may contain line ends, but an error is one line.
        format!("'{}': {}{nulls}", field.name().escape_debug(), crate::type_name(field.data_type()))
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    #[test]
    fn accepts_equal_columns_and_names_the_differences() {
        let schema =
            |name: &str, data_type, nullable| Schema::new(vec![Field::new(name, data_type, nullable)]);
        let numbers = schema("a", DataType::Int32, true);
        assert_eq!(expect_schema(&numbers, &numbers), Ok(()));
        assert_eq!(expect_schema(&schema("a", DataType::Int32, false), &numbers), Ok(()));
        let others =
            [schema("a", DataType::Int32, false), schema("a", DataType::Int64, true), Schema::empty()];
        for other in others.iter().chain([&schema("b\n", DataType::Int32, true)]) {
            let error = expect_schema(&numbers, other).unwrap_err();
            let expected = format!("another schema: expected [{}], got ['a': int32]", columns(other));
            assert_eq!(error.message(), expected);
            assert!(!error.message().contains('\n'));
        }
        assert_eq!(columns(&others[0]), "'a': int32 not null");
    }
}
