//! Numbers of one type as those of another.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::Checks;
use crate::jobs::{JobArg, long_blocks};
use crate::rows::CAST;

/// The types, in the order of cast.cu.
macro_rules! number_types {
    ($($variant:ident $name:literal $bytes:literal),* $(,)?) => {
        /// A type that numbers are cast from and to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum NumberType { $($variant),* }

        impl NumberType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As Arrow calls it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Bytes of a number.
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
    /// Writes `n` numbers from byte `first` of `from` on as numbers of another type, to byte `at` of a buffer that is being
    /// filled. The cell says which was the first that the other type does not hold.
    ///
    /// Floats become integers by what stands before the point, and the nearest integer there is where they lie beyond;
    /// NaN becomes 0. Integers that do not fit lose their upper bits. What becomes a float is rounded to the nearest, ties
    /// to even; that is not an error, but becoming infinite is. Every NaN becomes the same quiet one.
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
}
