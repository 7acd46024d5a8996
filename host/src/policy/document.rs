//! Reads policies and locks, as TOML, from files that only root and this user can write.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::refusal::Refusal;
use crate::trust;

/// The maximum length of a policy or lock file.
const MAX_BYTES: u64 = 4 << 20;

/// A policy, or the lock file that it names, is invalid or not trusted. In this case, no plugin is
/// loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PolicyError {
    #[error("'{}' is not trusted: {reason}", file.display())]
    Untrusted { file: PathBuf, reason: Refusal },
    #[error("'{}', line {line}: {message}", file.display())]
    Text { file: PathBuf, line: usize, message: String },
    #[error("'{}': {message}", file.display())]
    Contradiction { file: PathBuf, message: String },
}

/// The text of a file that only root and this process's user can write.
pub(super) fn read(file: &Path) -> Result<String, PolicyError> {
    let read = || -> Result<String, Refusal> {
        let (open, stat) = trust::open(file)?;
        trust::check_file(&stat)?;
        trust::check_directories(file)?;
        let mut text = String::new();
        let n = open.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(Refusal::Unreadable)?;
        if n as u64 > MAX_BYTES {
            let too_long = format!("expected at most {MAX_BYTES} bytes");
            return Err(Refusal::Unreadable(std::io::Error::other(too_long)));
        }
        Ok(text)
    };
    read().map_err(|reason| PolicyError::Untrusted { file: file.to_path_buf(), reason })
}

/// Parses the text of `file`.
pub(super) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, PolicyError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        PolicyError::Text { file: file.to_path_buf(), line, message: error.message().to_string() }
    })
}
