//! Checks list-views.

use crossdock_memory::{Buffer, Result};

use crate::Checks;
use crate::jobs::{JobArg, long_blocks};
use crate::rows::CHECK_LIST_VIEWS;
use crate::words::check_offset_width;

impl<'a> Checks<'a> {
    /// Finds the first of `len` values, from value `first` on, that has a negative offset, a
    /// negative size, or an end beyond `limit`. Null values are checked too, because Arrow requires
    /// valid ranges for them.
    pub fn list_views(
        &mut self,
        offsets: &'a Buffer,
        sizes: &'a Buffer,
        width_bytes: usize,
        first: usize,
        len: usize,
        limit: u64,
    ) -> Result<usize> {
        check_offset_width(width_bytes)?;
        let cell = self.cells(1);
        let (offset, bytes) = (first.saturating_mul(width_bytes), len.saturating_mul(width_bytes));
        let args = [
            JobArg::Read(offsets, offset, bytes),
            JobArg::Read(sizes, offset, bytes),
            JobArg::Value(width_bytes as u64),
            JobArg::Value(limit),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_LIST_VIEWS, long_blocks(bytes), args)?;
        Ok(cell)
    }
}
