//! The one list of what a tensor's elements are, in DLPack and in Arrow.

use arrow_schema::DataType;
use crossdock_plugin_api::{Error, Result};
use dlpark::ffi::{DLDataType, DLDataTypeCode as Code};

const ROWS: usize = 12;

/// A row: DLPack's code and bits, Arrow's type.
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
    // The last row. One byte a value: Arrow's bits are made of it, or it becomes `arrow.bool8`.
    (Code::BOOL, 8, DataType::Boolean),
];

/// What a tensor's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element(u8);

impl Element {
    /// A boolean, one byte a value.
    pub(crate) const BOOL: Element = Element(ROWS as u8 - 1);

    fn row(self) -> (Code, u8, &'static DataType) {
        let (code, bits, data_type) = &TABLE[usize::from(self.0)];
        (*code, *bits, data_type)
    }

    /// Of an Arrow type that DLPack has too.
    pub(crate) fn of_arrow(data_type: &DataType) -> Option<Self> {
        TABLE.iter().position(|(.., arrow)| arrow == data_type).map(|row| Element(row as u8))
    }

    /// Of a tensor's `dtype`.
    pub(crate) fn of_tensor(dtype: DLDataType) -> Result<Self> {
        if dtype.lanes != 1 {
            return Err(Error::unsupported(format!(
                "dtype {} with {} lanes: Arrow has no vectors; make the lanes a dimension of their own",
                dtype_name(dtype),
                dtype.lanes
            )));
        }
        let found = TABLE.iter().position(|(code, bits, _)| (*code, *bits) == (dtype.code, dtype.bits));
        found.map(|row| Element(row as u8)).ok_or_else(|| {
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

    /// Bytes.
    pub(crate) fn width(self) -> usize {
        usize::from(self.row().1) / 8
    }

    /// Arrow's type; of booleans, that of bits.
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
        Code(code) => return format!("code {code} of {} bits", dtype.bits),
    };
    format!("{kind}{}", dtype.bits)
}

fn known_names() -> String {
    let names: Vec<_> = (0..ROWS).map(|row| Element(row as u8).name()).collect();
    names.join(", ")
}
