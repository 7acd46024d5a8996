//! Sends the tracing events of the plugin's process to its host.

use std::fmt::Write;

use crossdock_plugin_api::abi;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The log levels that crossdock.h numbers, in order, from 1.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// A subscriber that passes each event's level and message to a function.
pub struct HostLogger<T>(pub T);

impl<T: Fn(i32, String) + Send + Sync + 'static> Subscriber for HostLogger<T> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = LEVELS.iter().zip(1..).find(|(level, _)| *level == event.metadata().level());
        (self.0)(level.map_or(abi::LOG_TRACE, |(_, level)| level), text.0);
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
