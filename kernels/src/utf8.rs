//! Whether text is UTF-8.

use crossdock_memory::{Buffer, Result};

use crate::door::Args;
use crate::jobs::{JobArg, wave_blocks};
use crate::offsets::Offsets;
use crate::table::kernel;
use crate::words::{Word, check_offset_width, with_offset_type};
use crate::{Checks, bits};

kernel!(
    CHECK_UTF8,
    c"crossdock_check_utf8",
    (offsets: Read, width: Value, data: Read, validity: Read, first: Value, guard: Write, cell: Write),
    check
);

impl<'a> Checks<'a> {
    /// Finds the first value that is not UTF-8 by itself. Null values (`validity`: bitmap and its first bit) may hold
    /// anything.
    ///
    /// `checked` is the cell of [`Checks::offsets`] over the same offsets: where that found something wrong, nothing is
    /// looked at here, so that no byte is looked at for more than one value.
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

fn check(args: Args<'_>) -> Option<()> {
    let (bytes, width, data) = (args.read(0)?, args.index(1)?, args.read(2)?);
    let (validity, first) = (args.read(3)?, args.index(4)?);
    if args.cell(5)? != u64::MAX {
        return Some(());
    }
    let is_valid = |i| bits::is_set(validity, first + i);
    args.found(6, with_offset_type!(width, T => first_wrong::<T>(bytes, data, is_valid))?)
}

fn first_wrong<T: Word>(offsets: &[u8], data: &[u8], is_valid: impl Fn(usize) -> bool) -> Option<usize> {
    let at = |offset: T| usize::try_from(offset.wide()).unwrap_or(usize::MAX);
    let all = T::all(offsets);
    let (Some(first), Some(last)) = (all.clone().next(), all.clone().next_back()) else { return None };
    if let Some(text) = data.get(at(first)..at(last)) {
        if text.is_ascii() {
            return None;
        }
        // A value that begins on a character's first byte ends before one, so that all is well if the whole is.
        let begins = |offset: usize| data.get(offset).is_none_or(|byte| byte & 0xc0 != 0x80);
        if std::str::from_utf8(text).is_ok() && all.clone().all(|offset| begins(at(offset))) {
            return None;
        }
    }
    let values = all.clone().zip(all.skip(1)).enumerate();
    values
        .filter(|(i, _)| is_valid(*i))
        .find(|(_, (begin, end))| {
            data.get(at(*begin)..at(*end)).is_some_and(|value| std::str::from_utf8(value).is_err())
        })
        .map(|(i, _)| i)
}
