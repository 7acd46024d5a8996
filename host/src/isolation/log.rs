//! What plugins say to their host's log, from process to process.

use std::fmt::Write;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// In the host: `who` said this.
pub fn heard(who: &str, level: u8, message: &str) {
    match LEVELS.get(usize::from(level)) {
        Some(&Level::ERROR) => tracing::error!(target: "crossdock::plugin", plugin = who, "{message}"),
        Some(&Level::WARN) => tracing::warn!(target: "crossdock::plugin", plugin = who, "{message}"),
        Some(&Level::INFO) => tracing::info!(target: "crossdock::plugin", plugin = who, "{message}"),
        Some(&Level::DEBUG) => tracing::debug!(target: "crossdock::plugin", plugin = who, "{message}"),
        _ => tracing::trace!(target: "crossdock::plugin", plugin = who, "{message}"),
    }
}

/// In the plugin's process: everything is told to `tell`.
pub struct Teller<T>(pub T);

impl<T: Fn(u8, String) + Send + Sync + 'static> Subscriber for Teller<T> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = LEVELS.iter().position(|level| level == event.metadata().level()).unwrap_or_default();
        (self.0)(level as u8, text.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
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
