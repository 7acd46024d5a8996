//! Declares the functions of the host library that this crate calls. This crate cannot depend on
//! the host library, because the host library depends on this crate.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crossdock_memory::Stream;
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{
    Call, ChildType, Device, EncodedArray, EncodedNode, EncodingHandle, ExporterHandle, Format,
    ImporterHandle, Owned, Result, SessionSettings, abi,
};

/// Decodes arrays for the plugins of a session.
pub trait Decoder: Send + Sync {
    /// Decodes an array, or only the given rows of it, for a plugin's call. Returns a batch with
    /// one column.
    ///
    /// # Errors
    /// The array cannot be decoded.
    fn decode(
        &self,
        call: &Call<'_>,
        array: EncodedArray,
        rows: Option<Range<u64>>,
    ) -> Result<Owned<abi::Batch>>;

    /// Derives the types and the lengths of a node's children.
    ///
    /// # Errors
    /// No plugin decodes the node, or the plugin cannot derive them.
    fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>>;
}

/// The host library in a plugin's process.
pub trait HostLibrary: Send + Sync + 'static {
    /// The default stream of `device`, in a host without plugins.
    ///
    /// # Errors
    /// There is no such device.
    fn stream(&self, device: Device) -> Result<Stream>;

    /// Creates a host that uses `backend`, and loads the plugin in `file` as its only plugin.
    /// Messages name the plugin `name`.
    ///
    /// # Errors
    /// The plugin is rejected, or cannot be loaded.
    fn load(&self, file: File, name: String, backend: Backend) -> Result<Box<dyn LoadedPlugin>>;

    /// Waits until all released plugin instances are destroyed, but not longer than `time`.
    fn settle_within(&self, time: Duration);
}

/// A plugin that is the only plugin of its host.
pub trait LoadedPlugin: Send + Sync {
    /// The default stream of `device`, in the plugin's host.
    ///
    /// # Errors
    /// There is no such device.
    fn stream(&self, device: Device) -> Result<Stream>;

    /// Creates an instance in a new session on `device`. The session calls `decoder` for encodings
    /// that the plugin does not decode.
    ///
    /// # Errors
    /// The plugin returned an error.
    fn create(
        &self,
        device: Device,
        settings: SessionSettings,
        decoder: Arc<dyn Decoder>,
    ) -> Result<Box<dyn PluginInstance>>;
}

/// An instance of a plugin, with its session.
pub trait PluginInstance: Send + Sync {
    /// The account that records the instance's calls.
    fn account(&self) -> &Account;

    /// The formats that the instance reads.
    fn importer_formats(&self) -> &[Format];

    /// The formats that the instance writes.
    fn exporter_formats(&self) -> &[Format];

    /// The ids of the encodings that the instance decodes.
    fn encodings(&self) -> &[String];

    /// The instance's importer.
    ///
    /// # Errors
    /// The instance has no importer.
    fn importer(&self) -> Result<ImporterHandle<'_>>;

    /// The instance's exporter.
    ///
    /// # Errors
    /// The instance has no exporter.
    fn exporter(&self) -> Result<ExporterHandle<'_>>;

    /// The instance's encodings. `None` if it decodes no encodings.
    fn encoding(&self) -> Option<EncodingHandle<'_>>;

    /// Wraps a batch that the plugin returned, so that its release is recorded.
    fn batch_from_plugin(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch>;

    /// Wraps a batch for the plugin, so that its release is recorded.
    fn batch_to_plugin(&self, batch: Owned<abi::Batch>) -> Owned<abi::Batch>;
}
