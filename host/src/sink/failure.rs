//! Describes failed writes.

use crossdock_plugin_api::Error as ApiError;

/// The error of a failed write to `name`.
pub(super) fn write_error(name: &str, error: &std::io::Error) -> ApiError {
    ApiError::io(match error.raw_os_error() {
        Some(libc::EPIPE) => format!("'{name}': the reader closed the output (broken pipe)"),
        // The bytes to write are in a mapped input that was truncated.
        Some(libc::EFAULT) => format!("'{name}': an input was cut short while it was being read"),
        _ => format!("'{name}': {error}"),
    })
}
