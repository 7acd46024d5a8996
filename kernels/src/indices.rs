//! A dictionary's keys.

use crossdock_memory::{Buffer, Error, Result};

use crate::door::Args;
use crate::jobs::{JobArg, long_blocks};
use crate::table::kernel;
use crate::words::{IntType, Word};
use crate::{Checks, bits};

kernel!(
    CHECK_INDICES,
    c"crossdock_check_indices",
    (keys: Read, width: Value, signed: Value, validity: Read, first: Value, limit: Value, cell: Write),
    check
);

impl<'a> Checks<'a> {
    /// Finds the first of `len` keys, from key `first` on, that is not null (`validity`: bitmap and its first bit) and is
    /// negative or not below `limit`.
    pub fn indices(
        &mut self,
        keys: &'a Buffer,
        key_type: IntType,
        first: usize,
        len: usize,
        validity: Option<(&'a Buffer, usize)>,
        limit: u64,
    ) -> Result<usize> {
        let width = key_type.width_bytes;
        if ![1, 2, 4, 8].contains(&width) {
            return Err(Error::internal(format!("a kernel was asked for keys of {width} bytes")));
        }
        let cell = self.cells(1);
        let [bits, shift] = bits::optional_args(validity, len, keys);
        let bytes = len.saturating_mul(width);
        let args = [
            JobArg::Read(keys, first.saturating_mul(width), bytes),
            JobArg::Value(width as u64),
            JobArg::Value(key_type.signed.into()),
            bits,
            shift,
            JobArg::Value(limit),
            JobArg::Cells(cell, 1),
        ];
        self.push(&CHECK_INDICES, long_blocks(bytes), args)?;
        Ok(cell)
    }
}

fn check(args: Args<'_>) -> Option<()> {
    let (keys, width, signed) = (args.read(0)?, args.value(1)?, args.value(2)?);
    let (validity, first, limit) = (args.read(3)?, args.index(4)?, args.value(5)?);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let is_valid = |i| bits::is_set(validity, first + i);
    let found = match (width, signed != 0) {
        (1, true) => first_wrong::<i8>(keys, limit, is_valid),
        (2, true) => first_wrong::<i16>(keys, limit, is_valid),
        (4, true) => first_wrong::<i32>(keys, limit, is_valid),
        (8, true) => first_wrong::<i64>(keys, limit, is_valid),
        (1, false) => first_wrong::<u8>(keys, limit, is_valid),
        (2, false) => first_wrong::<u16>(keys, limit, is_valid),
        (4, false) => first_wrong::<u32>(keys, limit, is_valid),
        (8, false) => first_wrong::<u64>(keys, limit, is_valid),
        _ => return None,
    };
    args.found(6, found)
}

fn first_wrong<T: Word>(keys: &[u8], limit: i64, is_valid: impl Fn(usize) -> bool) -> Option<usize> {
    let wrong = |key: T| key.wide() < 0 || key.wide() >= limit;
    // Without an early end, so that the compiler takes many at once.
    if !T::all(keys).fold(false, |bad, key| bad | wrong(key)) {
        return None;
    }
    T::all(keys).enumerate().find(|(i, key)| wrong(*key) && is_valid(*i)).map(|(i, _)| i)
}
