//! Converts integers to another unit, and decimals to floats.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, long_blocks};
use crate::rows::{DECIMAL_TO_FLOAT, RESCALE};
use crate::words::check_offset_width;
use crate::{Checks, Jobs, Source, bits};

/// How integers are converted to another unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescale {
    /// Multiplies by the factor.
    Multiply,
    /// Divides by the factor, and truncates towards 0. A remainder is an error.
    Divide,
    /// Divides by the factor, and rounds down.
    Floor,
}

impl Rescale {
    /// The conversion with the code that `rescale.cu` defines.
    pub fn from_code(code: u64) -> Option<Self> {
        [Self::Multiply, Self::Divide, Self::Floor].into_iter().find(|mode| *mode as u64 == code)
    }
}

impl<'a> Checks<'a> {
    /// Converts signed integers of 4 or 8 bytes to another unit, and writes them with `to_width` (4
    /// or 8) bytes to byte `at` of `to`. The returned cell has the first integer that is not null
    /// (`validity`: bitmap and its first bit) and whose result does not fit into 8 bytes or
    /// `to_width`, or has a remainder. Such a result loses its upper bits or its remainder.
    #[allow(clippy::too_many_arguments)]
    pub fn rescale(
        &mut self,
        from: Source<'a>,
        width: usize,
        validity: Option<(&'a Buffer, usize)>,
        factor: i64,
        mode: Rescale,
        to: &mut BufferMut,
        at: usize,
        to_width: usize,
    ) -> Result<usize> {
        check_offset_width(width)?;
        check_offset_width(to_width)?;
        if factor <= 0 {
            return Err(Error::internal(format!("{factor} is not a factor of units")));
        }
        let bytes = from.len.saturating_mul(to_width);
        let target = JobArg::write(to, at, bytes)?;
        let cell = self.cells(1);
        let [bits, first] = bits::args_or_none(validity, from.len);
        let args = [
            from.arg(width),
            JobArg::Value(width as u64),
            bits,
            first,
            JobArg::Value(factor.cast_unsigned()),
            JobArg::Value(mode as u64),
            target,
            JobArg::Value(to_width as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&RESCALE, long_blocks(bytes), args)?;
        Ok(cell)
    }
}

impl<'a> Jobs<'a> {
    /// Converts signed integers of 4, 8, 16 or 32 bytes to doubles, and multiplies them with
    /// `factor` if `scale_up` is set, else divides them by it. An integer of more than 53 bits may
    /// differ from the nearest double in the last bit.
    pub fn decimal_to_float(
        &mut self,
        from: Source<'a>,
        width: usize,
        factor: f64,
        scale_up: bool,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<()> {
        if ![4, 8, 16, 32].contains(&width) {
            return Err(Error::internal(format!("a kernel cannot read decimals of {width} bytes")));
        }
        let bytes = from.len.saturating_mul(8);
        let target = JobArg::write(to, at, bytes)?;
        let args = [
            from.arg(width),
            JobArg::Value(width as u64),
            JobArg::Value(factor.to_bits()),
            JobArg::Value(scale_up.into()),
            target,
        ];
        self.push(&DECIMAL_TO_FLOAT, long_blocks(bytes), args)
    }
}
