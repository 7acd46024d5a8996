//! The interface `crossdock.opener/1`, whose functions open URIs.

use std::sync::Arc;

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::door::put;
use crate::error::{Error, Result};
use crate::lists::read_texts;
use crate::options::Options;
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, with};
use crate::source::{ByteSource, Source};

/// Opens URIs, for example "s3://bucket/name".
pub trait Opener: Send + Sync {
    /// The URI schemes that this plugin opens, without "://" and in lower case (see
    /// [`is_scheme`]). The list must not change.
    fn schemes(&self) -> &[&'static str];

    /// Opens a URI for reading. The source must have a known length. Its `read_at` must return
    /// within bounded time, must be fast if it is called by several threads, and must fail if the
    /// content has changed since it was opened.
    ///
    /// # Errors
    /// Any error, which is returned to the caller. Reject options that are not known, see
    /// [`Options::only`].
    fn open(&self, call: &Call<'_>, uri: &str, options: &Options) -> Result<Arc<dyn ByteSource>>;
}

/// Whether `text` is a URI scheme in lower case: letters, digits, '+', '-' and '.', beginning with
/// a letter.
pub fn is_scheme(text: &str) -> bool {
    let is_other = |byte: u8| byte.is_ascii_digit() || b"+-.".contains(&byte);
    text.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || is_other(byte))
}

pub(crate) const fn table<P: Plugin>() -> abi::Opener {
    abi::Opener { struct_size: size_of::<abi::Opener>(), schemes: Some(schemes::<P>), open: Some(open::<P>) }
}

/// The opener of a plugin instance, for a caller such as the host.
#[derive(Clone, Copy)]
pub struct OpenerHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Opener,
}

impl OpenerHandle<'_> {
    /// The URI schemes that the plugin opens.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the list is invalid.
    pub fn schemes(&self) -> Result<Vec<String>> {
        let f = self.table.schemes.ok_or_else(|| missing("schemes"))?;
        // SAFETY: the table belongs to the instance.
        unsafe { read_texts(self.instance, f, "URI schemes") }
    }

    /// Opens a URI. The source must be dropped before the instance.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the source breaks a rule of the interface.
    pub fn open(&self, call: &CallSettings, uri: &str, options: &Options) -> Result<Source> {
        let f = self.table.open.ok_or_else(|| missing("open"))?;
        let pairs = options.pairs();
        let (uri, n) = (abi::Str::new(uri), pairs.len());
        let mut out = abi::Source::new();
        // SAFETY: the table belongs to the instance, and all pointers are valid for the call.
        let opened =
            |err| unsafe { f(self.instance.raw(), &call.raw(), uri, pairs.as_ptr(), n, &mut out, err) };
        Error::check(opened)?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        let raw = unsafe { Owned::from_out(out) };
        if raw.is_released() {
            return Err(Error::internal("open succeeded, but returned a released source"));
        }
        if raw.bytes < 0 {
            return Err(Error::internal("open returned a source of unknown length, expected a known length"));
        }
        // SAFETY: the source is not released, so the header guarantees that it is valid.
        Ok(unsafe { Source::from_raw(raw) })
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the plugin's opener has no function '{function}'"))
}

unsafe extern "C" fn schemes<P: Plugin>(
    instance: *mut abi::Instance,
    out: *mut *const abi::Str,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires an instance of `create`, and that each pointer is null or valid
    // for writes.
    unsafe {
        with::<P>(instance, err, |shell| {
            let schemes = shell.opener_schemes()?;
            put(out, "schemes", || schemes.as_ptr())?;
            put(n_out, "schemes", || schemes.len())
        })
    }
}

unsafe extern "C" fn open<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    uri: abi::Str,
    options: *const abi::OptionPair,
    n_options: usize,
    out: *mut abi::Source,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires an instance of `create`, and arguments that are valid for the
    // call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let options = Options::read(options, n_options)?;
            let source = shell.opener()?.open(&Call::read(call)?, uri.get()?, &options)?;
            Source::of_instance(source, shell.poison().clone()).into_raw().put(out, "open")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::is_scheme;

    #[test]
    fn schemes_are_lower_case_and_begin_with_a_letter() {
        assert!(["s3", "https", "a", "svn+ssh", "x-1.2"].into_iter().all(is_scheme));
        assert!(!["", "3s", "S3", "s3:", "a b", "ä", "-a"].into_iter().any(is_scheme));
    }
}
