//! Names in schemas.

use crossdock_plugin_api::{Error, Result};

/// Names go through C, where a NUL would end them.
pub fn without_nul<'a>(text: &'a str, what: &str) -> Result<&'a str> {
    if text.contains('\0') {
        return Err(Error::unsupported(format!(
            "{what}, '{}', has a NUL in it, which Arrow's C interface cannot carry",
            text.escape_debug()
        )));
    }
    Ok(text)
}
