//! From a candidate to an entry that may be called. Loading is a trait: a plugin that is linked in goes through the
//! same checks as one from a file, and behaves the same.

mod checks;
mod file;
mod linked;
mod refusal;

use std::sync::Arc;

use crossdock_plugin_api::abi;

pub use checks::host_abi;
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

/// Reads the metadata of a plugin file and applies every check that needs none of its code.
///
/// # Errors
/// The first reason to refuse it; see [`Refusal`].
pub fn inspect(path: impl Into<std::path::PathBuf>) -> Result<Metadata, Refused> {
    PluginFile::new(path).metadata()
}
