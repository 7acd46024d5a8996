//! Plugins that are part of the executable: for tests, and for applications that want them so.

use crossdock_plugin_api::abi;

use super::checked::{Checked, Load};
use super::checks;
use crate::metadata::Metadata;
use crate::refusal::{Refusal, Refused};

/// An entry and its metadata, linked in.
pub struct LinkedPlugin {
    entry: &'static abi::PluginEntry,
    metadata: abi::PluginMeta,
}

impl LinkedPlugin {
    /// What `crossdock_plugin!` would export, or a C plugin's two symbols.
    pub const fn new(entry: &'static abi::PluginEntry, metadata: abi::PluginMeta) -> Self {
        Self { entry, metadata }
    }
}

// SAFETY: both are constant data; the entry's functions are callable from any thread by contract.
unsafe impl Send for LinkedPlugin {}
// SAFETY: as above.
unsafe impl Sync for LinkedPlugin {}

impl Load for LinkedPlugin {
    fn who(&self) -> String {
        match Metadata::from_raw(&self.metadata) {
            Ok(metadata) => format!("linked:{}", metadata.name),
            Err(_) => "linked".into(),
        }
    }

    fn check(&self) -> Result<Checked, Refused> {
        let metadata = Metadata::from_raw(&self.metadata).map_err(Refusal::from);
        let checked = metadata.and_then(|metadata| checks::check_metadata(&metadata).map(|()| metadata));
        let metadata = checked.map_err(|reason| reason.of(self.who()))?;
        Ok(Checked::of_linked(self.who(), metadata, self.entry))
    }
}
