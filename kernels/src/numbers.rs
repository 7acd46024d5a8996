//! Single numbers on the device: read for the host, and held against what it expects.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::jobs::{JobArg, blocks};
use crate::rows::{CHECK_NUMBER, READ_NUMBERS};
use crate::words::IntType;

impl<'a> Checks<'a> {
    /// Reads `n` whole numbers of 4 or 8 bytes from byte `at` on, into as many cells: the first is returned, for
    /// [`Findings::number`](crate::Findings::number). What an `i64` does not hold becomes its greatest.
    pub fn numbers(&mut self, from: &'a Buffer, at: usize, n: usize, of: IntType) -> Result<usize> {
        let width = check_width(of)?;
        let first = self.cells(n);
        let args = [
            JobArg::Read(from, at, n.saturating_mul(width)),
            JobArg::Value(width as u64),
            JobArg::Value(of.signed.into()),
            JobArg::Cells(first, n),
        ];
        self.push(&READ_NUMBERS, blocks(n.saturating_mul(16)), args)?;
        Ok(first)
    }

    /// Holds the whole number of 4 or 8 bytes at byte `at` against what is expected, as a count of rows that lies on the
    /// device: [`Findings::first_wrong`](crate::Findings::first_wrong) is 0 where it is below `least` or above `most`.
    pub fn number_within(
        &mut self,
        from: &'a Buffer,
        at: usize,
        of: IntType,
        least: i64,
        most: i64,
    ) -> Result<usize> {
        let width = check_width(of)?;
        let cell = self.cells(1);
        let args = [
            JobArg::Read(from, at, width),
            JobArg::Value(width as u64),
            JobArg::Value(of.signed.into()),
            JobArg::Value(least as u64),
            JobArg::Value(most as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_NUMBER, 1, args)?;
        Ok(cell)
    }
}

fn check_width(of: IntType) -> Result<usize> {
    match of.width_bytes {
        width @ (4 | 8) => Ok(width),
        width => {
            Err(Error::internal(format!("a kernel was asked for a number of {width} bytes, expected 4 or 8")))
        }
    }
}
