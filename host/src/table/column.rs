//! Columns that a host application passes as slices.

use arrow_schema::DataType;

/// Borrowed values of one column and their validity. See [`crate::Table::from_columns`].
#[derive(Clone, Copy, Debug)]
pub struct ColumnSlice<'a> {
    pub(super) values: Values<'a>,
    pub(super) validity: Option<Validity<'a>>,
}

/// The values of a column.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Numbers of a Rust type.
    Native {
        /// The slice's bytes.
        bytes: &'a [u8],
        /// The number of bytes of one value.
        width_bytes: usize,
        /// The Arrow type that corresponds to the Rust type.
        data_type: &'a DataType,
    },
    /// The values of a column of fixed width, as little-endian bytes.
    Raw(&'a [u8]),
    /// Booleans.
    Bools(&'a [bool]),
    /// Strings.
    Texts(&'a [&'a str]),
    /// Byte strings.
    Binary(&'a [&'a [u8]]),
    /// Concatenated strings or byte strings: value `i` is `data[offsets[i]..offsets[i + 1]]`.
    Offsets {
        /// The ascending offsets. Their number is the number of values plus one, and the last
        /// offset is at most `data.len()`.
        offsets: &'a [i32],
        /// The bytes of all values.
        data: &'a [u8],
    },
}

/// The validity of a column's values. Invalid values are null.
#[derive(Clone, Copy, Debug)]
pub enum Validity<'a> {
    /// One boolean per value.
    Bools(&'a [bool]),
    /// An Arrow validity bitmap: one bit per value, starting with the lowest bit of each byte.
    Bits(&'a [u8]),
}

impl<'a> ColumnSlice<'a> {
    /// Creates a column without nulls.
    pub fn new(values: impl Into<Values<'a>>) -> Self {
        Self { values: values.into(), validity: None }
    }

    /// Creates a column of fixed width from little-endian bytes.
    pub fn raw(bytes: &'a [u8]) -> Self {
        Self::new(Values::Raw(bytes))
    }

    /// Creates a column from concatenated strings or byte strings, and their offsets.
    pub fn with_offsets(offsets: &'a [i32], data: &'a [u8]) -> Self {
        Self::new(Values::Offsets { offsets, data })
    }

    /// Makes a value null if its entry in `validity` is false.
    pub fn with_validity(mut self, validity: &'a [bool]) -> Self {
        self.validity = Some(Validity::Bools(validity));
        self
    }

    /// Makes a value null if its bit is 0.
    pub fn with_validity_bits(mut self, bits: &'a [u8]) -> Self {
        self.validity = Some(Validity::Bits(bits));
        self
    }
}

/// A Rust number with the same representation as an Arrow type.
pub trait Native: Sized + Copy + sealed::Sealed + 'static {
    /// The Arrow type of the number.
    const TYPE: &'static DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! native {
    ($($t:ty = $data_type:expr),* $(,)?) => { $(
        impl sealed::Sealed for $t {}
        impl Native for $t {
            const TYPE: &'static DataType = &$data_type;
        }
    )* };
}
native!(
    i8 = DataType::Int8,
    i16 = DataType::Int16,
    i32 = DataType::Int32,
    i64 = DataType::Int64,
    i128 = DataType::Decimal128(38, 0),
    u8 = DataType::UInt8,
    u16 = DataType::UInt16,
    u32 = DataType::UInt32,
    u64 = DataType::UInt64,
    f32 = DataType::Float32,
    f64 = DataType::Float64,
);

impl<'a, T: Native> From<&'a [T]> for Values<'a> {
    fn from(values: &'a [T]) -> Self {
        // SAFETY: `Native` is sealed to numbers, which have no padding, so all
        // `size_of_val(values)` bytes of the slice are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        Self::Native { bytes, width_bytes: size_of::<T>(), data_type: T::TYPE }
    }
}

impl<'a> From<&'a [bool]> for Values<'a> {
    fn from(values: &'a [bool]) -> Self {
        Self::Bools(values)
    }
}

impl<'a> From<&'a [&'a str]> for Values<'a> {
    fn from(values: &'a [&'a str]) -> Self {
        Self::Texts(values)
    }
}

impl<'a> From<&'a [&'a [u8]]> for Values<'a> {
    fn from(values: &'a [&'a [u8]]) -> Self {
        Self::Binary(values)
    }
}
