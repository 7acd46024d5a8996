//! The library's version, and process-wide settings.

use std::ffi::c_char;

use crossdock_plugin_api::abi::{ABI_MAJOR, ABI_MINOR, Code, Error as RawError};
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
pub unsafe extern "C" fn crossdock_check_version(major: u32, minor: u32, err: *mut RawError) -> Code {
    // SAFETY: the header requires an `err` that is NULL or initialised.
    unsafe { door::without(err, || check((major, minor), (ABI_MAJOR, ABI_MINOR))) }
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

fn check(program: (u32, u32), library: (u32, u32)) -> Result<()> {
    let (major, minor) = library;
    let is_compatible =
        if major == 0 { program == library } else { program.0 == major && program.1 <= minor };
    if is_compatible {
        return Ok(());
    }
    Err(Error::version(format!(
        "libcrossdock.so {} has ABI version {major}.{minor}, but this program was compiled for {}.{}: compile it with the \
         headers of this library",
        env!("CARGO_PKG_VERSION"),
        program.0,
        program.1
    )))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn header_minor_version_must_be_equal_before_1_0_and_not_newer_afterwards() {
        assert!(check((0, 1), (0, 1)).is_ok());
        assert!(check((0, 1), (0, 2)).is_err() && check((0, 2), (0, 1)).is_err());
        assert!(check((1, 1), (1, 3)).is_ok());
        assert!(check((1, 3), (1, 1)).is_err() && check((0, 1), (1, 1)).is_err());
    }
}
