//! Lock files, which list plugins by their hashes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::document::{self, PolicyError};
use crate::hash::Sha256;

/// The only version of the file format.
const VERSION: u32 = 1;

const HEADING: &str = "\
# Written by `crossdock lock`: the plugins that a policy with `lock` and this file's path lets load.
";

/// The plugins that may be loaded.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// The path of the lock file, for messages.
    pub file: PathBuf,
    /// The plugins, sorted by name.
    pub plugins: Vec<Locked>,
}

/// A plugin in a lock file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The plugin's name.
    pub name: String,
    /// The plugin's version.
    pub version: semver::Version,
    /// The name of the plugin's file, without a folder. The name is not checked.
    pub file: String,
    /// The hash of the plugin's file.
    pub sha256: Sha256,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(default, rename = "plugin")]
    plugins: Vec<Locked>,
}

impl Lock {
    /// Reads a lock file.
    ///
    /// # Errors
    /// The file is missing, other users can write it, or it is not a valid lock.
    pub fn read(file: &Path) -> Result<Self, PolicyError> {
        Self::from_text(file, &document::read(file)?)
    }

    /// Parses a lock as if `text` were the content of `file`.
    ///
    /// # Errors
    /// The text is not a valid lock.
    pub fn from_text(file: &Path, text: &str) -> Result<Self, PolicyError> {
        let document: Document = document::parse(file, text)?;
        if document.version != VERSION {
            return Err(PolicyError::Contradiction {
                file: file.to_path_buf(),
                message: format!("the version is {}, expected {VERSION}", document.version),
            });
        }
        Ok(Self { file: file.to_path_buf(), plugins: document.plugins })
    }

    /// Creates a lock of these plugins.
    pub fn new(file: impl Into<PathBuf>, mut plugins: Vec<Locked>) -> Self {
        plugins.sort();
        Self { file: file.into(), plugins }
    }

    /// Returns the text of the lock file.
    pub(crate) fn to_text(&self) -> Result<String, toml::ser::Error> {
        let document = Document { version: VERSION, plugins: self.plugins.clone() };
        toml::to_string(&document).map(|body| format!("{HEADING}{body}"))
    }
}
