//! The library's version, and process-wide settings.

use std::ffi::c_char;

use crossdock_plugin_api::abi::{ABI_MAJOR, ABI_MINOR, ABI_PATCH, Code, Error as RawError};
use crossdock_plugin_api::{Error, Result};

use crate::door;

const VERSION: &std::ffi::CStr =
    match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// `crossdock_version` of crossdock-host.h.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_version() -> *const c_char {
    VERSION.as_ptr()
}

/// `crossdock_check_version` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_check_version(
    major: u32,
    minor: u32,
    patch: u32,
    err: *mut RawError,
) -> Code {
    // SAFETY: the header requires an `err` that is NULL or initialised.
    unsafe { door::without(err, || check([major, minor, patch], [ABI_MAJOR, ABI_MINOR, ABI_PATCH])) }
}

/// `crossdock_handle_sigbus` of crossdock-host.h.
///
/// # Safety
/// The arguments meet the requirements of crossdock-host.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_handle_sigbus(err: *mut RawError) -> Code {
    let install = || {
        let failed = |error| Error::io(format!("cannot install a handler for SIGBUS: {error}"));
        crossdock::truncated::handle_sigbus().map_err(failed)
    };
    // SAFETY: the header requires an `err` that is NULL or initialised.
    unsafe { door::without(err, install) }
}

fn check(program: [u32; 3], library: [u32; 3]) -> Result<()> {
    if program[..2] == library[..2] && program[2] <= library[2] {
        return Ok(());
    }
    let text = |version: [u32; 3]| version.map(|number| number.to_string()).join(".");
    Err(Error::version(format!(
        "libcrossdock.so {} has ABI version {}, but this program was compiled for {}: compile it with the headers of this \
         library",
        env!("CARGO_PKG_VERSION"),
        text(library),
        text(program)
    )))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn headers_have_the_version_of_the_library_and_are_not_newer() {
        assert!(check([1, 0, 1], [1, 0, 1]).is_ok() && check([1, 0, 0], [1, 0, 2]).is_ok());
        for program in [[1, 0, 3], [1, 1, 0], [2, 0, 0], [0, 5, 0]] {
            assert!(check(program, [1, 0, 2]).is_err(), "{program:?}");
        }
    }
}
