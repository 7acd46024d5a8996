//! Errors of the host. `Display` describes one layer; `source()` returns the next.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossdock_isolation::truncated::Truncated;
use crossdock_plugin_api::{Code, Error as ApiError};

use crate::policy::PolicyError;
use crate::refusal::Refused;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the host, or of a component that it called.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid, for example because of an unknown name or contradicting settings.
    #[error("{0}")]
    Usage(String),
    /// No plugin recognises the input.
    #[error("{0}")]
    Unrecognised(String),
    /// A policy is invalid, so no plugin is loaded.
    #[error("policy {0}")]
    Policy(PolicyError),
    /// A plugin was not loaded.
    #[error("{0}")]
    Refused(Arc<Refused>),
    /// A plugin reported an error or violated the interface's contract.
    #[error("{plugin} could not {what}")]
    Plugin {
        /// The plugin's name and version.
        plugin: String,
        /// The step that failed, for example "read 'x'".
        what: String,
        /// The plugin's error.
        source: ApiError,
    },
    /// An input or a result contains malformed data.
    #[error("{what}")]
    Data {
        /// The step that failed, or the location of the malformed data.
        what: String,
        /// The error that describes the violated rule.
        source: ApiError,
    },
    /// An operation on a device or its memory failed.
    #[error("{what}")]
    Device {
        /// The step that failed.
        what: String,
        /// The error that caused the failure.
        source: ApiError,
    },
    /// An operation on a file, a pipe or a disk failed.
    #[error("{what}")]
    Io {
        /// The step that failed, with the file's name.
        what: String,
        /// The file, if it has a path.
        path: Option<PathBuf>,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The operation ended because the cancel flag is set.
    #[error("cancelled")]
    Cancelled,
}

impl From<Truncated> for Error {
    fn from(truncated: Truncated) -> Self {
        Self::Data { what: "cannot read a mapped file".into(), source: truncated.into() }
    }
}

impl Error {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), path: None, source }
    }

    /// An error of the file at `path` in the step `what`, for example "cannot open".
    pub fn file(what: &str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { what: format!("{what} '{}'", path.display()), path: Some(path.into()), source }
    }

    /// An error that one of the host's own checks found, in the step or at the location `what`.
    pub(crate) fn data(what: impl Into<String>, source: ApiError) -> Self {
        match source.code() {
            Code::CANCELLED => Self::Cancelled,
            Code::DEVICE | Code::OUT_OF_MEMORY => Self::Device { what: what.into(), source },
            _ => Self::Data { what: what.into(), source },
        }
    }

    /// The code of the plugin interface that corresponds to this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Plugin { source, .. } | Self::Data { source, .. } | Self::Device { source, .. } => {
                source.code()
            }
            Self::Usage(_) | Self::Unrecognised(_) => Code::INVALID_ARGUMENT,
            Self::Policy(_) | Self::Refused(_) => Code::UNSUPPORTED,
            Self::Io { .. } => Code::IO,
            Self::Cancelled => Code::CANCELLED,
        }
    }

    /// The error of the plugin interface that led to this error, if there is one. It states the
    /// position in the input and whether another attempt may succeed, if they are known.
    pub fn api_error(&self) -> Option<&ApiError> {
        match self {
            Self::Plugin { source, .. } | Self::Data { source, .. } | Self::Device { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }

    /// The error as one of the plugin interface: the same code, position and details, and the
    /// message of [`Self::one_line`].
    pub fn to_api_error(&self) -> ApiError {
        let error = ApiError::new(self.code(), self.one_line());
        let Some(source) = self.api_error() else { return error };
        let error = error.with_position_of(source);
        match source.details() {
            Some(details) => error.with_details(details),
            None => error,
        }
    }

    /// The error and its sources in one line, separated by colons, without control characters.
    pub fn one_line(&self) -> String {
        let mut line = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(error) = next {
            let text = error.to_string();
            if !line.contains(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            next = error.source();
        }
        one_line(&line)
    }
}

/// Joins the lines of a text and replaces its control characters, because messages of plugins and
/// names of files must not control a terminal.
pub fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Replaces control characters of a text by `?`, and keeps its length.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_joins_layers_and_replaces_control_characters() {
        let source = ApiError::bad_data("row 3:\n  \x1b[31mred");
        let error = Error::Plugin { plugin: "p 1.0.0".into(), what: "read 'x'".into(), source };
        assert_eq!(error.one_line(), "p 1.0.0 could not read 'x': row 3: ?[31mred");
    }
}
