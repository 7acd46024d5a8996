//! The option `types`, which sets the types of columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_plugin_api::{Error, Options, Result};

/// The types of some columns, in the order of the option.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Types(Vec<(String, DataType)>);

impl Types {
    /// Reads the option `types`: pairs of a name and a type, such as `id=Int64, at=Timestamp(ms)`.
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
            let (name, data_type) =
                pair.rsplit_once('=').ok_or_else(|| invalid("a column and a type, as in id=Int64".into()))?;
            let (name, data_type) = (name.trim(), data_type.trim());
            if types.iter().any(|(other, _)| other == name) {
                return Err(invalid("each column once".into()));
            }
            let data_type = parse(data_type).ok_or_else(|| {
                invalid("a type, such as Int64, Utf8, Timestamp(ms) or Decimal128(10, 2)".into())
            })?;
            types.push((name.to_string(), data_type));
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

/// Splits at commas that are not in parentheses or quotes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut in_quotes) = (0i32, false);
    text.split(move |character| {
        match character {
            '"' => in_quotes = !in_quotes,
            _ if in_quotes => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' => return depth == 0,
            _ => {}
        }
        false
    })
}

/// Reads a type in the notation of arrow-rs, or the name of a simple type in any case.
fn parse(text: &str) -> Option<DataType> {
    if let Ok(data_type) = text.parse() {
        return Some(data_type);
    }
    Some(match text.to_ascii_lowercase().as_str() {
        "bool" | "boolean" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float16" => DataType::Float16,
        "float32" => DataType::Float32,
        "float64" | "double" => DataType::Float64,
        "utf8" | "string" | "text" => DataType::Utf8,
        "binary" => DataType::Binary,
        "date" | "date32" => DataType::Date32,
        _ => return None,
    })
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
        let types = read("a=int8, b c=Decimal128(10, 2),d=e=Timestamp(ms)").unwrap();
        let expected = [
            ("a".to_string(), DataType::Int8),
            ("b c".to_string(), DataType::Decimal128(10, 2)),
            ("d=e".to_string(), DataType::Timestamp(TimeUnit::Millisecond, None)),
        ];
        assert_eq!(types.0, expected);
        for bad in ["a", "a=", "a=int9", "a=int8,a=int16", ""] {
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
