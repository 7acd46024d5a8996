//! Finds the distinct values of an array.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks, long_blocks};
use crate::rows::{FIND_EQUAL, MARK_FIRST, NUMBER_SLOTS};
use crate::{ByteValues, Checks, Jobs, bits};

/// Bytes of a row and of a slot.
const BYTES: usize = 4;

/// The number of slots of the hash table of `len` rows. At most half of them are used, so that
/// searches are short.
pub fn slots_for(len: usize) -> Result<usize> {
    let slots = len.checked_mul(2).map(|n| n.max(16).next_power_of_two());
    slots.filter(|n| *n <= 1 << 31).ok_or_else(|| {
        Error::unsupported(format!(
            "expected at most {} values to find the distinct ones, got {len}: process them in parts",
            1 << 30
        ))
    })
}

impl<'a> Checks<'a> {
    /// Finds the rows that are equal. Rows with equal values have the same slot in `slots`, and the
    /// slot of `table` contains the first of them; both have 4 bytes for each entry. A null row
    /// (`validity`: bitmap and its first bit) has no slot, which is a slot of all ones. The table
    /// has [`slots_for`] slots of all ones. The order of the slots depends on `seed` and on the
    /// device. The returned cell has the first row that is not null and outside of the data.
    pub fn find_equal(
        &mut self,
        values: ByteValues<'a>,
        validity: Option<(&'a Buffer, usize)>,
        seed: u64,
        table: &mut BufferMut,
        slots: &mut BufferMut,
    ) -> Result<usize> {
        let len = values.len();
        let [offsets, width, size, n, data] = values.args();
        let table = JobArg::write(table, 0, slots_for(len)? * BYTES)?;
        let slots = JobArg::write(slots, 0, len * BYTES)?;
        let cell = self.cells(1);
        let [bits, first] = bits::args_or_none(validity, len);
        let args = [
            offsets,
            width,
            size,
            n,
            data,
            bits,
            first,
            JobArg::Value(seed),
            table,
            slots,
            JobArg::Cells(cell, 1),
        ];
        self.push(&FIND_EQUAL, long_blocks(len.saturating_mul(16)), args)?;
        Ok(cell)
    }
}

impl<'a> Jobs<'a> {
    /// Sets the bit of each of `len` rows that is the first with its value.
    pub fn mark_first(
        &mut self,
        table: &'a Buffer,
        slots: &'a Buffer,
        len: usize,
        to: &mut BufferMut,
    ) -> Result<()> {
        let target = JobArg::write(to, 0, len.div_ceil(8))?;
        let table = JobArg::Read(table, 0, slots_for(len)? * BYTES);
        self.push(&MARK_FIRST, blocks(len * 8), [table, JobArg::Read(slots, 0, len * BYTES), target])
    }

    /// Replaces the row of each slot by its position in the list of `n` rows. `len` is the number
    /// of all rows.
    pub fn number_slots(
        &mut self,
        rows: &'a Buffer,
        n: usize,
        slots: &'a Buffer,
        len: usize,
        table: &mut BufferMut,
    ) -> Result<()> {
        let table = JobArg::write(table, 0, slots_for(len)? * BYTES)?;
        let args = [JobArg::Read(rows, 0, n * BYTES), JobArg::Read(slots, 0, len * BYTES), table];
        self.push(&NUMBER_SLOTS, long_blocks(n.saturating_mul(16)), args)
    }
}
