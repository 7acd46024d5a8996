//! The extension type `crossdock.number`: numbers for which Arrow has no type of its own.
//!
//! A number is stored as `FixedSizeBinary` of its width, in little-endian order. A complex number
//! is its real part, followed by its imaginary part. The metadata of the extension type is JSON
//! that names the type of the number: `{"type":"bfloat16"}`.
//!
//! In a tensor of several dimensions, the item of the list has the extension type. Some libraries
//! drop the metadata of an item when they read `arrow.fixed_shape_tensor`. Therefore the field of
//! the column has the same JSON under the key `crossdock.number`.

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Metadata};

/// The name of the extension type, and the key in the metadata of a column of lists.
pub const NUMBER_EXTENSION: &str = "crossdock.number";

#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: &'static str,
    /// The number of bytes.
    width: u8,
    /// The type code in DLPack (`DLDataTypeCode`).
    dlpack_code: u8,
}

const fn row(name: &'static str, width: u8, dlpack_code: u8) -> Row {
    Row { name, width, dlpack_code }
}

const COMPLEX: u8 = 5;

static TABLE: [Row; 11] = [
    row("bfloat16", 2, 4),
    row("float8_e3m4", 1, 7),
    row("float8_e4m3", 1, 8),
    row("float8_e4m3b11fnuz", 1, 9),
    row("float8_e4m3fn", 1, 10),
    row("float8_e4m3fnuz", 1, 11),
    row("float8_e5m2", 1, 12),
    row("float8_e5m2fnuz", 1, 13),
    row("float8_e8m0fnu", 1, 14),
    row("complex64", 8, COMPLEX),
    row("complex128", 16, COMPLEX),
];

/// A type of numbers that is stored as `crossdock.number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionNumber(&'static Row);

impl ExtensionNumber {
    /// All types.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self)
    }

    /// The type with a name, such as `bfloat16`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|number| number.name() == name)
    }

    /// The type with a type code and a number of bits in DLPack.
    pub fn from_dlpack(code: u8, bits: u8) -> Option<Self> {
        Self::all().find(|number| (number.dlpack_code(), number.bits()) == (code, bits))
    }

    /// The name, such as `bfloat16`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The number of bytes.
    pub fn width(self) -> usize {
        usize::from(self.0.width)
    }

    /// The number of bytes of each part: a complex number has two parts.
    pub fn part_width(self) -> usize {
        if self.is_complex() { self.width() / 2 } else { self.width() }
    }

    /// Whether a number has a real and an imaginary part.
    pub fn is_complex(self) -> bool {
        self.0.dlpack_code == COMPLEX
    }

    /// The number of bits.
    pub fn bits(self) -> u8 {
        self.0.width * 8
    }

    /// The type code in DLPack.
    pub fn dlpack_code(self) -> u8 {
        self.0.dlpack_code
    }

    /// The type in which Arrow stores the numbers.
    pub fn storage(self) -> DataType {
        DataType::FixedSizeBinary(self.0.width.into())
    }

    /// A field of such numbers.
    pub fn field(self, name: &str, nullable: bool) -> Field {
        Field::new(name, self.storage(), nullable).with_metadata(Metadata::from([
            (EXTENSION_TYPE_NAME_KEY.to_string(), NUMBER_EXTENSION.to_string()),
            (EXTENSION_TYPE_METADATA_KEY.to_string(), self.json()),
        ]))
    }

    /// Adds the type to the metadata of a column whose rows are lists of such numbers.
    pub fn add_to_column(self, metadata: &mut Metadata) {
        metadata.insert(NUMBER_EXTENSION, self.json());
    }

    fn json(self) -> String {
        format!("{{\"type\":\"{}\"}}", self.name())
    }

    /// The type of the numbers of a field, whose values may be lists of numbers. `None` if the
    /// field has no such numbers.
    ///
    /// # Errors
    /// Returns what was expected and found, if the metadata is invalid, names an unknown type, or
    /// does not match the storage.
    pub fn of(field: &Field) -> Result<Option<Self>, String> {
        let mut values = field;
        while let DataType::FixedSizeList(item, _) = values.data_type() {
            values = item;
        }
        let json = match values.extension_type_name() {
            Some(NUMBER_EXTENSION) => Some(values.extension_type_metadata().unwrap_or("")),
            _ => None,
        };
        let of_column = field.metadata().get(NUMBER_EXTENSION).filter(|_| !std::ptr::eq(values, field));
        let number = json.map(|json| Self::parse(json, values.data_type())).transpose()?;
        let repeated = of_column.map(|json| Self::parse(json, values.data_type())).transpose()?;
        match (number, repeated) {
            (Some(number), Some(repeated)) if number != repeated => Err(format!(
                "the item of {NUMBER_EXTENSION} is {}, but the metadata of the column names {}: expected the same type",
                number.name(),
                repeated.name()
            )),
            _ => Ok(number.or(repeated)),
        }
    }

    fn parse(json: &str, storage: &DataType) -> Result<Self, String> {
        let name = name_in(json).ok_or_else(|| {
            format!("the metadata of {NUMBER_EXTENSION} is {json:?}, expected {{\"type\":NAME}}")
        })?;
        let number = Self::from_name(name).ok_or_else(|| {
            let known: Vec<_> = Self::all().map(Self::name).collect();
            format!("the type of {NUMBER_EXTENSION} is '{name}', expected one of {}", known.join(", "))
        })?;
        if number.storage() == *storage {
            return Ok(number);
        }
        Err(format!(
            "the storage of {NUMBER_EXTENSION} {} is {}, expected {}",
            number.name(),
            crate::type_name(storage),
            crate::type_name(&number.storage())
        ))
    }
}

