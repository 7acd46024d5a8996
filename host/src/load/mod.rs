//! From a candidate to an entry that may be called. Loading is a trait: a plugin that is linked in goes through the
//! same checks as one from a file, and behaves the same.

mod alive;
mod checked;
mod checks;
mod file;
mod image;
mod linked;
mod needs;
mod permission;
pub(crate) mod quarantine;
mod sealed;
mod signature;

use std::sync::Arc;

use crossdock_isolation::Isolated;
use crossdock_plugin_api::abi;

pub use checked::Checked;
pub use checks::{host_abi, struct_names};
pub(crate) use file::Handed;
pub use file::PluginFile;
pub use linked::LinkedPlugin;
pub use needs::is_system_library;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use signature::signature_in;
pub use signature::{Fingerprint, Signature, signature_file};

pub use crate::refusal::{FAILED, Refusal, Refused};

use crate::metadata::{Metadata, Needs};
use quarantine::FirstRun;

/// Something that may turn out to be a plugin.
pub trait Load: Send + Sync {
    /// For messages: a path, or the name of a linked-in plugin.
    fn who(&self) -> String;

    /// All checks that need none of its code.
    ///
    /// # Errors
    /// The first reason not to load it.
    fn check(&self) -> Result<Checked, Refused>;

    /// The same, and then its code: all checks up to and including those of the entry.
    ///
    /// # Errors
    /// The first reason not to use it.
    fn load(&self) -> Result<Loaded, Refused> {
        self.check()?.load()
    }
}

/// A plugin that passed every check. Its code stays mapped for the life of the process.
#[derive(Clone)]
pub struct Loaded {
    /// Where it came from.
    pub who: String,
    /// Who it says it is.
    pub metadata: Arc<Metadata>,
    /// Its functions, where its code is in this process.
    pub entry: Option<&'static abi::PluginEntry>,
    /// Where it is not.
    pub(crate) isolated: Option<Arc<Isolated>>,
    /// `None` where it is linked in.
    pub(crate) first_run: Option<Arc<FirstRun>>,
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
    /// What would be loaded with it.
    pub needs: Needs,
    /// What its bytes are.
    pub fingerprint: Fingerprint,
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
