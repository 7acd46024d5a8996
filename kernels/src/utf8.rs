//! Checks that text is UTF-8.

use crossdock_memory::{Buffer, Result};

use crate::jobs::{JobArg, wave_blocks};
use crate::offsets::Offsets;
use crate::rows::CHECK_UTF8;
use crate::words::check_offset_width;
use crate::{Checks, bits};

impl<'a> Checks<'a> {
    /// Finds the first value that is not valid UTF-8. Null values (`validity`: bitmap and its first
    /// bit) may contain any bytes.
    ///
    /// `checked` is the cell of [`Checks::offsets`] for the same offsets. If that cell reports an
    /// error, this check does nothing. It relies on offsets that do not descend, so that each byte
    /// belongs to one value.
    pub fn utf8(
        &mut self,
        offsets: Offsets<'a>,
        checked: usize,
        data: &'a Buffer,
        validity: Option<(&'a Buffer, usize)>,
    ) -> Result<usize> {
        check_offset_width(offsets.width_bytes)?;
        let cell = self.cells(1);
        let [bits, shift] = bits::optional_args(validity, offsets.len, data);
        let bytes = data.len().unwrap_or(0);
        let args = [
            offsets.arg(),
            JobArg::Value(offsets.width_bytes as u64),
            JobArg::Read(data, 0, bytes),
            bits,
            shift,
            JobArg::Cells(checked, 1),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_UTF8, wave_blocks(bytes), args)?;
        Ok(cell)
    }
}
