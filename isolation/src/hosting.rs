//! What serves plugins in their processes needs of a host library, which stands above this crate and implements it.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use crossdock_memory::Stream;
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{
    Call, Device, EncodedArray, EncodingHandle, ExporterHandle, Format, ImporterHandle, Owned, Result,
    SessionSettings, abi,
};

/// Decodes an array for a plugin's call: a batch of one column.
pub type Decoder = dyn Fn(&Call<'_>, EncodedArray) -> Result<Owned<abi::Batch>> + Send + Sync;

/// A host library.
pub trait HostLibrary: Send + Sync + 'static {
    /// The default stream of a device, of a host without plugins.
    ///
    /// # Errors
    /// There is no such device.
    fn stream(&self, device: Device) -> Result<Stream>;

    /// Makes a host over this memory that has no plugin but the one in `file`, which `who` is called in messages, and
    /// loads that.
    ///
    /// # Errors
    /// It fails a check.
    fn load(&self, file: File, who: String, backend: Backend) -> Result<Box<dyn LoadedPlugin>>;

    /// Waits until every plugin instance that can be destroyed by now has been, so long at most.
    fn settle_within(&self, time: Duration);
}

/// A plugin, loaded by a host of its own.
pub trait LoadedPlugin: Send + Sync {
    /// The default stream of a device, of that host.
    ///
    /// # Errors
    /// There is no such device.
    fn stream(&self, device: Device) -> Result<Stream>;

    /// Makes an instance in a session of its own on this device. `decoder` decodes arrays for it.
    ///
    /// # Errors
    /// What the plugin says.
    fn create(
        &self,
        device: Device,
        settings: SessionSettings,
        decoder: Arc<Decoder>,
    ) -> Result<Box<dyn PluginInstance>>;
}

/// An instance of a plugin, with its session.
pub trait PluginInstance: Send + Sync {
    /// Where its calls are recorded.
    fn account(&self) -> &Account;

    /// The formats that it reads.
    fn importer_formats(&self) -> &[Format];

    /// The formats that it writes.
    fn exporter_formats(&self) -> &[Format];

    /// The ids of the encodings that it decodes.
    fn encodings(&self) -> &[String];

    /// Its importer.
    ///
    /// # Errors
    /// It has none.
    fn importer(&self) -> Result<ImporterHandle<'_>>;

    /// Its exporter.
    ///
    /// # Errors
    /// It has none.
    fn exporter(&self) -> Result<ExporterHandle<'_>>;

    /// Its encodings, if it has any.
    fn encoding(&self) -> Option<EncodingHandle<'_>>;

    /// A batch that the plugin gives; its release is recorded where calls are.
    fn given(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch>;

    /// The same for one that the plugin is given.
    fn taken(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch>;
}
