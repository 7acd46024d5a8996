//! The element types of tensors, and their names in each format.

use arrow_schema::{DataType, TimeUnit};
use crossdock_arrays::ExtensionNumber;

/// An element type that Arrow supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A boolean that is stored as one byte.
    Bool,
    /// An integer or a float.
    Number(DataType),
    /// A number of the extension type `crossdock.number`.
    Extension(ExtensionNumber),
    /// A timestamp without a time zone, or a duration: 8 bytes. NumPy's NaT is the least number.
    Time(DataType),
    /// A number of days since 1970-01-01: 8 bytes in NumPy, 4 bytes in Arrow. NumPy's NaT is the
    /// least number of 8 bytes.
    Days,
    /// A string of this number of bytes, padded with zeros.
    Bytes(i32),
    /// A string of this number of code points, 4 bytes each, padded with zeros.
    Text(u32),
}

/// The types that all formats store as the same bytes: the name in safetensors, the kind and width
/// in bytes in NumPy, and the type in Arrow.
const NUMBERS: [(&str, char, usize, DataType); 11] = [
    ("F64", 'f', 8, DataType::Float64),
    ("F32", 'f', 4, DataType::Float32),
    ("F16", 'f', 2, DataType::Float16),
    ("I64", 'i', 8, DataType::Int64),
    ("I32", 'i', 4, DataType::Int32),
    ("I16", 'i', 2, DataType::Int16),
    ("I8", 'i', 1, DataType::Int8),
    ("U64", 'u', 8, DataType::UInt64),
    ("U32", 'u', 4, DataType::UInt32),
    ("U16", 'u', 2, DataType::UInt16),
    ("U8", 'u', 1, DataType::UInt8),
];

/// The numbers of the extension type that safetensors has: the name in safetensors, and the name of
/// the type.
const EXTENSION_NUMBERS: [(&str, &str); 7] = [
    ("BF16", "bfloat16"),
    ("F8_E4M3", "float8_e4m3fn"),
    ("F8_E4M3FNUZ", "float8_e4m3fnuz"),
    ("F8_E5M2", "float8_e5m2"),
    ("F8_E5M2FNUZ", "float8_e5m2fnuz"),
    ("F8_E8M0", "float8_e8m0fnu"),
    ("C64", "complex64"),
];

const UNITS: [(&str, TimeUnit); 4] = [
    ("s", TimeUnit::Second),
    ("ms", TimeUnit::Millisecond),
    ("us", TimeUnit::Microsecond),
    ("ns", TimeUnit::Nanosecond),
];

