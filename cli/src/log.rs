//! Prints log events of the host and of plugins to standard error, at the level of [`VARIABLE`].

use std::fmt::{Debug, Write};

use crossdock::Error;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::terminal::report;

/// The environment variable that sets the least severe level of printed events.
pub const VARIABLE: &str = "CROSSDOCK_LOG";

/// Starts printing events. The default level is `warn`.
///
/// # Errors
/// [`Error::Usage`] if the variable's value is not a level.
pub fn start() -> Result<(), Error> {
    let level = match std::env::var_os(VARIABLE) {
        None => Level::WARN,
        Some(text) => parse(&text.to_string_lossy())?,
    };
    // This call fails only if a subscriber is already set. The process has just started, so no
    // subscriber is set.
    let _ = tracing::subscriber::set_global_default(Lines { level });
    Ok(())
}

fn parse(text: &str) -> Result<Level, Error> {
    match text {
        "error" => Ok(Level::ERROR),
        "warn" | "" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        other => {
            Err(Error::Usage(format!("{VARIABLE} is '{other}', expected error, warn, info, debug or trace")))
        }
    }
}

struct Lines {
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level))
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let kind = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        report(kind, &(text.plugin + &text.message));
    }

    // The span functions do nothing, because spans are never enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The text of an event.
#[derive(Default)]
struct EventText {
    plugin: String,
    message: String,
}

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "plugin" => self.plugin = format!("{value}: "),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.message, " {name}={value:?}"),
        };
    }
}
