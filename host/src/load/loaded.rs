//! A plugin that can be called.

use std::sync::Arc;

use crossdock_isolation::IsolatedPlugin;
use crossdock_plugin_api::abi;

use super::quarantine::FirstRun;
use crate::metadata::Metadata;

/// A plugin that passed every check. Its code stays mapped until the process ends.
#[derive(Clone)]
pub struct Loaded {
    /// The candidate's path, or the name of a linked-in plugin.
    pub label: String,
    /// The metadata of the plugin's file.
    pub metadata: Arc<Metadata>,
    /// Whether the plugin was found beside the executable or was installed with the library, so
    /// that the user did not choose it.
    pub(crate) is_installed: bool,
    /// The plugin's functions, if its code is in this process.
    pub entry: Option<&'static abi::PluginEntry>,
    /// The plugin's process, if the plugin is isolated.
    pub(crate) isolated: Option<Arc<IsolatedPlugin>>,
    /// The first run of the plugin's file; `None` for a linked-in plugin.
    pub(crate) first_run: Option<Arc<FirstRun>>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} from {}", self.metadata.name, self.metadata.version, self.label)
    }
}
