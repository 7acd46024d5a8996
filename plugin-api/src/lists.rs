//! Reads lists: of read requests, and of the texts that an instance lists, such as ids.

use crate::abi;
use crate::error::{Error, Result};
use crate::plugin::Instance;

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

/// A function of an interface that lists texts, which are borrowed from the instance.
pub(crate) type ListTexts =
    unsafe extern "C" fn(*mut abi::Instance, *mut *const abi::Str, *mut usize, *mut abi::Error) -> abi::Code;

/// Calls a function that lists texts.
///
/// # Safety
/// `f` belongs to an interface of the instance.
pub(crate) unsafe fn read_texts(instance: &Instance, f: ListTexts, what: &str) -> Result<Vec<String>> {
    const MAX_TEXTS: usize = 1 << 16;
    let (mut list, mut n) = (std::ptr::null(), 0);
    // SAFETY: the caller guarantees that the function belongs to the instance, and the out
    // parameters are valid for writes.
    Error::check(|err| unsafe { f(instance.raw(), &mut list, &mut n, err) })?;
    if n > MAX_TEXTS || (list.is_null() && n > 0) {
        return Err(Error::internal(format!("a list of {n} {what} is not plausible")));
    }
    // SAFETY: `list` is not null, and the header requires that it has `n` valid strings that live
    // as long as the instance.
    (0..n).map(|i| unsafe { (*list.add(i)).get() }.map(str::to_string)).collect()
}
