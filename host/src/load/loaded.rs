//! Plugins whose code may be called.

use std::sync::Arc;

use crossdock_isolation::Isolated;
use crossdock_plugin_api::abi;

use super::quarantine::FirstRun;
use crate::metadata::Metadata;

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