impl Element {
    /// The number of bytes of an element in a file.
    pub fn width(&self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Number(data_type) => data_type.primitive_width().unwrap_or(1),
            Self::Extension(number) => number.width(),
            Self::Time(_) | Self::Days => 8,
            Self::Bytes(n) => usize::try_from(*n).unwrap_or(0),
            Self::Text(n) => *n as usize * 4,
        }
    }

    /// Whether NumPy's NaT is a value of the type. NaT is null in Arrow.
    pub fn has_nat(&self) -> bool {
        matches!(self, Self::Time(_) | Self::Days)
    }

    /// Whether the elements have another form in Arrow than in a file.
    pub fn is_decoded(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Days)
    }

    /// The alignment in bytes that programs require for the elements. It is also the number of
    /// bytes that are in big-endian or little-endian order.
    pub fn alignment(&self) -> usize {
        match self {
            Self::Bytes(_) => 1,
            Self::Text(_) => 4,
            Self::Extension(number) => number.part_width(),
            other => other.width(),
        }
    }

    /// The type of the values in Arrow.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Int8,
            Self::Number(data_type) | Self::Time(data_type) => data_type.clone(),
            Self::Extension(number) => number.storage(),
            Self::Days => DataType::Date32,
            Self::Bytes(n) => DataType::FixedSizeBinary(*n),
            Self::Text(_) => DataType::Utf8,
        }
    }

    /// The element type that stores the values of an Arrow type. `None` if there is none.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Timestamp(_, None) | DataType::Duration(_) => Some(Self::Time(data_type.clone())),
            DataType::Date32 => Some(Self::Days),
            DataType::FixedSizeBinary(n @ 1..) => Some(Self::Bytes(*n)),
            _ => NUMBERS.iter().any(|row| row.3 == *data_type).then(|| Self::Number(data_type.clone())),
        }
    }

    /// The element type with a name of safetensors.
    ///
    /// # Errors
    /// Returns the reason, and what to do instead, if Arrow does not support the type.
    pub fn from_safetensors(name: &str) -> Result<Self, String> {
        if name == "BOOL" {
            return Ok(Self::Bool);
        }
        if let Some(row) = NUMBERS.iter().find(|row| row.0 == name) {
            return Ok(Self::Number(row.3.clone()));
        }
        let extension = EXTENSION_NUMBERS.iter().find(|row| row.0 == name);
        if let Some(number) = extension.and_then(|row| ExtensionNumber::from_name(row.1)) {
            return Ok(Self::Extension(number));
        }
        if ["F6_", "F4"].iter().any(|prefix| name.starts_with(prefix)) {
            return Err(format!(
                "type {name}: several elements share a byte, and Arrow has no such type: store the tensor as F32, which \
                 has all of its values, or the bytes as U8"
            ));
        }
        let names = NUMBERS.iter().map(|row| row.0).chain(EXTENSION_NUMBERS.iter().map(|row| row.0));
        Err(format!("type {name}: unknown, expected BOOL, {}", names.collect::<Vec<_>>().join(", ")))
    }

    /// The name in safetensors. `None` if safetensors does not have the type.
    pub fn safetensors_name(&self) -> Option<&'static str> {
        match self {
            Self::Bool => Some("BOOL"),
            Self::Number(data_type) => NUMBERS.iter().find(|row| row.3 == *data_type).map(|row| row.0),
            Self::Extension(number) => {
                EXTENSION_NUMBERS.iter().find(|row| row.1 == number.name()).map(|row| row.0)
            }
            _ => None,
        }
    }

    /// The element type with a type string of NumPy without its byte order, such as `f8` or
    /// `M8[ns]`.
    ///
    /// # Errors
    /// Returns the reason if Arrow does not support the type, or if the text is not a type string.
    pub fn from_numpy(text: &str) -> Result<Self, String> {
        let (head, unit) = match text.split_once('[') {
            Some((head, rest)) => match rest.strip_suffix(']') {
                Some(unit) => (head, Some(unit)),
                None => return Err("it is not a type string of NumPy".to_owned()),
            },
            None => (text, None),
        };
        let mut digits = head.chars();
        let kind = digits.next().unwrap_or(' ');
        let size = digits.as_str();
        let size = match (size.is_empty(), size.bytes().all(|byte| byte.is_ascii_digit())) {
            (true, _) => None,
            (false, true) => size.parse::<u32>().ok(),
            (false, false) => return Err("it is not a type string of NumPy".to_owned()),
        };
        match (kind, size, unit) {
            ('b', Some(1), None) => Ok(Self::Bool),
            ('f' | 'i' | 'u', Some(width), None) => NUMBERS
                .iter()
                .find(|row| row.1 == kind && row.2 == width as usize)
                .map(|row| Self::Number(row.3.clone()))
                .ok_or_else(|| "Arrow has no such type: cast the array first".to_owned()),
            ('M' | 'm', Some(8), unit) => time(kind, unit.unwrap_or("generic")),
            ('S', Some(width), None) => match i32::try_from(width) {
                Ok(width @ 1..) => Ok(Self::Bytes(width)),
                _ => Err(format!("the strings have {width} bytes, expected 1 to {}", i32::MAX)),
            },
            ('U', Some(n @ 1..=MAX_CHARS), None) => Ok(Self::Text(n)),
            ('U', Some(n), None) => {
                Err(format!("the strings have {n} characters, expected 1 to {MAX_CHARS}"))
            }
            ('c', Some(width), None) => match width {
                8 => ExtensionNumber::from_name("complex64"),
                16 => ExtensionNumber::from_name("complex128"),
                _ => None,
            }
            .map(Self::Extension)
            .ok_or_else(|| "expected complex64 or complex128: cast the array first".to_owned()),
            ('O', ..) => Err("it contains Python objects (pickle), which are never read".to_owned()),
            ('V', ..) => Err("it contains raw or structured data: store its fields separately".to_owned()),
            _ => Err("it is not a type string of NumPy".to_owned()),
        }
    }

    /// The type string in NumPy, with the byte order. `None` if NumPy does not have the type.
    pub fn numpy_name(&self) -> Option<String> {
        let time = |kind: char, unit: &TimeUnit| {
            let unit = UNITS.iter().find(|row| row.1 == *unit)?.0;
            Some(format!("<{kind}8[{unit}]"))
        };
        match self {
            Self::Bool => Some("|b1".to_owned()),
            Self::Number(data_type) => {
                let row = NUMBERS.iter().find(|row| row.3 == *data_type)?;
                let order = if row.2 == 1 { '|' } else { '<' };
                Some(format!("{order}{}{}", row.1, row.2))
            }
            Self::Extension(number) => number.is_complex().then(|| format!("<c{}", number.width())),
            Self::Time(DataType::Timestamp(unit, _)) => time('M', unit),
            Self::Time(DataType::Duration(unit)) => time('m', unit),
            Self::Time(_) => None,
            Self::Days => Some("<M8[D]".to_owned()),
            Self::Bytes(n) => Some(format!("|S{n}")),
            Self::Text(n) => Some(format!("<U{n}")),
        }
    }
}

