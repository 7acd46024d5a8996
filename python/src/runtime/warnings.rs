//! Delivers warnings of the host and of plugins through Python's `warnings` module.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt::{Debug, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_memory_backend::ProcessWide;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::runtime::errors::warning;

/// Number of undelivered warnings that are kept. The oldest are dropped.
const MAX_PENDING: usize = 256;

/// Warnings that no thread has delivered yet.
static PENDING: ProcessWide<VecDeque<String>> = ProcessWide::new();

/// Whether `PENDING` has warnings. Most calls only read this flag, and need no lock.
static HAS_PENDING: AtomicBool = AtomicBool::new(false);

/// Starts to collect logged warnings and errors for [`after`]. They are logged on any thread,
/// perhaps while a lock of the host or of a plugin is held, so they cannot be delivered at once.
pub fn listen() {
    static ONCE: Once = Once::new();
    // This fails only in the process of an isolated plugin, which has already set its own
    // subscriber.
    ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Listener)));
}

/// Delivers all pending warnings with `warnings.warn`, and returns `result`. If a warning filter
/// turns a warning into an exception and `result` is not an error, returns that exception.
pub fn after<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
    if !HAS_PENDING.swap(false, Ordering::Acquire) {
        return result;
    }
    let mut pending = std::mem::take(&mut *PENDING.lock());
    while let Some(message) = pending.pop_front() {
        if let Err(error) = warn(py, &message) {
            // The next call delivers the remaining warnings.
            PENDING.lock().extend(pending);
            HAS_PENDING.store(true, Ordering::Release);
            return result.and(Err(error));
        }
    }
    result
}

fn warn(py: Python<'_>, message: &str) -> PyResult<()> {
    let message = CString::new(message.replace('\0', " "))?;
    PyErr::warn(py, &warning(py)?, &message, 1)
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target().starts_with("crossdock")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let mut pending = PENDING.lock();
        if pending.len() >= MAX_PENDING {
            pending.pop_front();
        }
        pending.push_back(text.plugin + &text.message);
        HAS_PENDING.store(true, Ordering::Release);
    }

    // Spans are never enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The text of a log event.
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
