//! Tests of projections: columns and nested fields by name.

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::Projection;

fn schema() -> Schema {
    let inner = DataType::Struct(vec![Field::new("x", DataType::Int8, true)].into());
    let outer = vec![Field::new("a", inner, true), Field::new("b", DataType::Utf8, false)];
    Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("point", DataType::Struct(outer.into()), true),
        Field::new("twice", DataType::Int8, true),
        Field::new("twice", DataType::Int8, true),
    ])
}

fn paths(paths: &[&[&str]]) -> Vec<Vec<String>> {
    paths.iter().map(|path| path.iter().map(ToString::to_string).collect()).collect()
}

/// The chosen columns and fields, as text.
fn chosen(of: &[&[&str]]) -> String {
    let schema = Projection::new(&schema(), &paths(of)).unwrap().schema(&schema()).unwrap();
    let fields = schema.fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type()));
    fields.collect::<Vec<_>>().join("; ").replace(", ", ",").replace("\"", "")
}

#[test]
fn keeps_the_order_of_the_schema_and_only_the_chosen_fields() {
    assert_eq!(chosen(&[]), "");
    assert_eq!(chosen(&[&["point"], &["id"]]).matches("id: Int64; point: Struct").count(), 1);
    let nested = chosen(&[&["point", "a", "x"]]);
    assert!(nested.contains("x") && !nested.contains('b'), "{nested}");
    assert_eq!(chosen(&[&["point", "b"], &["point", "a"]]), chosen(&[&["point"]]));
    assert_eq!(chosen(&[&["point", "b"], &["point"]]), chosen(&[&["point"]]));
    assert_eq!(chosen(&[&["point"], &["point", "b"]]), chosen(&[&["point"]]));
}

#[test]
fn error_names_the_missing_or_ambiguous_column() {
    for (path, message) in [
        (&["no"][..], "there is no column 'no'; the columns are: id, point, twice, twice"),
        (&["point", "z"], "there is no column 'point.z'; the columns are: a, b"),
        (
            &["point", "b", "x"],
            "the column 'point.b' has the type string, expected a struct with a field 'x'",
        ),
        (&["twice"], "column 'twice': expected a unique name, but several columns have it"),
    ] {
        let error = Projection::new(&schema(), &paths(&[path])).err().unwrap();
        assert_eq!(error.message(), message);
    }
    let repeated = Projection::new(&schema(), &paths(&[&["point"], &["point", "z"]]));
    assert!(repeated.err().unwrap().message().contains("point.z"), "also within a whole column");
}
