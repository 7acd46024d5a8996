//! Infers the types of the fields of objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::csv::Kinds;
use crate::options::MAX_COLUMNS;
use crate::types::Types;

/// The type of the values that were seen so far.
#[derive(Debug, Default)]
pub enum Type {
    /// Only nulls.
    #[default]
    Unknown,
    /// Truth values.
    Boolean,
    /// Integers.
    Integer {
        /// Whether a number is negative.
        negative: bool,
        /// Whether a number exceeds the greatest 64-bit integer with a sign.
        large: bool,
    },
    /// Numbers.
    Float,
    /// Texts.
    Text(Kinds),
    /// Lists.
    List(Box<Type>),
    /// Objects.
    Struct(Struct),
}

/// The fields of objects, in the order in which they were seen.
#[derive(Debug, Default)]
pub struct Struct {
    fields: Vec<(String, Type)>,
    positions: HashMap<String, usize>,
}

impl Struct {
    /// The fields. A field with nulls only has the type null.
    pub fn fields(&self) -> Fields {
        self.fields.iter().map(|(name, seen)| Arc::new(Field::new(name, seen.data_type(), true))).collect()
    }

    /// The position of a field, which is added if it is new. `None` if there are too many fields.
    fn position(&mut self, name: &str) -> Option<usize> {
        if let Some(position) = self.positions.get(name) {
            return Some(*position);
        }
        let next = self.fields.len();
        if next == MAX_COLUMNS {
            return None;
        }
        self.positions.insert(name.to_string(), next);
        self.fields.push((name.to_string(), Type::Unknown));
        Some(next)
    }
}

impl Type {
    fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "null",
            Self::Boolean => "a truth value",
            Self::Integer { .. } | Self::Float => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Struct(_) => "an object",
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Unknown => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Integer { negative: false, large: true } => DataType::UInt64,
            Self::Integer { .. } => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text(kinds) => kinds.data_type(),
            Self::List(values) => DataType::List(Arc::new(Field::new("item", values.data_type(), true))),
            Self::Struct(seen) => DataType::Struct(seen.fields()),
        }
    }
}

/// Adds a record, which must be an object. Columns that have a type in `types` are not inferred.
///
/// # Errors
/// A description of the first value that is not JSON or that does not fit the type.
pub fn add(record: &str, to: &mut Struct, types: &Types) -> Result<(), String> {
    let (mut path, mut conflict) = (Vec::new(), None);
    let mut deserializer = serde_json::Deserializer::from_str(record);
    let place = Place { path: &mut path, conflict: &mut conflict };
    let seed = Object { seen: to, place, types: Some(types) };
    let added = deserializer.deserialize_map(seed).and_then(|()| deserializer.end());
    added.map_err(|error| {
        conflict.unwrap_or_else(|| {
            let text = error.to_string();
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            format!("byte {}: {what}", error.column())
        })
    })
}

/// Where a value is, and the description of a value that does not fit.
struct Place<'a> {
    path: &'a mut Vec<String>,
    conflict: &'a mut Option<String>,
}

impl Place<'_> {
    fn reborrow(&mut self) -> Place<'_> {
        Place { path: self.path, conflict: self.conflict }
    }

    fn fail<E: serde::de::Error>(&mut self, what: impl fmt::Display) -> E {
        let text = format!("column '{}': {what}", self.path.join("."));
        *self.conflict = Some(text.clone());
        E::custom(text)
    }
}

struct Value<'a> {
    seen: &'a mut Type,
    place: Place<'a>,
}

