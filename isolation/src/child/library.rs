//! The interface of the host library to this crate, which stands below it.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use crossdock_memory::Stream;
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{
    Call, Device, EncodedArray, EncodingHandle, ExporterHandle, Format, ImporterHandle, Owned, Result,
    SessionSettings, abi,
};

/// Decodes an array for a plugin's call, to a batch of one column.
pub type Decoder = dyn Fn(&Call<'_>, EncodedArray) -> Result<Owned<abi::Batch>> + Send + Sync;

/// The host library in a plugin's process.
pub trait HostLibrary: Send + Sync + 'static {
    /// The default stream of a device, in a host without plugins.
    ///
    /// # Errors
    /// There is no such device.
    fn stream(&self, device: Device) -> Result<Stream>;

    /// Creates a host over `backend` whose only plugin is that in `file`, and loads the plugin.
    /// Messages call it `name`.
    ///
    /// # Errors
    /// The plugin is rejected, or cannot be loaded.
    fn load(&self, file: File, name: String, backend: Backend) -> Result<Box<dyn LoadedPlugin>>;

    /// Waits until all released plugin instances are destroyed, at most for `time`.
    fn settle_within(&self, time: Duration);
}

/// A plugin, loaded by a host of its own.
pub trait LoadedPlugin: Send + Sync {
    /// The default stream of a device, in that host.
    ///
    /// # Errors
    /// There is no such device.
    fn stream(&self, device: Device) -> Result<Stream>;

    /// Creates an instance in a new session on `device`. The session decodes arrays of other
    /// encodings with `decoder`.
    ///
    /// # Errors
    /// The plugin's error.
    fn create(
        &self,
        device: Device,
        settings: SessionSettings,
        decoder: Arc<Decoder>,
    ) -> Result<Box<dyn PluginInstance>>;
}

/// An instance of a plugin, with its session.
pub trait PluginInstance: Send + Sync {
    /// The account that records its calls.
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

    /// A batch that the plugin returned, so that its release is recorded.
    fn batch_from_plugin(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch>;

    /// A batch to pass to the plugin, so that its release is recorded.
    fn batch_to_plugin(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch>;
}
