//! Reads and checks single integers on the device.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::jobs::{JobArg, blocks};
use crate::rows::{CHECK_NUMBER, READ_NUMBERS};
use crate::words::IntType;

impl<'a> Checks<'a> {
    /// Reads `n` integers of 4 or 8 bytes, from byte `at` on, into `n` cells. Returns the first
    /// cell, for [`Findings::number`](crate::Findings::number). A number above `i64::MAX` is read
    /// as `i64::MAX`.
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

    /// Checks whether the integer of 4 or 8 bytes at byte `at`, for example a number of rows, is in
    /// `min..=max`. If it is not, [`Findings::first_wrong`](crate::Findings::first_wrong) returns
    /// 0.
    pub fn number_within(
        &mut self,
        from: &'a Buffer,
        at: usize,
        of: IntType,
        min: i64,
        max: i64,
    ) -> Result<usize> {
        let width = check_width(of)?;
        let cell = self.cells(1);
        let args = [
            JobArg::Read(from, at, width),
            JobArg::Value(width as u64),
            JobArg::Value(of.signed.into()),
            JobArg::Value(min as u64),
            JobArg::Value(max as u64),
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
            Err(Error::internal(format!("a kernel cannot read a number of {width} bytes, expected 4 or 8")))
        }
    }
}
