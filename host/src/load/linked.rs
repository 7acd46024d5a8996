//! Plugins that are linked into the executable, for tests and for applications.

use crossdock_plugin_api::abi;

use super::checked::{Checked, Load};
use super::checks;
use crate::metadata::Metadata;
use crate::refusal::{Refusal, Refused};

/// The entry and the metadata of a linked-in plugin.
pub struct LinkedPlugin {
    entry: &'static abi::PluginEntry,
    metadata: abi::PluginMeta,
}

impl LinkedPlugin {
    /// Creates a linked-in plugin from its two symbols, which `crossdock_plugin!` or a C plugin
    /// defines.
    pub const fn new(entry: &'static abi::PluginEntry, metadata: abi::PluginMeta) -> Self {
        Self { entry, metadata }
    }
}

// SAFETY: both fields are constant data, and the contract lets any thread call the entry's
// functions.
unsafe impl Send for LinkedPlugin {}
// SAFETY: no field can be modified, and the contract lets several threads call the entry's
// functions at once.
unsafe impl Sync for LinkedPlugin {}

impl Load for LinkedPlugin {
    fn label(&self) -> String {
        match Metadata::from_raw(&self.metadata) {
            Ok(metadata) => format!("linked:{}", metadata.name),
            Err(_) => "linked".into(),
        }
    }

    fn check(&self) -> Result<Checked, Refused> {
        let metadata = Metadata::from_raw(&self.metadata).map_err(Refusal::from);
        let checked = metadata.and_then(|metadata| checks::check_metadata(&metadata).map(|()| metadata));
        let metadata = checked.map_err(|reason| reason.into_refused(self.label()))?;
        Ok(Checked::from_linked(self.label(), metadata, self.entry))
    }
}
