//! Columns as host applications have them: slices.

use arrow_schema::DataType;

/// One column's values and which of them are null, borrowed. See [`crate::Table::from_columns`].
#[derive(Clone, Copy, Debug)]
pub struct ColumnSlice<'a> {
    pub(super) values: Values<'a>,
    pub(super) validity: Option<Validity<'a>>,
}

/// The values.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Numbers of a Rust type: their bytes, and the Arrow type that they are.
    Native {
        /// The slice's bytes.
        bytes: &'a [u8],
        /// One value's bytes.
        width_bytes: usize,
        /// The Arrow type of the Rust type.
        data_type: &'a DataType,
    },
    /// The bytes of a column of fixed width, little-endian, value after value.
    Raw(&'a [u8]),
    /// Booleans.
    Bools(&'a [bool]),
    /// Texts.
    Texts(&'a [&'a str]),
    /// Byte strings.
    Binary(&'a [&'a [u8]]),
    /// Texts or byte strings in one piece: value `i` is `data[offsets[i]..offsets[i + 1]]`.
    Offsets {
        /// One more than there are values, not decreasing, the last within `data`.
        offsets: &'a [i32],
        /// Their bytes.
        data: &'a [u8],
    },
}

/// Which values are there; the others are null.
#[derive(Clone, Copy, Debug)]
pub enum Validity<'a> {
    /// One a value.
    Bools(&'a [bool]),
    /// One bit a value, the lowest of each byte first, as Arrow has it.
    Bits(&'a [u8]),
}

impl<'a> ColumnSlice<'a> {
    /// Values without nulls.
    pub fn new(values: impl Into<Values<'a>>) -> Self {
        Self { values: values.into(), validity: None }
    }

    /// The bytes of a column of fixed width, little-endian.
    pub fn raw(bytes: &'a [u8]) -> Self {
        Self::new(Values::Raw(bytes))
    }

    /// Texts or byte strings in one piece, with offsets.
    pub fn with_offsets(offsets: &'a [i32], data: &'a [u8]) -> Self {
        Self::new(Values::Offsets { offsets, data })
    }

    /// The values at which `validity` is false are null.
    pub fn with_validity(mut self, validity: &'a [bool]) -> Self {
        self.validity = Some(Validity::Bools(validity));
        self
    }

    /// The values whose bit is not set are null.
    pub fn with_validity_bits(mut self, bits: &'a [u8]) -> Self {
        self.validity = Some(Validity::Bits(bits));
        self
    }
}

/// A Rust number that is an Arrow type, byte for byte.
pub trait Native: Sized + Copy + sealed::Sealed + 'static {
    /// The Arrow type.
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
        // SAFETY: `Native` is sealed to numbers, which have no padding: their bytes are initialised. The range is the
        // slice's own.
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
