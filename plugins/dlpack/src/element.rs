//! The element types that both DLPack and Arrow support.

use arrow_schema::DataType;
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

/// An element type, stored as the index of its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element(u8);

impl Element {
    /// Booleans that are stored as one byte per value.
    pub(crate) const BOOL: Element = Element(ROWS as u8 - 1);

    fn row(self) -> (Code, u8, &'static DataType) {
        let (code, bits, data_type) = &TABLE[usize::from(self.0)];
        (*code, *bits, data_type)
    }

    /// Returns the element type; `None` if DLPack does not support the type.
    pub(crate) fn from_arrow(data_type: &DataType) -> Option<Self> {
        TABLE.iter().position(|(.., arrow)| arrow == data_type).map(|row| Element(row as u8))
    }

    /// # Errors
    /// Returns an error if Arrow does not support the type.
    pub(crate) fn from_dtype(dtype: DLDataType) -> Result<Self> {
        if dtype.lanes != 1 {
            return Err(Error::unsupported(format!(
                "dtype {} with {} lanes: Arrow has no vectors; make the lanes a dimension",
                dtype_name(dtype),
                dtype.lanes
            )));
        }
        let row = TABLE.iter().position(|(code, bits, _)| (*code, *bits) == (dtype.code, dtype.bits));
        row.map(|row| Element(row as u8)).ok_or_else(|| {
            Error::unsupported(format!(
                "dtype {}: Arrow has no such type; cast it to one of {} first",
                dtype_name(dtype),
                known_names()
            ))
        })
    }

    pub(crate) fn dtype(self) -> DLDataType {
        let (code, bits, _) = self.row();
        DLDataType { code, bits, lanes: 1 }
    }

    /// Number of bytes per element.
    pub(crate) fn width(self) -> usize {
        usize::from(self.row().1) / 8
    }

    /// The Arrow type. For booleans, this is the type whose values are bits.
    pub(crate) fn data_type(self) -> &'static DataType {
        self.row().2
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
        Code(code) => return format!("with code {code} and {} bits", dtype.bits),
    };
    format!("{kind}{}", dtype.bits)
}

fn known_names() -> String {
    let names: Vec<_> = (0..ROWS).map(|row| Element(row as u8).name()).collect();
    names.join(", ")
}
