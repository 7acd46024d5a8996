//! Where runs end.

use crossdock_memory::{Buffer, Error, Result};

use crate::Checks;
use crate::door::Args;
use crate::jobs::{JobArg, long_blocks};
use crate::table::kernel;
use crate::words::Word;

kernel!(
    CHECK_RUN_ENDS,
    c"crossdock_check_run_ends",
    (ends: Read, width: Value, covered: Value, cell: Write),
    check
);

impl<'a> Checks<'a> {
    /// Finds the first of `len` run ends, from entry `first` on, that is not above the one before it (or above 0), or
    /// `len` if the last is below `covered`, the end of the values that the runs must cover.
    pub fn run_ends(
        &mut self,
        ends: &'a Buffer,
        width_bytes: usize,
        first: usize,
        len: usize,
        covered: u64,
    ) -> Result<usize> {
        if ![2, 4, 8].contains(&width_bytes) {
            return Err(Error::internal(format!("a kernel was asked for run ends of {width_bytes} bytes")));
        }
        let cell = self.cells(1);
        let bytes = len.saturating_mul(width_bytes);
        let args = [
            JobArg::Read(ends, first.saturating_mul(width_bytes), bytes),
            JobArg::Value(width_bytes as u64),
            JobArg::Value(covered),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_RUN_ENDS, long_blocks(bytes), args)?;
        Ok(cell)
    }
}

fn check(args: Args<'_>) -> Option<()> {
    let (ends, width, covered) = (args.read(0)?, args.value(1)?, args.value(2)?);
    let covered = i64::try_from(covered).unwrap_or(i64::MAX);
    let found = match width {
        2 => first_wrong::<i16>(ends, covered),
        4 => first_wrong::<i32>(ends, covered),
        8 => first_wrong::<i64>(ends, covered),
        _ => return None,
    };
    args.found(3, found)
}

fn first_wrong<T: Word>(ends: &[u8], covered: i64) -> Option<usize> {
    let mut before = 0;
    for (i, end) in T::all(ends).enumerate() {
        if end.wide() <= before {
            return Some(i);
        }
        before = end.wide();
    }
    (before < covered).then(|| T::all(ends).len())
}
