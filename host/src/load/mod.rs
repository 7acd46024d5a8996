//! From a candidate to an entry that may be called. Loading is a trait: a plugin that is linked in goes through the
//! same checks as one from a file, and behaves the same.

mod checks;
mod file;
mod linked;
mod refusal;
mod trust;

use std::sync::Arc;

use crossdock_plugin_api::abi;

pub use checks::{host_abi, struct_names};
pub use file::PluginFile;
pub use linked::LinkedPlugin;
pub use refusal::{Refusal, Refused};

use crate::metadata::Metadata;

/// Something that may turn out to be a plugin.
pub trait Load: Send + Sync {
    /// For messages: a path, or the name of a linked-in plugin.
    fn who(&self) -> String;

    /// Who it is, without running any of its code.
    fn metadata(&self) -> Result<Metadata, Refused>;

    /// All checks up to and including those of the entry. What was mapped stays mapped, refused or not.
    fn load(&self) -> Result<Loaded, Refused>;
}

/// A plugin that passed every check. Its code stays mapped for the life of the process.
#[derive(Clone)]
pub struct Loaded {
    /// Where it came from.
    pub who: String,
    /// Who it says it is.
    pub metadata: Arc<Metadata>,
    /// Its functions.
    pub entry: &'static abi::PluginEntry,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} from {}", self.metadata.name, self.metadata.version, self.who)
    }
}

/// What a plugin file says of itself, and whether it would be loaded, without running any of its code.
#[derive(Debug)]
pub struct Inspection {
    /// What it says.
    pub metadata: Metadata,
    /// The first reason not to load it, of those that show without running it.
    pub refusal: Option<Refusal>,
}

/// Looks at a plugin file.
///
/// # Errors
/// The file has no metadata to show.
pub fn inspect(path: impl Into<std::path::PathBuf>) -> Result<Inspection, Refused> {
    PluginFile::new(path).inspect()
}