/// Returns NAME if the JSON is `{"type":NAME}`. No known name needs an escape sequence.
fn name_in(json: &str) -> Option<&str> {
    let (key, name) = json.trim().strip_prefix('{')?.strip_suffix('}')?.split_once(':')?;
    if unquoted(key)? == "type" { unquoted(name) } else { None }
}

fn unquoted(text: &str) -> Option<&str> {
    text.trim().strip_prefix('"')?.strip_suffix('"').filter(|text| !text.contains(['"', '\\']))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn with(data_type: DataType, pairs: &[(&str, &str)]) -> Field {
        Field::new("x", data_type, true).with_metadata(Metadata::from_iter(pairs.iter().copied()))
    }

    fn extension(json: &str) -> [(&str, &str); 2] {
        [(EXTENSION_TYPE_NAME_KEY, NUMBER_EXTENSION), (EXTENSION_TYPE_METADATA_KEY, json)]
    }

    fn list(item: Field) -> DataType {
        DataType::FixedSizeList(Arc::new(item), 3)
    }

    #[test]
    fn every_type_is_found_by_its_field_name_and_dlpack_type() {
        for number in ExtensionNumber::all() {
            assert_eq!(ExtensionNumber::of(&number.field("x", false)), Ok(Some(number)));
            assert_eq!(ExtensionNumber::from_name(number.name()), Some(number));
            let dlpack = ExtensionNumber::from_dlpack(number.dlpack_code(), number.bits());
            assert_eq!(dlpack, Some(number));
            assert_eq!(number.part_width() * if number.is_complex() { 2 } else { 1 }, number.width());
        }
        assert_eq!(ExtensionNumber::from_dlpack(5, 32), None);
        assert_eq!(ExtensionNumber::from_dlpack(2, 16), None);
    }

    #[test]
    fn type_of_lists_is_that_of_the_item_or_of_the_column() {
        let bf16 = ExtensionNumber::from_name("bfloat16").unwrap();
        let json = r#"{ "type": "bfloat16" }"#;
        let in_item = list(bf16.field("item", true));
        let lost = list(Field::new("item", bf16.storage(), true));
        assert_eq!(ExtensionNumber::of(&with(in_item.clone(), &[])), Ok(Some(bf16)));
        assert_eq!(ExtensionNumber::of(&with(list(with(in_item.clone(), &[])), &[])), Ok(Some(bf16)));
        assert_eq!(ExtensionNumber::of(&with(lost.clone(), &[])), Ok(None));
        assert_eq!(ExtensionNumber::of(&with(lost, &[(NUMBER_EXTENSION, json)])), Ok(Some(bf16)));
        assert_eq!(ExtensionNumber::of(&with(in_item.clone(), &[(NUMBER_EXTENSION, json)])), Ok(Some(bf16)));
        let number = list(Field::new("item", DataType::Int16, true));
        let error = ExtensionNumber::of(&with(number, &[(NUMBER_EXTENSION, json)])).unwrap_err();
        assert!(error.contains("is int16, expected fixed_size_binary[2]"), "{error}");
    }

    #[test]
    fn rejects_metadata_and_storage_that_do_not_match() {
        let two = DataType::FixedSizeBinary(2);
        for (data_type, json, part) in [
            (&two, "", r#"is "", expected {"type":NAME}"#),
            (&two, "bfloat16", "expected {\"type\":NAME}"),
            (&two, "{}", "expected {\"type\":NAME}"),
            (&two, r#"{"type":2}"#, "expected {\"type\":NAME}"),
            (&two, r#"{"type":"}"#, "expected {\"type\":NAME}"),
            (&two, r#"{"name":"bfloat16"}"#, "expected {\"type\":NAME}"),
            (&two, r#"{"type":"bfloat16","endian":"big"}"#, "expected {\"type\":NAME}"),
            (
                &two,
                r#"{"type":"float4_e2m1fn"}"#,
                "is 'float4_e2m1fn', expected one of bfloat16, float8_e3m4",
            ),
            (
                &two,
                r#"{"type":"complex64"}"#,
                "complex64 is fixed_size_binary[2], expected fixed_size_binary[8]",
            ),
            (&DataType::Int16, r#"{"type":"bfloat16"}"#, "bfloat16 is int16, expected fixed_size_binary[2]"),
        ] {
            let error = ExtensionNumber::of(&with(data_type.clone(), &extension(json))).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
        let eight = ExtensionNumber::from_name("float8_e5m2").unwrap().field("item", true);
        let json = r#"{"type":"float8_e4m3"}"#;
        let error = ExtensionNumber::of(&with(list(eight), &[(NUMBER_EXTENSION, json)])).unwrap_err();
        assert!(error.contains("is float8_e5m2, but") && error.contains("names float8_e4m3"), "{error}");
    }
}
