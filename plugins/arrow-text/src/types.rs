//! The option `types`, which sets the types of columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::parse_type;
use crossdock_plugin_api::{Error, Options, Result};

/// The types of some columns, in the order of the option.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Types(Vec<(String, DataType)>);

impl Types {
    /// Reads the option `types`: pairs of a name and a type, such as `id=int64, at=timestamp[ms]`.
    ///
    /// # Errors
    /// Invalid argument if a pair or a type is invalid, or if a column occurs twice.
    pub fn read(options: &Options) -> Result<Self> {
        let Some(text) = options.get("types") else { return Ok(Self::default()) };
        let mut types: Vec<(String, DataType)> = Vec::new();
        for pair in split(text) {
            let pair = pair.trim();
            let invalid = |what: String| {
                Error::invalid_argument(format!("the option types has '{pair}', expected {what}"))
            };
            if !pair.contains('=') {
                return Err(invalid("a column and a type, as in id=int64".into()));
            }
            let (name, data_type) = column_and_type(pair).ok_or_else(|| {
                invalid("a type, such as int64, string, timestamp[ms] or decimal128(10, 2)".into())
            })?;
            let name = unquoted(name);
            if types.iter().any(|(other, _)| *other == name) {
                return Err(invalid("each column once".into()));
            }
            types.push((name, data_type));
        }
        Ok(Self(types))
    }

    /// Whether a column has a type.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// Replaces types of columns.
    ///
    /// # Errors
    /// Invalid argument if a column does not exist, unless `appends`; then it is appended.
    pub fn apply(&self, schema: Schema, appends: bool) -> Result<Schema> {
        if self.0.is_empty() {
            return Ok(schema);
        }
        let mut fields = schema.fields().to_vec();
        for (name, data_type) in &self.0 {
            let new = Arc::new(Field::new(name, data_type.clone(), true));
            let mut found = false;
            for field in fields.iter_mut().filter(|field| field.name() == name) {
                *field = new.clone();
                found = true;
            }
            match found {
                true => {}
                false if appends => fields.push(new),
                false => {
                    let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
                    return Err(Error::invalid_argument(format!(
                        "the option types has the column '{name}', which does not exist; the columns are: {}",
                        names.join(", ")
                    )));
                }
            }
        }
        Ok(Schema::new(fields))
    }
}

/// Splits at commas that are not in quotes, and not in brackets of a type.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut in_quotes, mut in_type) = (0i32, false, false);
    text.split(move |character| {
        match character {
            '"' => in_quotes = !in_quotes,
            _ if in_quotes => {}
            '=' => in_type = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            // Names of columns may contain these characters.
            '<' | '[' if in_type => depth += 1,
            '>' | ']' if in_type => depth -= 1,
            ',' if depth == 0 => {
                in_type = false;
                return true;
            }
            _ => {}
        }
        false
    })
}

/// Splits a pair at the first `=` that is followed by a type, because the name of a column and a
/// type may contain this character, too.
fn column_and_type(pair: &str) -> Option<(&str, DataType)> {
    pair.match_indices('=').find_map(|(at, _)| {
        let (name, data_type) = (pair.get(..at)?, pair.get(at + 1..)?);
        Some((name.trim(), parse(data_type.trim())?))
    })
}

/// The name of a column, which can be in quotes, with doubled quotes in it.
fn unquoted(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_owned(),
    }
}

/// Reads a type as Crossdock prints it, or in the notation of arrow-rs.
fn parse(text: &str) -> Option<DataType> {
    if let Ok(data_type) = text.parse() {
        return Some(data_type);
    }
    match text.to_ascii_lowercase().as_str() {
        "text" => Some(DataType::Utf8),
        "date" => Some(DataType::Date32),
        _ => parse_type(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::TimeUnit;

    fn read(text: &str) -> Result<Types> {
        Types::read(&Options::new().with("types", text))
    }

    #[test]
    fn types_are_pairs_of_a_name_and_a_type() {
        let types = read(
            "a=int8, b c=Decimal128(10, 2),d=e=Timestamp(ms),<[=timestamp[s, tz=UTC],\
             f=dictionary<values=string, indices=int32, ordered=0>,g=struct<x: int8, y: float>,\
             \"h, (\"\"=int8\" = int16",
        )
        .unwrap();
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let fields = vec![Field::new("x", DataType::Int8, true), Field::new("y", DataType::Float32, true)];
        let expected = [
            ("a".to_string(), DataType::Int8),
            ("b c".to_string(), DataType::Decimal128(10, 2)),
            ("d=e".to_string(), DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("<[".to_string(), DataType::Timestamp(TimeUnit::Second, Some("UTC".into()))),
            ("f".to_string(), dictionary),
            ("g".to_string(), DataType::Struct(fields.into())),
            ("h, (\"=int8".to_string(), DataType::Int16),
        ];
        assert_eq!(types.0, expected);
        for bad in ["a", "a=", "a=int9", "a=int8,a=int16", "a=int8,\"a\"=int16", ""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_columns_are_appended_or_rejected() {
        let schema = Schema::new(vec![Field::new("a", DataType::Utf8, true)]);
        let types = read("b=date").unwrap();
        let names = |schema: &Schema| schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
        assert_eq!(names(&types.apply(schema.clone(), true).unwrap()), ["a", "b"]);
        assert!(types.apply(schema, false).unwrap_err().message().contains("the columns are: a"));
    }
}
