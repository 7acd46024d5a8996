//! Operators and literals of comparisons.

use std::fmt;

use arrow_schema::{DataType, TimeUnit};
use crossdock_kernels::{Accept, ComparedType, NumberType};
use crossdock_plugin_api::abi;

use super::exact::Decimal;

/// The operator of a comparison of a value with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Operator {
    /// All operators.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessEqual, Self::Greater, Self::GreaterEqual];

    /// The text of the operator.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }

    /// The operator with this symbol; `=` is a synonym of `==`.
    pub fn from_symbol(symbol: &str) -> Option<Self> {
        let symbol = if symbol == "=" { "==" } else { symbol };
        Self::ALL.into_iter().find(|operator| operator.symbol() == symbol)
    }

    /// The value of `crossdock_predicate.comparison`.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Equal => abi::COMPARE_EQUAL,
            Self::NotEqual => abi::COMPARE_NOT_EQUAL,
            Self::Less => abi::COMPARE_LESS,
            Self::LessEqual => abi::COMPARE_LESS_EQUAL,
            Self::Greater => abi::COMPARE_GREATER,
            Self::GreaterEqual => abi::COMPARE_GREATER_EQUAL,
        }
    }

    /// The operator with this code; `None` for an unknown code.
    pub(super) fn from_code(code: u32) -> Option<Self> {
        let all =
            [Self::Equal, Self::NotEqual, Self::Less, Self::LessEqual, Self::Greater, Self::GreaterEqual];
        all.into_iter().find(|operator| operator.code() == code)
    }

    /// The results of a comparison for which the operator holds. A comparison with NaN is
    /// unordered, as in IEEE 754.
    pub(crate) fn accept(self) -> Accept {
        match self {
            Self::Equal => Accept::EQUAL,
            Self::NotEqual => Accept::LESS | Accept::GREATER | Accept::UNORDERED,
            Self::Less => Accept::LESS,
            Self::LessEqual => Accept::LESS | Accept::EQUAL,
            Self::Greater => Accept::GREATER,
            Self::GreaterEqual => Accept::GREATER | Accept::EQUAL,
        }
    }
}

/// A value with which the values of a column are compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A truth value.
    Bool(bool),
    /// An integer or a decimal number.
    Decimal(Decimal),
    /// A float.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Days since 1970-01-01.
    Date(i64),
    /// Nanoseconds since midnight.
    Time(i64),
    /// Nanoseconds since 1970-01-01T00:00:00: in UTC if `has_zone` is set, else without a time
    /// zone.
    Timestamp {
        /// The nanoseconds.
        ns: i128,
        /// Whether the timestamp is in UTC.
        has_zone: bool,
    },
    /// Nanoseconds.
    Duration(i128),
    /// Text that is parsed as a value of the column's type.
    Unparsed(String),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool(_) => "a boolean",
            Self::Decimal(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::Date(_) => "a date",
            Self::Time(_) => "a time of day",
            Self::Timestamp { has_zone: false, .. } => "a timestamp without a time zone",
            Self::Timestamp { has_zone: true, .. } => "a timestamp with a time zone",
            Self::Duration(_) => "a duration",
            Self::Unparsed(text) => return write!(f, "'{text}'"),
        })
    }
}

/// The numbers that represent values of a type, and the power of ten of their unit.
pub(crate) fn number_type(data_type: &DataType) -> Option<(ComparedType, i32)> {
    let number = |of| (ComparedType::Number(of), 0);
    let ticks = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    Some(match data_type {
        DataType::Int8 => number(NumberType::Int8),
        DataType::Int16 => number(NumberType::Int16),
        DataType::Int32 => number(NumberType::Int32),
        DataType::Int64 => number(NumberType::Int64),
        DataType::UInt8 => number(NumberType::UInt8),
        DataType::UInt16 => number(NumberType::UInt16),
        DataType::UInt32 => number(NumberType::UInt32),
        DataType::UInt64 => number(NumberType::UInt64),
        DataType::Float16 => number(NumberType::Float16),
        DataType::Float32 => number(NumberType::Float32),
        DataType::Float64 => number(NumberType::Float64),
        DataType::Decimal32(_, scale) => (ComparedType::Number(NumberType::Int32), i32::from(*scale)),
        DataType::Decimal64(_, scale) => (ComparedType::Number(NumberType::Int64), i32::from(*scale)),
        DataType::Decimal128(_, scale) => (ComparedType::Int128, i32::from(*scale)),
        DataType::Decimal256(_, scale) => (ComparedType::Int256, i32::from(*scale)),
        DataType::Date32 => number(NumberType::Int32),
        DataType::Date64 => (ComparedType::Number(NumberType::Int64), 3),
        DataType::Time32(unit) => (ComparedType::Number(NumberType::Int32), ticks(unit)),
        DataType::Time64(unit) | DataType::Timestamp(unit, _) | DataType::Duration(unit) => {
            (ComparedType::Number(NumberType::Int64), ticks(unit))
        }
        _ => return None,
    })
}
