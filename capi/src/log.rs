//! Passes log messages to the application's callback.

use std::fmt::{Debug, Write};

use crossdock_plugin_api::{Error, Result, abi as api};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

use crate::abi::{HostSettings, Log, ReleaseData};
use crate::arguments::Data;

/// The log levels of the header, each with the equal level of `tracing`.
const LEVELS: [(i32, Level); 5] = [
    (api::LOG_ERROR, Level::ERROR),
    (api::LOG_WARN, Level::WARN),
    (api::LOG_INFO, Level::INFO),
    (api::LOG_DEBUG, Level::DEBUG),
    (api::LOG_TRACE, Level::TRACE),
];

/// A subscriber that calls the application's callback. The callback's data is released when the
/// last object that uses this subscriber is dropped.
struct Listener {
    log: Option<Log>,
    level: LevelFilter,
    data: LogData,
}

struct LogData {
    data: Data,
    release: Option<ReleaseData>,
}

impl Drop for LogData {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the header requires a function that may be called once with this argument on
            // any thread.
            unsafe { release(self.data.get()) };
        }
    }
}

/// Returns the listener for the callbacks in the settings, or `None` if there are no callbacks.
/// Releases the log's data also on failure.
pub fn listener(settings: &HostSettings) -> Result<Option<Dispatch>> {
    let data = LogData { data: Data(settings.log_data), release: settings.log_release };
    let requested = if settings.log_level == 0 { api::LOG_WARN } else { settings.log_level };
    let level = LEVELS.iter().find(|(number, _)| *number == requested).map(|(_, level)| *level);
    let level = level.ok_or_else(|| {
        Error::invalid_argument(format!("log_level is {requested}, expected 0 to {}", api::LOG_TRACE))
    })?;
    if settings.log.is_none() && settings.log_release.is_none() {
        return Ok(None);
    }
    let level = settings.log.map_or(LevelFilter::OFF, |_| level.into());
    Ok(Some(Dispatch::new(Listener { log: settings.log, level, data })))
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let Some(log) = self.log else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = LEVELS.iter().find(|(_, level)| level == event.metadata().level());
        let level = level.map_or(api::LOG_TRACE, |(number, _)| *number);
        // The header promises that texts are followed by a NUL.
        let (plugin, message) = (fields.plugin + "\0", fields.message.replace('\0', "") + "\0");
        let str = |text: &str| api::Str::new(text.trim_end_matches('\0'));
        // SAFETY: the header requires that the callback and its data are valid until `log_release`
        // is called, which `LogData` does on drop. The texts are valid for the call.
        unsafe { log(self.data.data.get(), level, str(&plugin), str(&message)) };
    }

    // The functions for spans do nothing, because `enabled` rejects spans.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Fields {
    plugin: String,
    message: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "plugin" => self.plugin = value.to_string(),
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
