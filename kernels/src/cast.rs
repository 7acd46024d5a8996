//! Converts numbers between types.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::jobs::{JobArg, long_blocks};
use crate::rows::{CAST, CHECK_EQUAL};
use crate::{Checks, Source};

/// The types, in the order of `cast.cu`.
macro_rules! number_types {
    ($($variant:ident $name:literal $bytes:literal),* $(,)?) => {
        /// The type of a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum NumberType { $($variant),* }

        impl NumberType {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The type's name in Arrow.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Bytes per number.
            pub fn width_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

number_types!(
    Int8 "int8" 1,
    Int16 "int16" 2,
    Int32 "int32" 4,
    Int64 "int64" 8,
    UInt8 "uint8" 1,
    UInt16 "uint16" 2,
    UInt32 "uint32" 4,
    UInt64 "uint64" 8,
    Float16 "float16" 2,
    Float32 "float32" 4,
    Float64 "float64" 8,
);

impl<'a> Checks<'a> {
    /// Converts the `n` numbers at byte `first` of `from`, and writes the results to byte `at` of
    /// `to`. The returned cell has the index of the first number that the target type cannot
    /// represent.
    ///
    /// - A float becomes an integer by truncation towards 0, saturating at the bounds of the type;
    ///   NaN becomes 0.
    /// - An integer that does not fit into a narrower integer type loses its upper bits.
    /// - A number that becomes a float is rounded to the nearest, ties to even. Rounding is not
    ///   reported, but overflow to infinity is.
    /// - Every NaN becomes the same quiet NaN.
    #[allow(clippy::too_many_arguments)]
    pub fn cast(
        &mut self,
        from: &'a Buffer,
        first: usize,
        from_type: NumberType,
        n: usize,
        to: &mut BufferMut,
        at: usize,
        to_type: NumberType,
    ) -> Result<usize> {
        let (bytes, to_bytes) =
            (n.saturating_mul(from_type.width_bytes()), n.saturating_mul(to_type.width_bytes()));
        let target = JobArg::write(to, at, to_bytes)?;
        let cell = self.cells(1);
        let args = [
            JobArg::Read(from, first, bytes),
            JobArg::Value(from_type as u64),
            target,
            JobArg::Value(to_type as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CAST, long_blocks(n.saturating_mul(16)), args)?;
        Ok(cell)
    }

    /// Compares two lists of numbers. The returned cell has the index of the first number that
    /// differs: -0 equals 0, and NaN equals nothing.
    pub fn equal_numbers(&mut self, a: Source<'a>, b: Source<'a>, of: NumberType) -> Result<usize> {
        let cell = self.cells(1);
        let width = of.width_bytes();
        let args = [a.arg(width), b.arg(width), JobArg::Value(of as u64), JobArg::Cells(cell, 1)];
        self.push(&CHECK_EQUAL, long_blocks(a.len.saturating_mul(width)), args)?;
        Ok(cell)
    }
}
