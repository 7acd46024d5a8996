//! Single numbers on the device: read for the host, and held against what it expects.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, blocks};
use crate::table::kernel;
use crate::words::{IntType, Word};

kernel!(
    READ_NUMBERS,
    c"crossdock_read_numbers",
    (from: Read, width: Value, signed: Value, cells: Write),
    read
);
kernel!(
    CHECK_NUMBER,
    c"crossdock_check_number",
    (from: Read, width: Value, signed: Value, least: Value, most: Value, cell: Write),
    check
);

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

fn words(from: &[u8], width: u64, signed: u64) -> Option<Box<dyn Iterator<Item = i64> + '_>> {
    Some(match (width, signed != 0) {
        (4, true) => Box::new(i32::all(from).map(Word::wide)),
        (4, false) => Box::new(u32::all(from).map(Word::wide)),
        (8, true) => Box::new(i64::all(from).map(Word::wide)),
        (8, false) => Box::new(u64::all(from).map(Word::wide)),
        _ => return None,
    })
}

fn read(args: Args<'_>) -> Option<()> {
    let words = words(args.read(0)?, args.value(1)?, args.value(2)?)?;
    let (cells, _) = args.write(3)?.as_chunks_mut::<8>();
    cells.iter_mut().zip(words).for_each(|(cell, word)| *cell = word.to_ne_bytes());
    Some(())
}

fn check(args: Args<'_>) -> Option<()> {
    let number = words(args.read(0)?, args.value(1)?, args.value(2)?)?.next();
    let (least, most) = (args.value(3)? as i64, args.value(4)? as i64);
    args.found(5, number.is_some_and(|number| number < least || number > most).then_some(0))
}
