//! Names of columns.

use arrow_schema::SchemaRef;
use crossdock_arrays::Projection;

/// The name of a column, or of a field of nested structs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnName {
    /// Names from the top-level column down.
    Path(Vec<String>),
    /// The names of a path, separated by dots. If the table does not have this path, the top-level
    /// column that has exactly this name.
    Dotted(String),
}

impl ColumnName {
    pub(crate) fn path(&self) -> Vec<String> {
        match self {
            Self::Path(path) => path.clone(),
            Self::Dotted(name) => name.split('.').map(str::to_owned).collect(),
        }
    }

    /// Returns the path of the column in `schema`. If the column does not exist, the result is a
    /// path whose error names the column as the caller did.
    pub(crate) fn resolve(&self, schema: &SchemaRef) -> Vec<String> {
        let path = self.path();
        match self {
            Self::Dotted(name) if path.len() > 1 => {
                let is_missing = Projection::new(schema, std::slice::from_ref(&path)).is_err();
                let has_name = schema.fields().iter().any(|field| field.name() == name);
                let first_is_missing = schema.fields().iter().all(|field| Some(field.name()) != path.first());
                if is_missing && (has_name || first_is_missing) { vec![name.clone()] } else { path }
            }
            _ => path,
        }
    }
}

impl From<&str> for ColumnName {
    fn from(name: &str) -> Self {
        Self::Dotted(name.to_owned())
    }
}

impl From<String> for ColumnName {
    fn from(name: String) -> Self {
        Self::Dotted(name)
    }
}
