//! Which library this is, and what it does to the process.

use std::ffi::c_char;

use crossdock_plugin_api::abi::{ABI_MAJOR, ABI_MINOR, Code, Error as RawError};
use crossdock_plugin_api::{Error, Result};

use crate::door;

const VERSION: &std::ffi::CStr =
    match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn crossdock_version() -> *const c_char {
    VERSION.as_ptr()
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_check_version(major: u32, minor: u32, err: *mut RawError) -> Code {
    // SAFETY: the caller's error struct.
    unsafe { door::without(err, || check((major, minor), (ABI_MAJOR, ABI_MINOR))) }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crossdock_handle_sigbus(err: *mut RawError) -> Code {
    let install = || {
        let failed = |error| Error::io(format!("cannot install a handler for SIGBUS: {error}"));
        crossdock::truncated::handle_sigbus().map_err(failed)
    };
    // SAFETY: the caller's error struct.
    unsafe { door::without(err, install) }
}

fn check(wanted: (u32, u32), here: (u32, u32)) -> Result<()> {
    let fits = if here.0 == 0 { wanted == here } else { wanted.0 == here.0 && wanted.1 <= here.1 };
    if fits {
        return Ok(());
    }
    Err(Error::version(format!(
        "libcrossdock.so {} speaks ABI {}.{}, and this program was compiled for {}.{}: compile it with the headers of the \
         library that it runs with",
        env!("CARGO_PKG_VERSION"),
        here.0,
        here.1,
        wanted.0,
        wanted.1
    )))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn before_1_0_the_minors_are_the_same_and_after_it_the_library_may_be_newer() {
        assert!(check((0, 1), (0, 1)).is_ok());
        assert!(check((0, 1), (0, 2)).is_err() && check((0, 2), (0, 1)).is_err());
        assert!(check((1, 1), (1, 3)).is_ok());
        assert!(check((1, 3), (1, 1)).is_err() && check((0, 1), (1, 1)).is_err());
    }
}
