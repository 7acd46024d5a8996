//! Records of a trace as plain data.

use std::borrow::Cow;

use crossdock_memory_backend::Phase;
use serde::{Deserialize, Serialize};

/// The beginning or the end of a call.
#[derive(Serialize, Deserialize)]
pub enum PhaseParts {
    Begin { plugin: String, what: String, is_callback: bool },
    End { bytes: Option<u64>, error: Option<String> },
}

impl From<Phase<'_>> for PhaseParts {
    fn from(phase: Phase<'_>) -> Self {
        match phase {
            Phase::Begin { plugin, what, is_callback } => {
                Self::Begin { plugin: plugin.into_owned(), what: what.into_owned(), is_callback }
            }
            Phase::End { bytes, error } => Self::End { bytes, error: error.map(Cow::into_owned) },
        }
    }
}

impl From<PhaseParts> for Phase<'static> {
    /// Truncates all texts to 1000 characters, because the process could send texts of any length.
    fn from(parts: PhaseParts) -> Self {
        const MAX_CHARS: usize = 1000;
        let truncate = |text: String| text.chars().take(MAX_CHARS).collect();
        match parts {
            PhaseParts::Begin { plugin, what, is_callback } => {
                Self::Begin { plugin: truncate(plugin), what: truncate(what), is_callback }
            }
            PhaseParts::End { bytes, error } => Self::End { bytes, error: error.map(truncate) },
        }
    }
}
