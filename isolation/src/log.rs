//! What plugins say to their host's log: as the log has it, and on its way from their process.

use std::borrow::Cow;
use std::fmt::Write;

use crossdock_plugin_api::abi;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// As crossdock.h numbers them, from 1 on.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// In the plugin's process: everything is told to `tell`.
pub struct Teller<T>(pub T);

impl<T: Fn(i32, String) + Send + Sync + 'static> Subscriber for Teller<T> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = LEVELS.iter().zip(1..).find(|(level, _)| *level == event.metadata().level());
        (self.0)(level.map_or(abi::LOG_TRACE, |(_, number)| number), text.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// A plugin said this, at one of the levels of crossdock.h.
pub fn heard(plugin: &str, level: i32, message: &str) {
    /// Whoever listens may keep it.
    const MOST_BYTES: usize = 8 << 10;
    let message = match message.len() {
        0..=MOST_BYTES => Cow::Borrowed(message),
        bytes => {
            let cut = message.get(..message.floor_char_boundary(MOST_BYTES)).unwrap_or_default();
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

/// The message of an event.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            // Writing to a String cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
