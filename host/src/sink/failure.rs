//! What the system says of writes that failed.

use crossdock_plugin_api::Error as ApiError;

/// What a failed write to `name` means.
pub(super) fn write_error(name: &str, error: &std::io::Error) -> ApiError {
    ApiError::io(match error.raw_os_error() {
        Some(libc::EPIPE) => format!("'{name}': its reader closed it (broken pipe)"),
        // The bytes come from a mapped input, and the part of it where they were is no more.
        Some(libc::EFAULT) => format!("'{name}': an input was cut short while it was being read"),
        _ => format!("'{name}': {error}"),
    })
}
