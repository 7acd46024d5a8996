//! Reads lists and paths of read requests.

use crate::abi;
use crate::error::{Error, Result};

/// The greatest number of names in a path, the depth of Arrow schemas.
const MAX_NAMES: usize = 64;

/// # Safety
/// `names` of `path` points to `n_names` strings that live during `'a`, or is null.
pub(crate) unsafe fn read_path(path: &abi::Path) -> Result<Vec<String>> {
    // SAFETY: the caller guarantees `n_names` strings.
    let names = unsafe { list(path.names, path.n_names, MAX_NAMES, "names of a column") }?;
    if names.is_empty() {
        return Err(Error::invalid_argument("a column of the read request has no name"));
    }
    // SAFETY: each string is valid for its length.
    names.iter().map(|name| unsafe { name.get() }.map(str::to_string)).collect()
}

/// # Safety
/// `list` points to `n` values that live during `'a`, or is null, or `n` is 0.
pub(crate) unsafe fn list<'a, T>(list: *const T, n: usize, max_len: usize, what: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if list.is_null() || !list.is_aligned() || n > max_len {
        return Err(Error::invalid_argument(format!(
            "the read request has an invalid list of {n} {what}, expected at most {max_len}"
        )));
    }
    // SAFETY: `list` is not null and aligned, and the caller guarantees `n` values.
    Ok(unsafe { std::slice::from_raw_parts(list, n) })
}
