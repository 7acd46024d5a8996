//! Passes messages of plugins to the host's log.

use std::borrow::Cow;

use crossdock_plugin_api::abi;

/// Logs a plugin's message under the target `crossdock::plugin`. `level` is a log level of
/// crossdock.h. A message longer than 8 KiB is truncated.
pub fn log_plugin_message(plugin: &str, level: i32, message: &str) {
    /// Limits the memory of a message, because a subscriber may keep all messages.
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
