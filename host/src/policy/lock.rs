//! Lock files: the plugins of one moment, by their hashes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::document::{self, PolicyError};
use crate::hash::Sha256;

/// What the only version of the format that there is calls itself.
const VERSION: u32 = 1;

const HEADING: &str = "\
# Written by `crossdock lock`: the plugins that a policy with `lock` and this file's path lets load.
";

/// The plugins that a lock file lets load.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// The file, for messages.
    pub file: PathBuf,
    /// Sorted by name.
    pub plugins: Vec<Locked>,
}

/// A plugin in a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// What it calls itself.
    pub name: String,
    /// Its own version.
    pub version: semver::Version,
    /// The name of its file, without its folder: for readers, it is not asked for.
    pub file: String,
    /// Of its file's bytes.
    pub sha256: Sha256,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    #[serde(default, rename = "plugin")]
    plugins: Vec<Locked>,
}

impl Lock {
    /// What this file says.
    ///
    /// # Errors
    /// It is missing, somebody else could write it, or it is no lock.
    pub fn read(file: &Path) -> Result<Self, PolicyError> {
        Self::from_text(file, &document::read(file)?)
    }

    /// What a text says that is to stand for this file.
    ///
    /// # Errors
    /// It is no lock.
    pub fn from_text(file: &Path, text: &str) -> Result<Self, PolicyError> {
        let written: Written = document::parse(file, text)?;
        if written.version != VERSION {
            return Err(PolicyError::Contradiction {
                file: file.to_path_buf(),
                message: format!("it is of version {}, expected {VERSION}", written.version),
            });
        }
        Ok(Self { file: file.to_path_buf(), plugins: written.plugins })
    }

    /// A lock of these.
    pub fn of(file: impl Into<PathBuf>, mut plugins: Vec<Locked>) -> Self {
        plugins.sort();
        Self { file: file.into(), plugins }
    }

    /// The content of its file.
    pub(crate) fn to_text(&self) -> Result<String, toml::ser::Error> {
        let written = Written { version: VERSION, plugins: self.plugins.clone() };
        toml::to_string(&written).map(|body| format!("{HEADING}{body}"))
    }
}