impl Value<'_> {
    /// Adds a value of another type than null.
    fn set<E: serde::de::Error>(mut self, new: Type) -> Result<(), E> {
        let merged = match (&mut *self.seen, new) {
            (Type::Unknown, new) => new,
            (Type::Boolean, Type::Boolean) => Type::Boolean,
            (
                Type::Integer { negative, large },
                Type::Integer { negative: more_negative, large: more_large },
            ) => {
                let (negative, large) = (*negative | more_negative, *large | more_large);
                if negative && large {
                    return Err(self
                        .place
                        .fail("no integer type stores all numbers; set its type with the option types"));
                }
                Type::Integer { negative, large }
            }
            (Type::Integer { .. } | Type::Float, Type::Integer { .. } | Type::Float) => Type::Float,
            (seen, new) => {
                let text =
                    format!("{} follows {}; set its type with the option types", new.name(), seen.name());
                return Err(self.place.fail(text));
            }
        };
        *self.seen = merged;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.set(Type::Boolean)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.set(Type::Integer { negative: value < 0, large: false })
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.set(Type::Integer { negative: false, large: i64::try_from(value).is_err() })
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.set(Type::Float)
    }

    fn visit_str<E: serde::de::Error>(mut self, text: &str) -> Result<(), E> {
        match &mut *self.seen {
            Type::Unknown => {
                let mut kinds = Kinds::default();
                kinds.add_json(text);
                *self.seen = Type::Text(kinds);
                Ok(())
            }
            Type::Text(kinds) => {
                kinds.add_json(text);
                Ok(())
            }
            other => {
                let text = format!("a text follows {}; set its type with the option types", other.name());
                Err(self.place.fail(text))
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        if let Type::Unknown = self.seen {
            *self.seen = Type::List(Box::default());
        }
        let Type::List(values) = &mut *self.seen else {
            let text = format!("a list follows {}; set its type with the option types", self.seen.name());
            return Err(self.place.fail(text));
        };
        while list.next_element_seed(Value { seen: values, place: self.place.reborrow() })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        if let Type::Unknown = self.seen {
            *self.seen = Type::Struct(Struct::default());
        }
        let Type::Struct(seen) = &mut *self.seen else {
            let text = format!("an object follows {}; set its type with the option types", self.seen.name());
            return Err(self.place.fail(text));
        };
        Object { seen, place: self.place.reborrow(), types: None }.visit_map(map)
    }
}

struct Object<'a> {
    seen: &'a mut Struct,
    place: Place<'a>,
    /// The types of columns that are not inferred, if the object is a record.
    types: Option<&'a Types>,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { seen, mut place, types } = self;
        while let Some(name) = map.next_key::<String>()? {
            let Some(position) = seen.position(&name) else {
                return Err(place.fail(format_args!("the object has more than {MAX_COLUMNS} fields")));
            };
            if types.is_some_and(|types| types.contains(&name)) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            place.path.push(name);
            let Some((_, of_field)) = seen.fields.get_mut(position) else {
                return Err(A::Error::custom("a field was not found"));
            };
            map.next_value_seed(Value { seen: of_field, place: place.reborrow() })?;
            place.path.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(records: &[&str]) -> Result<Fields, String> {
        let mut seen = Struct::default();
        records.iter().try_for_each(|record| add(record, &mut seen, &Types::default()))?;
        Ok(seen.fields())
    }

    #[test]
    fn nested_types_are_inferred_in_the_order_of_the_fields() {
        let fields = inferred(&[
            r#"{"z": 1, "a": null, "s": {"x": [true]}, "big": 18446744073709551615}"#,
            r#"{"z": 1.5, "t": "2013-01-01T10:00:00Z", "s": {"y": "d"}, "l": [[1], []]}"#,
        ]);
        let texts: Vec<_> =
            fields.unwrap().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
        let expected = [
            "z Float64",
            "a Null",
            "s Struct(\"x\": List(Boolean), \"y\": Utf8)",
            "big UInt64",
            "t Timestamp(s, \"UTC\")",
            "l List(List(Int64))",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn conflicts_name_the_column_and_errors_the_byte() {
        let conflict = |records: &[&str]| inferred(records).unwrap_err();
        let error = conflict(&[r#"{"a": {"b": 1}}"#, r#"{"a": {"b": "x"}}"#]);
        assert_eq!(error, "column 'a.b': a text follows a number; set its type with the option types");
        assert_eq!(conflict(&[r#"{"a": 1} x"#]), "byte 10: trailing characters");
        assert!(conflict(&["[1]"]).contains("expected an object"));
        let error = conflict(&[r#"{"a": -1}"#, r#"{"a": 18446744073709551615}"#]);
        assert!(error.contains("no integer type"), "{error}");
    }
}
