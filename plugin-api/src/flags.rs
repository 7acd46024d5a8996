//! Checks of flags and reserved fields in requests.

use crate::error::{Error, Result};

/// Checks the flags of a request.
///
/// # Errors
/// Unsupported if `flags` has a bit that is not in `known`. The message begins with `what` and
/// contains the number of the bit.
pub fn reject_unknown(flags: u32, known: u32, what: &str) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Error::unsupported(format!(
            "{what}: flag bit {} of {flags:#x} is unknown, expected only bits of {known:#x}",
            unknown.trailing_zeros()
        ))),
    }
}

/// Checks a reserved field of a request.
///
/// # Errors
/// Invalid argument if the field is not 0. The message begins with `what`.
pub fn reject_reserved(reserved: u32, what: &str) -> Result<()> {
    if reserved == 0 {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{what}: a reserved field is {reserved:#x}, expected 0")))
}
