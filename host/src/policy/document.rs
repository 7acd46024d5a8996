//! Policies and locks as documents: read from files that nobody else can write, for they decide what runs, and as TOML.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::refusal::Refusal;
use crate::trust;

/// No policy and no lock is longer.
const LIMIT_BYTES: u64 = 4 << 20;

/// Why a policy, or the lock file that it names, is not used; then nothing is loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PolicyError {
    #[error("'{}' is not used: {reason}", file.display())]
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
        let n = open.take(LIMIT_BYTES + 1).read_to_string(&mut text).map_err(Refusal::Unreadable)?;
        if n as u64 > LIMIT_BYTES {
            let long = format!("it is longer than {LIMIT_BYTES} bytes");
            return Err(Refusal::Unreadable(std::io::Error::other(long)));
        }
        Ok(text)
    };
    read().map_err(|reason| PolicyError::Untrusted { file: file.to_path_buf(), reason })
}

/// A document of `file`, whose text this is.
pub(super) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, PolicyError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        PolicyError::Text { file: file.to_path_buf(), line, message: error.message().to_string() }
    })
}
