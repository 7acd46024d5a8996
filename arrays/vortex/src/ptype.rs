//! Vortex's primitive types.

use arrow_schema::DataType;
use crossdock_plugin_api::{Error, Result};
use std::fmt;

macro_rules! ptypes {
    ($($number:literal $name:ident $arrow:ident $bytes:literal $text:literal),* $(,)?) => {
        /// A primitive type. The discriminant is its number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum PType { $($name = $number,)* }

        impl PType {
            /// All types, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The type with this number on the wire.
            pub fn from_wire(number: u64) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$name),)*
                    _ => Err(Error::bad_data(format!(
                        "number {number} for a primitive type, expected 0 to {}", Self::ALL.len() - 1
                    ))),
                }
            }

            /// Bytes of one value.
            pub fn bytes(self) -> usize {
                match self { $(Self::$name => $bytes,)* }
            }

            /// The Arrow type.
            pub fn arrow(self) -> DataType {
                match self { $(Self::$name => DataType::$arrow,)* }
            }

            /// Converts an Arrow type of plain numbers to a primitive type; `None` for other Arrow
            /// types.
            pub fn from_arrow(data_type: &DataType) -> Option<Self> {
                match data_type { $(DataType::$arrow => Some(Self::$name),)* _ => None }
            }
        }

        impl fmt::Display for PType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

ptypes! {
    0 U8 UInt8 1 "u8", 1 U16 UInt16 2 "u16", 2 U32 UInt32 4 "u32", 3 U64 UInt64 8 "u64",
    4 I8 Int8 1 "i8", 5 I16 Int16 2 "i16", 6 I32 Int32 4 "i32", 7 I64 Int64 8 "i64",
    8 F16 Float16 2 "f16", 9 F32 Float32 4 "f32", 10 F64 Float64 8 "f64",
}

impl PType {
    /// The type of the numbers that store values of an Arrow type: a number, date or time. `None`
    /// for all other types.
    pub fn stored_as(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Date32 | DataType::Time32(_) => Some(Self::I32),
            DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) => Some(Self::I64),
            plain => Self::from_arrow(plain),
        }
    }

    /// Whether the type is an integer.
    pub fn is_int(self) -> bool {
        self.is_unsigned() || self.is_signed()
    }

    /// Whether the type is an unsigned integer.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// Whether the type is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Returns the type, or an error if it is not an integer. `what` names the values.
    pub fn int(self, what: &str) -> Result<Self> {
        self.expect(self.is_int(), what, "an integer")
    }

    /// Returns the type, or an error if it is not an unsigned integer. `what` names the values.
    pub fn unsigned(self, what: &str) -> Result<Self> {
        self.expect(self.is_unsigned(), what, "an unsigned integer")
    }

    fn expect(self, is: bool, what: &str, expected: &str) -> Result<Self> {
        if !is {
            return Err(Error::bad_data(format!("{what} are of type {self}, expected {expected}")));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_number_of_each_type_is_its_index_in_all() {
        for (i, ptype) in PType::ALL.iter().enumerate() {
            assert_eq!(PType::from_wire(i as u64).unwrap(), *ptype);
            assert_eq!(PType::from_arrow(&ptype.arrow()), Some(*ptype));
            assert_eq!(ptype.arrow().primitive_width(), Some(ptype.bytes()));
        }
        assert_eq!(PType::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), ORDER);
        assert!(PType::from_wire(11).unwrap_err().message().contains("expected 0 to 10"));
    }

    const ORDER: &str = "u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64";

    #[test]
    fn every_type_has_exactly_one_kind() {
        for ptype in PType::ALL {
            let is_float = matches!(ptype, PType::F16 | PType::F32 | PType::F64);
            let kinds = [ptype.is_unsigned(), ptype.is_signed(), is_float];
            assert_eq!(kinds.iter().filter(|k| **k).count(), 1, "{ptype}");
        }
        assert!(PType::F32.int("offsets").unwrap_err().message().contains("offsets are of type f32"));
        assert!(PType::I32.unsigned("ends").is_err());
    }
}
