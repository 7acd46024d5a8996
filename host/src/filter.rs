//! Filters: conditions on rows, which importers may use and the host applies.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use crossdock_arrays::filter::{self, Comparison, Literal, Operator};
use crossdock_arrays::{DeviceBatch, Projection};
use crossdock_kernel_library::{Threads, with_threads};
use crossdock_memory::Stream;
use crossdock_plugin_api::{self as api, Error as ApiError, Result as ApiResult};

use crate::column_name::ColumnName;
use crate::error::{Error, Result};
use crate::session::Session;

/// A condition on the rows of a table: the comparison of a column's values with a literal. A null
/// does not fulfil it.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    /// The column, or a field of nested structs.
    pub column: ColumnName,
    /// The comparison.
    pub operator: Operator,
    /// The literal. Numbers are compared exactly, whatever their types. NaN is rejected.
    pub literal: Literal,
}

impl Predicate {
    /// Parses a comparison such as `day >= 2024-02-29`: the name of a column, an operator, and text
    /// that is later parsed as a value of the column's type. Spaces around the operator are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::Usage`] if the text has no operator, or no name before it.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::usage(format!(
                "'{text}' is not a filter, expected a column, one of == != < <= > >= and a value"
            ))
        };
        let at = text.find(['=', '!', '<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at_checked(at).ok_or_else(wrong)?;
        let rest_of = |symbol: &str| {
            let rest = rest.strip_prefix(symbol)?;
            Some((Operator::from_symbol(symbol)?, rest))
        };
        // Operators of two letters come first, because "<" is the begin of "<=".
        let symbols = ["==", "!=", "<=", ">=", "<", ">", "="];
        let (operator, value) = symbols.into_iter().find_map(rest_of).ok_or_else(wrong)?;
        let name = name.trim();
        if name.is_empty() {
            return Err(wrong());
        }
        let literal = Literal::Unparsed(value.trim().to_owned());
        Ok(Self { column: name.into(), operator, literal })
    }
}

/// The conditions on the rows of a stream, for its schema.
pub(crate) struct Filter {
    predicates: Vec<filter::Predicate>,
    stream: Stream,
    threads: Arc<dyn Threads>,
}

/// A condition for the schema of a stream.
pub(crate) struct Condition {
    pub path: Vec<String>,
    predicate: filter::Predicate,
    data_type: DataType,
}

impl Condition {
    /// # Errors
    /// [`Error::Usage`] if the column at `path` does not exist, or if its values cannot be compared
    /// with the literal.
    pub fn new(schema: &Schema, path: &[String], predicate: &Predicate) -> Result<Self> {
        let usage = |error: ApiError| Error::usage(format!("the filter is invalid: {}", error.message()));
        Projection::new(schema, std::slice::from_ref(&path.to_vec())).map_err(usage)?;
        let (mut fields, mut indices, mut data_type) = (schema.fields(), Vec::new(), None);
        for name in path {
            let found = fields.iter().enumerate().find(|(_, field)| field.name() == name);
            let Some((index, field)) = found else { break };
            indices.push(index);
            data_type = Some(field.data_type());
            if let DataType::Struct(nested) = field.data_type() {
                fields = nested;
            }
        }
        let data_type = data_type.ok_or_else(|| Error::usage("the filter has a column without a name"))?;
        let comparison =
            Comparison::new(data_type, predicate.operator, &predicate.literal).map_err(|error| {
                Error::usage(format!(
                    "the filter is invalid: column '{}': {}",
                    path.join("."),
                    error.message()
                ))
            })?;
        let data_type = data_type.clone();
        let predicate = filter::Predicate { path: indices, comparison };
        Ok(Self { path: path.to_vec(), predicate, data_type })
    }

    /// Whether no row fulfils the condition.
    pub fn is_never(&self) -> bool {
        self.predicate.comparison == Comparison::Never
    }

    /// The condition for an importer; `None` if it is no comparison of values.
    pub fn for_importer(&self) -> Option<api::Predicate> {
        self.predicate.comparison.for_importer(self.path.clone(), &self.data_type)
    }
}

impl Filter {
    /// The filter of the given conditions; `None` if there are none.
    pub fn new(conditions: Vec<Condition>, session: &Session) -> Option<Self> {
        let predicates: Vec<_> = conditions.into_iter().map(|condition| condition.predicate).collect();
        let (stream, threads) = (session.stream().clone(), session.kernel_threads());
        (!predicates.is_empty()).then_some(Self { predicates, stream, threads })
    }

    /// The rows that fulfil all conditions; `None` if there are none.
    pub fn apply(&self, batch: &DeviceBatch) -> ApiResult<Option<DeviceBatch>> {
        with_threads(&self.threads, || filter::filter(batch, &self.predicates, &self.stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_operator_with_and_without_spaces() {
        for (text, name, operator, value) in [
            ("day >= 2024-02-29", "day", Operator::GreaterEqual, "2024-02-29"),
            ("a==1", "a", Operator::Equal, "1"),
            ("a = b=c", "a", Operator::Equal, "b=c"),
            ("a!=", "a", Operator::NotEqual, ""),
            ("a.b<-1", "a.b", Operator::Less, "-1"),
            ("a <= 1", "a", Operator::LessEqual, "1"),
            ("long name > x", "long name", Operator::Greater, "x"),
        ] {
            let literal = Literal::Unparsed(value.to_owned());
            let expected = Predicate { column: name.into(), operator, literal };
            assert_eq!(Predicate::parse(text).unwrap(), expected, "{text}");
        }
        for text in ["", "a", "a 1", "== 1", "a ! 1"] {
            let error = Predicate::parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a filter"), "{text}: {error}");
        }
    }
}
