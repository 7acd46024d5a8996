//! What can go wrong in the host, by layer. `Display` speaks for its own layer; `source()` carries the next.

use std::sync::Arc;

use crossdock_isolation::truncated::Truncated;
use crossdock_plugin_api::{Code, Error as ApiError};

use crate::policy::PolicyError;
use crate::refusal::Refused;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the host, or of something that it called.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for something that makes no sense: an unknown name, contradicting settings.
    #[error("{0}")]
    Usage(String),
    /// No plugin recognises the input.
    #[error("{0}")]
    Unrecognised(String),
    /// A policy is not used, so that nothing is loaded.
    #[error("policy {0}")]
    Policy(PolicyError),
    /// A plugin was not loaded.
    #[error("{0}")]
    Refused(Arc<Refused>),
    /// A plugin reported a failure, or broke the contract.
    #[error("{plugin} could not {what}")]
    Plugin {
        /// Name and version.
        plugin: String,
        /// What it was asked to do.
        what: String,
        /// What it said.
        source: ApiError,
    },
    /// Data contradicts itself or its format.
    #[error("{what}")]
    Data {
        /// Where it was found.
        what: String,
        /// What is wrong.
        source: ApiError,
    },
    /// A device or its memory.
    #[error("{what}")]
    Device {
        /// What was to be done.
        what: String,
        /// What failed.
        source: ApiError,
    },
    /// A file, a pipe, a disk.
    #[error("{what}")]
    Io {
        /// What was to be done, and to which file.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Somebody set the cancel flag.
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
        Self::Io { what: what.into(), source }
    }

    /// Data that was found wrong by our own checks, at `what`.
    pub(crate) fn data(what: impl Into<String>, source: ApiError) -> Self {
        match source.code() {
            Code::CANCELLED => Self::Cancelled,
            Code::DEVICE | Code::OUT_OF_MEMORY => Self::Device { what: what.into(), source },
            _ => Self::Data { what: what.into(), source },
        }
    }

    /// What it is, in the words of the plugin interface.
    pub(crate) fn code(&self) -> Code {
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

    /// The whole chain in one line: each layer's words, joined by colons.
    pub fn one_line(&self) -> String {
        let mut line = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(error) = next {
            let words = error.to_string();
            if !line.contains(&words) {
                line.push_str(": ");
                line.push_str(&words);
            }
            next = error.source();
        }
        one_line(&line)
    }
}

/// A text as one line without control characters: what plugins say, and what files are called, must not steer anybody's
/// terminal.
pub fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A text without control characters, as long as it is: a path with two spaces in it keeps them.
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
    fn one_line_joins_the_layers_and_is_one_line_without_control_characters() {
        let source = ApiError::bad_data("row 3:\n  \x1b[31mred");
        let error = Error::Plugin { plugin: "p 1.0.0".into(), what: "read 'x'".into(), source };
        assert_eq!(error.one_line(), "p 1.0.0 could not read 'x': row 3: ?[31mred");
    }
}
