//! Fragments: pieces of an input that can be read independently.

use std::ffi::c_void;

use crate::abi;
use crate::door::Poison;
use crate::error::{Error, Result};
use crate::owned::Owned;
use crate::sized_struct;

/// A piece of an input.
pub struct Fragment {
    /// Identifies the piece in [`crate::ReadRequest::fragment`]: from 1 to
    /// [`abi::MAX_TOKEN_BYTES`] bytes.
    pub token: Vec<u8>,
    /// The number of rows, if it is known.
    pub n_rows: Option<u64>,
    /// The bytes of the input to read for all columns; 0 if unknown. May be an estimate.
    pub bytes: u64,
    /// Statistics in Arrow's statistics schema, in host memory. The batch has a schema.
    pub statistics: Option<Owned<abi::Batch>>,
}

/// The greatest number of fragments of an input.
pub const MAX_FRAGMENTS: usize = 1 << 20;

struct List {
    _raw: Vec<abi::Fragment>,
    _tokens: Vec<Vec<u8>>,
    /// The statistics that the consumer has not moved out.
    // The structs point to these batches, so their addresses must not change.
    #[allow(clippy::vec_box)]
    _statistics: Vec<Box<Owned<abi::Batch>>>,
}

/// Converts to a C list.
///
/// # Errors
/// A token is empty or too long, or there are too many fragments or rows.
pub(crate) fn export_fragments(fragments: Vec<Fragment>) -> Result<Owned<abi::Fragments>> {
    check_len(fragments.len())?;
    let (mut raw, mut tokens, mut all_statistics) = (Vec::new(), Vec::new(), Vec::new());
    for Fragment { token, n_rows, bytes, statistics } in fragments {
        check_token_len(token.len())?;
        let n_rows = n_rows.map_or(Ok(-1), i64::try_from);
        let n_rows = n_rows.map_err(|_| Error::internal("a fragment has more than 2^63 rows"))?;
        let mut fragment = abi::Fragment { n_rows, bytes, ..abi::Fragment::new() };
        // The pointers refer to heap blocks, which stay in place when their owners are moved.
        (fragment.token, fragment.token_bytes) = (token.as_ptr().cast(), token.len());
        if let Some(batch) = statistics {
            let mut batch = Box::new(batch);
            fragment.statistics = batch.as_mut_ptr();
            all_statistics.push(batch);
        }
        raw.push(fragment);
        tokens.push(token);
    }
    let mut list = abi::Fragments::new();
    (list.fragments, list.n_fragments) = (raw.as_ptr(), raw.len());
    list.release = Some(release);
    let private = List { _raw: raw, _tokens: tokens, _statistics: all_statistics };
    list.private_data = Box::into_raw(Box::new(private)).cast();
    // SAFETY: this function created the list with its release function, and there is no other copy
    // of it.
    Ok(unsafe { Owned::new(list) })
}

unsafe extern "C" fn release(list: *mut abi::Fragments) {
    // SAFETY: only `export_fragments` sets this function, with a boxed `List` in `private_data`.
    // Clearing `release` ensures that this runs only once.
    unsafe {
        (*list).release = None;
        let private = Box::from_raw((*list).private_data.cast::<List>());
        Poison::new().run_release(move || drop(private));
    }
}

/// Reads a list, and moves the statistics out of it.
///
/// # Errors
/// A token is missing or too long, a number of rows is less than -1, or statistics have no schema.
///
/// # Safety
/// The list is released or valid.
pub(crate) unsafe fn read_fragments(list: Owned<abi::Fragments>) -> Result<Vec<Fragment>> {
    if list.is_released() {
        return Err(Error::internal("fragments succeeded, but returned a released list"));
    }
    let read = |raw: abi::Fragment| {
        // SAFETY: the pointer is null or points to a batch, whose ownership the list passes.
        let statistics = unsafe { Owned::take(raw.statistics) };
        // SAFETY: the list has `token_bytes` bytes at `token`, which are valid until its release.
        let token = unsafe { token(raw.token, raw.token_bytes) }?.to_vec();
        let n_rows =
            match raw.n_rows {
                -1 => None,
                rows => Some(u64::try_from(rows).map_err(|_| {
                    Error::internal(format!("a fragment has {rows} rows, expected -1 or more"))
                })?),
            };
        let statistics = Some(statistics).filter(|batch| !batch.is_released());
        if statistics.as_ref().is_some_and(|batch| batch.schema.release.is_none()) {
            return Err(Error::internal("the statistics of a fragment have no schema"));
        }
        Ok(Fragment { token, n_rows, bytes: raw.bytes, statistics })
    };
    // SAFETY: the caller guarantees a valid list of `n_fragments` fragments.
    unsafe { sized_struct::read_list(list.fragments, list.n_fragments, MAX_FRAGMENTS, "fragments", read) }
}

/// Borrows a token.
///
/// # Errors
/// The token is null, empty or too long.
///
/// # Safety
/// `at` is null or points to `bytes` bytes that are not changed during `'a`.
pub(crate) unsafe fn token<'a>(at: *const c_void, bytes: usize) -> Result<&'a [u8]> {
    check_token_len(if at.is_null() { 0 } else { bytes })?;
    // SAFETY: `at` is not null, because the length is not 0, and the caller guarantees the bytes.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), bytes) })
}

fn check_token_len(bytes: usize) -> Result<()> {
    if (1..=abi::MAX_TOKEN_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "the token of a fragment has {bytes} bytes, expected 1 to {}",
        abi::MAX_TOKEN_BYTES
    )))
}

fn check_len(n: usize) -> Result<()> {
    if n <= MAX_FRAGMENTS {
        return Ok(());
    }
    Err(Error::internal(format!("the input has {n} fragments, expected at most {MAX_FRAGMENTS}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(token: &[u8], n_rows: Option<u64>) -> Fragment {
        Fragment { token: token.to_vec(), n_rows, bytes: 7, statistics: None }
    }

    #[test]
    fn list_round_trips() {
        let list = export_fragments(vec![fragment(b"a", Some(3)), fragment(&[9; 65536], None)]).unwrap();
        // SAFETY: the list was just exported.
        let read = unsafe { read_fragments(list) }.unwrap();
        let read: Vec<_> = read.iter().map(|f| (f.token.as_slice(), f.n_rows, f.bytes)).collect();
        assert_eq!(read, [(&b"a"[..], Some(3), 7), (&[9; 65536][..], None, 7)]);
    }

    #[test]
    fn rejects_empty_and_long_tokens_and_negative_rows() {
        for token in [&b""[..], &[0; 65537]] {
            let error = export_fragments(vec![fragment(token, None)]).err().unwrap();
            assert!(error.message().contains("expected 1 to 65536"), "{error}");
        }
        let raw =
            abi::Fragment { token: c"t".as_ptr().cast(), token_bytes: 1, n_rows: -2, ..abi::Fragment::new() };
        unsafe extern "C" fn nothing(list: *mut abi::Fragments) {
            // SAFETY: the list is valid.
            unsafe { (*list).release = None };
        }
        let list = abi::Fragments {
            fragments: &raw,
            n_fragments: 1,
            release: Some(nothing),
            ..abi::Fragments::new()
        };
        // SAFETY: the list has one valid fragment.
        let error = unsafe { read_fragments(Owned::new(list)) }.err().unwrap();
        assert!(error.message().contains("-2 rows"), "{error}");
    }
}
