//! Compares values with a literal.

use std::cmp::Ordering;
use std::ops::BitOr;

use crossdock_memory::{Buffer, BufferMut, Result};
use crossdock_plugin_api::abi;

use crate::jobs::{JobArg, long_blocks};
use crate::limits::VIEW_BYTES;
use crate::rows::{COMPARE_BYTES, COMPARE_NUMBERS, COMPARE_VIEWS};
use crate::{Checks, Jobs, NumberType, Offsets, Source, bits};

/// A set of results of a comparison: for each accepted result, the bit of a value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept(u8);

impl Accept {
    /// The value is less than the literal.
    pub const LESS: Self = Self(1);
    /// The value equals the literal.
    pub const EQUAL: Self = Self(2);
    /// The value is greater than the literal.
    pub const GREATER: Self = Self(4);
    /// The value or the literal is NaN.
    pub const UNORDERED: Self = Self(8);

    /// The set of the given bits.
    pub fn from_bits(bits: u64) -> Self {
        Self((bits & 15) as u8)
    }

    /// Whether the set contains a result; `None` stands for unordered values.
    pub fn accepts(self, order: Option<Ordering>) -> bool {
        let bit = match order {
            Some(Ordering::Less) => Self::LESS,
            Some(Ordering::Equal) => Self::EQUAL,
            Some(Ordering::Greater) => Self::GREATER,
            None => Self::UNORDERED,
        };
        self.includes(bit)
    }

    /// Whether the sets have a common result.
    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn arg<'a>(self) -> JobArg<'a> {
        JobArg::Value(self.0.into())
    }
}

impl BitOr for Accept {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The type of numbers that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedType {
    /// Numbers of at most 8 bytes.
    Number(NumberType),
    /// Signed integers of 16 bytes.
    Int128,
    /// Signed integers of 32 bytes.
    Int256,
}

impl ComparedType {
    /// All types.
    pub fn all() -> impl Iterator<Item = Self> {
        let numbers = NumberType::ALL.iter().map(|number| Self::Number(*number));
        numbers.chain([Self::Int128, Self::Int256])
    }

    /// The type's code in `compare.cu`.
    pub fn code(self) -> u64 {
        match self {
            Self::Number(number) => number as u64,
            Self::Int128 => 11,
            Self::Int256 => 12,
        }
    }

    /// Bytes per number.
    pub fn width_bytes(self) -> usize {
        match self {
            Self::Number(number) => number.width_bytes(),
            Self::Int128 => 16,
            Self::Int256 => 32,
        }
    }
}

/// Values of bytes.
#[derive(Clone, Copy)]
pub enum ByteValues<'a> {
    /// The values between offsets.
    Offsets(Offsets<'a>, Source<'a>),
    /// `len` values of `size` bytes each.
    FixedSize {
        /// Bytes per value.
        size: usize,
        /// The number of values.
        len: usize,
        /// The bytes of all values.
        data: Source<'a>,
    },
}

impl<'a> ByteValues<'a> {
    /// The offsets, the bytes per offset, the bytes per value, the number of values and the data,
    /// as arguments. Values of a fixed size have no offsets.
    pub(crate) fn args(&self) -> [JobArg<'a>; 5] {
        let (offsets, width, size, data) = match self {
            Self::Offsets(offsets, data) => (offsets.arg(), offsets.width_bytes, 0, data.arg(1)),
            Self::FixedSize { size, data, .. } => (JobArg::NoBytes, 0, *size, data.arg(1)),
        };
        let [width, size, len] = [width, size, self.len()].map(|n| JobArg::Value(n as u64));
        [offsets, width, size, len, data]
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Offsets(offsets, _) => offsets.len,
            Self::FixedSize { len, .. } => *len,
        }
    }
}

impl<'a> Jobs<'a> {
    /// Compares numbers with a literal, and writes one bit per number from byte `at` of `to` on.
    /// The unused bits of the last byte become 0. The literal is an integer of up to 4 words, the
    /// lowest word first, extended to 8 bytes or to the width of the type, or the bits of an `f64`.
    pub fn compare_numbers(
        &mut self,
        from: Source<'a>,
        of: ComparedType,
        literal: [u64; 4],
        accept: Accept,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        let [a, b, c, d] = literal.map(JobArg::Value);
        let target = JobArg::write(to, at, from.len.div_ceil(8))?;
        let width = of.width_bytes();
        let args = [from.arg(width), JobArg::Value(of.code()), a, b, c, d, accept.arg(), target];
        self.push(&COMPARE_NUMBERS, long_blocks(from.len.saturating_mul(width)), args)
    }
}

impl<'a> Checks<'a> {
    /// Compares byte strings with `literal`: the first different byte decides, else the length.
    /// Writes one bit per value from byte `at` of `to` on. The unused bits of the last byte become
    /// 0. The returned cell has the first value that is not null (`validity`: bitmap and its first
    /// bit) and outside of the data. The bit of a value outside of the data is 0.
    pub fn compare_bytes(
        &mut self,
        values: ByteValues<'a>,
        validity: Option<(&'a Buffer, usize)>,
        literal: Source<'a>,
        accept: Accept,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        let len = values.len();
        let [offsets, width, size, n, data] = values.args();
        let target = JobArg::write(to, at, len.div_ceil(8))?;
        let cell = self.cells(1);
        let [bits, shift] = bits::args_or_none(validity, len);
        let args = [
            offsets,
            width,
            size,
            n,
            data,
            bits,
            shift,
            literal.arg(1),
            accept.arg(),
            target,
            JobArg::Cells(cell, 1),
        ];
        self.push(&COMPARE_BYTES, long_blocks(len.saturating_mul(16)), args)?;
        Ok(cell)
    }

    /// Like [`Self::compare_bytes`], for `len` views from view `first` on. `data` are the array's
    /// data buffers. The bits must be 0 before.
    #[allow(clippy::too_many_arguments)]
    pub fn compare_views(
        &mut self,
        views: &'a Buffer,
        first: usize,
        len: usize,
        validity: Option<(&'a Buffer, usize)>,
        data: &[Option<&'a Buffer>],
        literal: Source<'a>,
        accept: Accept,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        /// Maximum number of data buffers of one job. A job also has a head and nine more
        /// arguments.
        const WINDOW: usize = abi::MAX_KERNEL_ARGS - 10;
        let cell = self.cells(1);
        let bytes = len.saturating_mul(VIEW_BYTES);
        for window in 0..data.len().div_ceil(WINDOW).max(1) {
            let [bits, shift] = bits::args_or_none(validity, len);
            let args = [
                JobArg::Read(views, first.saturating_mul(VIEW_BYTES), bytes),
                bits,
                shift,
                literal.arg(1),
                accept.arg(),
                JobArg::Value(data.len() as u64),
                JobArg::Value((window * WINDOW) as u64),
                JobArg::write(to, at, len.div_ceil(8))?,
                JobArg::Cells(cell, 1),
            ];
            let buffers = data.iter().skip(window * WINDOW).take(WINDOW).map(|slot| {
                let bytes = slot.and_then(Buffer::len).unwrap_or(0);
                JobArg::Read(slot.unwrap_or(views), 0, bytes)
            });
            // Each window adds its bits to those of the windows before, so it has its own round.
            let blocks = long_blocks(bytes);
            self.push_after(&COMPARE_VIEWS, window, blocks, args.into_iter().chain(buffers))?;
        }
        Ok(cell)
    }
}
