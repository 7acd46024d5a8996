//! The element types that both DLPack and Arrow support: Arrow's own types, and the extension type
//! `crossdock.number`.

use std::borrow::Cow;

use arrow_schema::DataType;
use crossdock_arrays::ExtensionNumber;
use crossdock_plugin_api::{Error, Result};
use dlpark::ffi::{DLDataType, DLDataTypeCode as Code};

const ROWS: usize = 12;

/// The type code and number of bits in DLPack, and the type in Arrow.
static TABLE: [(Code, u8, DataType); ROWS] = [
    (Code::INT, 8, DataType::Int8),
    (Code::INT, 16, DataType::Int16),
    (Code::INT, 32, DataType::Int32),
    (Code::INT, 64, DataType::Int64),
    (Code::UINT, 8, DataType::UInt8),
    (Code::UINT, 16, DataType::UInt16),
    (Code::UINT, 32, DataType::UInt32),
    (Code::UINT, 64, DataType::UInt64),
    (Code::FLOAT, 16, DataType::Float16),
    (Code::FLOAT, 32, DataType::Float32),
    (Code::FLOAT, 64, DataType::Float64),
    // This must be the last row, because `Element::BOOL` refers to the last row. DLPack stores a
    // boolean as one byte. Arrow stores it as a bit, or as a byte in `arrow.bool8`.
    (Code::BOOL, 8, DataType::Boolean),
];

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// A type of Arrow, stored as the index of its row in the table.
    Arrow(u8),
    Extension(ExtensionNumber),
}

impl Element {
    /// Booleans that are stored as one byte per value.
    pub(crate) const BOOL: Element = Element::Arrow(ROWS as u8 - 1);

    /// Returns the element type; `None` if DLPack does not support the type.
    pub(crate) fn from_arrow(data_type: &DataType) -> Option<Self> {
        TABLE.iter().position(|(.., arrow)| arrow == data_type).map(|row| Element::Arrow(row as u8))
    }

    /// # Errors
    /// Returns an error if neither Arrow nor the extension type has the type.
    pub(crate) fn from_dtype(dtype: DLDataType) -> Result<Self> {
        if dtype.lanes != 1 {
            return Err(Error::unsupported(format!(
                "dtype {} with {} lanes: Arrow has no vectors; make the lanes a dimension",
                dtype_name(dtype),
                dtype.lanes
            )));
        }
        let row = TABLE.iter().position(|(code, bits, _)| (*code, *bits) == (dtype.code, dtype.bits));
        let arrow = row.map(|row| Element::Arrow(row as u8));
        let extension = || ExtensionNumber::from_dlpack(dtype.code.0, dtype.bits).map(Element::Extension);
        arrow.or_else(extension).ok_or_else(|| {
            let advice = match dtype.bits {
                1..8 => "several elements share a byte, and Arrow has no such type; view the bytes as uint8, or cast it",
                _ => "Arrow has no such type; cast it",
            };
            Error::unsupported(format!("dtype {}: {advice} to one of {} first", dtype_name(dtype), known_names()))
        })
    }

    pub(crate) fn dtype(self) -> DLDataType {
        let (code, bits) = match self {
            Element::Arrow(row) => {
                let (code, bits, _) = &TABLE[usize::from(row)];
                (*code, *bits)
            }
            Element::Extension(number) => (Code(number.dlpack_code()), number.bits()),
        };
        DLDataType { code, bits, lanes: 1 }
    }

    /// Number of bytes per element.
    pub(crate) fn width(self) -> usize {
        usize::from(self.dtype().bits) / 8
    }

    /// The Arrow type. For booleans, this is the type whose values are bits.
    pub(crate) fn data_type(self) -> Cow<'static, DataType> {
        match self {
            Element::Arrow(row) => Cow::Borrowed(&TABLE[usize::from(row)].2),
            Element::Extension(number) => Cow::Owned(number.storage()),
        }
    }

    pub(crate) fn name(self) -> String {
        dtype_name(self.dtype())
    }
}

fn dtype_name(dtype: DLDataType) -> String {
    let kind = match dtype.code {
        Code::INT => "int",
        Code::UINT => "uint",
        Code::FLOAT => "float",
        Code::BOOL if dtype.bits == 8 => return "bool".into(),
        Code::BOOL => "bool",
        Code::BFLOAT => "bfloat",
        Code::COMPLEX => "complex",
        Code::OPAQUEHANDLE => "handle",
        Code::FLOAT6_E2M3FN if dtype.bits == 6 => return "float6_e2m3fn".into(),
        Code::FLOAT6_E3M2FN if dtype.bits == 6 => return "float6_e3m2fn".into(),
        Code::FLOAT4_E2M1FN if dtype.bits == 4 => return "float4_e2m1fn".into(),
        Code(code) => {
            return match ExtensionNumber::from_dlpack(code, dtype.bits) {
                Some(number) => number.name().into(),
                None => format!("with code {code} and {} bits", dtype.bits),
            };
        }
    };
    format!("{kind}{}", dtype.bits)
}

fn known_names() -> String {
    let arrow = (0..ROWS).map(|row| Element::Arrow(row as u8).name());
    let extension = ExtensionNumber::all().map(|number| number.name().to_string());
    arrow.chain(extension).collect::<Vec<_>>().join(", ")
}
