//! What plugins and the host have to say besides errors, as warnings of Python.

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

use crate::errors::warning;

/// Warnings that wait for a thread which may call Python; of more the oldest are dropped.
const MOST_WAITING: usize = 256;

static WAITING: ProcessWide<VecDeque<String>> = ProcessWide::new();

/// Whether there are any, for those who look after every call.
static ANY: AtomicBool = AtomicBool::new(false);

/// From now on warnings and errors that are logged are kept for [`after`]. They may come on any thread, and while plugins' or the
/// host's locks are held, so Python is not called there.
pub fn listen() {
    static ONCE: Once = Once::new();
    // Fails only where this module has a subscriber already, which is the process of an isolated plugin.
    ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Listener)));
}

/// `result`, once all warnings that wait have been given to `warnings.warn`: an exception where a filter makes one of a warning
/// and nothing else went wrong.
pub fn after<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
    if !ANY.swap(false, Ordering::Acquire) {
        return result;
    }
    let mut waiting = std::mem::take(&mut *WAITING.lock());
    while let Some(message) = waiting.pop_front() {
        if let Err(error) = warn(py, &message) {
            // The others are given by the next call.
            WAITING.lock().extend(waiting);
            ANY.store(true, Ordering::Release);
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
        let mut words = Words::default();
        event.record(&mut words);
        let mut waiting = WAITING.lock();
        if waiting.len() >= MOST_WAITING {
            waiting.pop_front();
        }
        waiting.push_back(words.plugin + &words.message);
        ANY.store(true, Ordering::Release);
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

#[derive(Default)]
struct Words {
    plugin: String,
    message: String,
}

impl Visit for Words {
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