/// The maximum number of code points of a string.
const MAX_CHARS: u32 = 1 << 28;

fn time(kind: char, unit: &str) -> Result<Element, String> {
    let name = if kind == 'M' { "datetime64" } else { "timedelta64" };
    if (kind, unit) == ('M', "D") {
        return Ok(Element::Days);
    }
    let Some((_, unit)) = UNITS.iter().find(|row| row.0 == unit) else {
        return Err(match (kind, unit.trim_start_matches(|c: char| c.is_ascii_digit())) {
            (_, "generic") => format!("{name} has no unit here: cast the array to {name}[s] first"),
            ('m', "Y" | "M") => format!(
                "Arrow has no {name}[{unit}], because months and years have different lengths: store the numbers \
                 (array.view('i8')) instead"
            ),
            ('M', "Y" | "M" | "W" | "D") => {
                format!("Arrow has no {name}[{unit}]: cast the array to {name}[D] or {name}[s] first")
            }
            (_, "ps" | "fs" | "as") => {
                format!(
                    "Arrow has no {name}[{unit}]: cast the array to {name}[ns] first, which rounds the values"
                )
            }
            (_, "W" | "D" | "h" | "m" | "s" | "ms" | "us" | "ns") => {
                format!("Arrow has no {name}[{unit}]: cast the array to {name}[s] or a smaller unit first")
            }
            _ => "it is not a type string of NumPy".to_owned(),
        });
    };
    Ok(Element::Time(match kind {
        'M' => DataType::Timestamp(*unit, None),
        _ => DataType::Duration(*unit),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_numpy_round_trip() {
        for name in [
            "|b1", "<f8", "<f2", "<i4", "|u1", "|i1", "<u8", "<c8", "<c16", "<M8[ns]", "<m8[s]", "<M8[D]",
            "|S5", "<U7",
        ] {
            let element = Element::from_numpy(&name[1..]).unwrap();
            assert_eq!(element.numpy_name().as_deref(), Some(name));
        }
    }

    #[test]
    fn names_of_safetensors_round_trip() {
        let arrow = ["BOOL", "F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8"];
        for name in arrow.into_iter().chain(EXTENSION_NUMBERS.map(|row| row.0)) {
            assert_eq!(Element::from_safetensors(name).unwrap().safetensors_name(), Some(name));
        }
        let complex128 = ExtensionNumber::from_name("complex128").unwrap();
        assert_eq!(Element::Extension(complex128).safetensors_name(), None);
    }

    #[test]
    fn unsupported_types_of_safetensors_have_a_reason() {
        for (name, part) in [
            ("F6_E2M3", "type F6_E2M3: several elements share a byte"),
            ("F4", "store the tensor as F32"),
            ("F8", "type F8: unknown"),
            ("C128", "type C128: unknown, expected BOOL, F64"),
            ("f32", "type f32: unknown, expected BOOL, F64, F32"),
            ("", "type : unknown"),
        ] {
            let error = Element::from_safetensors(name).unwrap_err();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn unsupported_types_have_a_reason() {
        for (name, part) in [
            ("c32", "expected complex64 or complex128: cast the array first"),
            ("c", "not a type string"),
            ("O", "pickle"),
            ("V8", "structured"),
            ("f16", "cast the array"),
            ("M8[25s]", "no datetime64[25s]: cast the array to datetime64[s] or a smaller unit"),
            ("M8[7D]", "no datetime64[7D]: cast the array to datetime64[D] or datetime64[s]"),
            ("M8[W]", "no datetime64[W]: cast the array to datetime64[D]"),
            ("M8[M]", "no datetime64[M]: cast the array to datetime64[D]"),
            ("M8[Y]", "no datetime64[Y]: cast the array to datetime64[D]"),
            ("M8[h]", "no datetime64[h]: cast the array to datetime64[s]"),
            ("M8[as]", "no datetime64[as]: cast the array to datetime64[ns]"),
            ("m8[D]", "no timedelta64[D]: cast the array to timedelta64[s]"),
            ("m8[Y]", "array.view('i8')"),
            ("m8[M]", "array.view('i8')"),
            ("m8", "timedelta64[s]"),
            ("M8[x]", "not a type string"),
            ("M8[]", "not a type string"),
            ("S0", "0 bytes"),
            ("U0", "0 characters"),
            ("U4294967295", "4294967295 characters"),
            ("U99999999999", "not a type string"),
            ("", "not a type string"),
            ("f", "not a type string"),
            ("f+8", "not a type string"),
            ("M8[ns", "not a type string"),
            ("i8[ns]", "not a type string"),
        ] {
            let error = Element::from_numpy(name).unwrap_err();
            assert!(error.contains(part), "{name}: {error}");
        }
    }
}
