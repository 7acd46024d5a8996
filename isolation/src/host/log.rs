//! Passes messages of plugins to the host's log.

use std::borrow::Cow;

use crossdock_plugin_api::abi;

/// Logs a plugin's message, at a level of crossdock.h, under the target `crossdock::plugin`. A
/// message of more than 8 KiB is truncated.
pub fn log_plugin_message(plugin: &str, level: i32, message: &str) {
    /// A subscriber may keep all messages, so that a plugin decides how much memory they take.
    const MAX_BYTES: usize = 8 << 10;
    let message = match message.len() {
        0..=MAX_BYTES => Cow::Borrowed(message),
        bytes => {
            let cut = message.get(..message.floor_char_boundary(MAX_BYTES)).unwrap_or_default();
            Cow::Owned(format!("{cut} [{} more bytes]", bytes - cut.len()))
        }
    };
    match level {
        abi::LOG_ERROR => tracing::error!(target: "crossdock::plugin", plugin, "{message}"),
        abi::LOG_WARN => tracing::warn!(target: "crossdock::plugin", plugin, "{message}"),
        abi::LOG_INFO => tracing::info!(target: "crossdock::plugin", plugin, "{message}"),
        abi::LOG_DEBUG => tracing::debug!(target: "crossdock::plugin", plugin, "{message}"),
        _ => tracing::trace!(target: "crossdock::plugin", plugin, "{message}"),
    }
}
