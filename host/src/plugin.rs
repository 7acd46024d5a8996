//! Plugin instances of a session, their formats, and their orderly destruction.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_isolation::{Decoder, PluginProcess, RemoteInstance};
use crossdock_memory_backend::{Account, Backend, TaskPool, fork_count};
use crossdock_plugin_api::{
    EncoderHandle, EncodingHandle, Error as ApiError, ExporterHandle, Format, Host as Handle, ImporterHandle,
    Instance, OpenerHandle, SessionSettings,
};

use crate::error::{Error, Result};
use crate::host_object::HostObject;
use crate::load::{Loaded, Refusal, Refused};
use crate::metadata::Metadata;
use crate::reclaimer;
use crate::tracing_hooks::{self, TracedDrop};

/// An instance of a loaded plugin in a session.
///
/// Streams and writers that the instance opened hold references to it. The instance is destroyed
/// after all these references are dropped and everything that the plugin exported is released.
pub struct Plugin {
    loaded: Loaded,
    account: Arc<Account>,
    importer_formats: Vec<Format>,
    exporter_formats: Vec<Format>,
    encodings: Vec<String>,
    /// Whether the instance reported a panic. A panicked instance is not called again.
    poisoned: AtomicBool,
    /// The process of an isolated plugin; `None` for other plugins.
    process: Option<PluginProcess>,
    parts: ManuallyDrop<InstanceParts>,
}

/// The instance and its host object, which the reclaimer destroys.
struct InstanceParts {
    // The fields drop in this order, because the instance's `destroy` may still use its host
    // object.
    instance: TracedDrop<Instance>,
    host: HostObject,
    /// The number of references to the host object when the instance was created: the host's and
    /// the instance's references. All further references belong to exported objects.
    own_references: usize,
    forks: u32,
}

impl reclaimer::PendingDestroy for InstanceParts {
    fn is_idle(&self) -> bool {
        self.host.references() <= self.own_references
    }

    fn forks(&self) -> u32 {
        self.forks
    }

    fn leaked_references(&self, backend: &Backend) -> Option<(String, usize)> {
        let account = self.host.account();
        let references = self.host.references().saturating_sub(self.own_references);
        (references > 0 && account.belongs_to(backend)).then(|| (account.name().to_string(), references))
    }
}

impl Plugin {
    /// Creates an instance and reads its lists of formats and encodings.
    pub(crate) fn create(
        loaded: Loaded,
        session: u64,
        account: Arc<Account>,
        settings: SessionSettings,
        backend: &Backend,
        tasks: &Arc<TaskPool>,
        decoder: Arc<dyn Decoder>,
    ) -> Result<Arc<Self>, Refused> {
        let refuse = |error| Refusal::Create(error).into_refused(&loaded.label);
        reclaimer::wait_for_room();
        let mark = loaded.first_run.as_ref().and_then(|first_run| first_run.begin("its first instance"));
        let host = HostObject::new(&loaded.metadata.name, account.clone(), settings, tasks, Some(decoder));
        let mut process = None;
        let create = || match (&loaded.isolated, loaded.entry) {
            (Some(isolated), _) => {
                // SAFETY: the object is alive.
                let handle = unsafe { Handle::retain(host.as_ptr()) }?;
                let name = &loaded.metadata.name;
                let new_host = |account| {
                    let object = HostObject::new(name, account, settings, tasks, None);
                    // SAFETY: the object is alive, and the handle retains it.
                    unsafe { Handle::retain(object.as_ptr()) }
                };
                let remote =
                    RemoteInstance::create(isolated, session, name, backend, &handle, settings, new_host)?;
                process = Some(remote.process());
                Ok(Instance::from_plugin(remote))
            }
            // SAFETY: the entry passed the load checks, and its code stays mapped. `InstanceParts`
            // drops the host object after the instance. Streams and writers hold an Arc of the
            // plugin. So the reclaimer's thread drops the instance after all streams and writers.
            (None, Some(entry)) => unsafe { Instance::create(entry, host.as_ptr()) },
            (None, None) => Err(ApiError::internal("a plugin has no code")),
        };
        let instance = account.trace_host_call("create", create).map_err(refuse)?;
        let instance = TracedDrop::new(instance, &account, "destroy");
        let own_references = host.references();
        let parts = ManuallyDrop::new(InstanceParts { instance, host, own_references, forks: fork_count() });
        let (importer_formats, exporter_formats, encodings) = (Vec::new(), Vec::new(), Vec::new());
        let poisoned = AtomicBool::new(false);
        let mut plugin =
            Self { loaded, account, importer_formats, exporter_formats, encodings, poisoned, process, parts };
        plugin.query_formats().map_err(|error| Refusal::Create(error).into_refused(&plugin.loaded.label))?;
        drop(mark);
        if let Some(first_run) = &plugin.loaded.first_run {
            first_run.finish();
        }
        Ok(Arc::new(plugin))
    }

    fn query_formats(&mut self) -> Result<(), ApiError> {
        let Self { account, .. } = &*self;
        let mut formats = (Vec::new(), Vec::new(), Vec::new());
        if let Some(importer) = self.interface(Instance::importer) {
            let result = account.trace_host_call("importer.formats", || importer.formats());
            formats.0 = result.map_err(|e| e.context("the importer's formats"))?;
        }
        if let Some(exporter) = self.interface(Instance::exporter) {
            let result = account.trace_host_call("exporter.formats", || exporter.formats());
            formats.1 = result.map_err(|e| e.context("the exporter's formats"))?;
        }
        if let Some(encoding) = self.encoding() {
            formats.2 = account
                .trace_host_call("encoding.ids", || encoding.ids())
                .map_err(|e| e.context("the encodings"))?;
        }
        (self.importer_formats, self.exporter_formats, self.encodings) = formats;
        Ok(())
    }

    /// The plugin's name.
    pub fn name(&self) -> &str {
        &self.loaded.metadata.name
    }

    /// Whether the plugin is beside the executable or was installed with the library. A plugin that
    /// the user chose has precedence over it.
    pub(crate) fn is_installed(&self) -> bool {
        self.loaded.is_installed
    }

    /// The metadata that was read from the plugin's file before it was loaded.
    pub fn metadata(&self) -> &Metadata {
        &self.loaded.metadata
    }

    /// The formats that the plugin reads.
    pub fn importer_formats(&self) -> &[Format] {
        &self.importer_formats
    }

    /// The formats that the plugin writes.
    pub fn exporter_formats(&self) -> &[Format] {
        &self.exporter_formats
    }

    /// The ids of the encodings that the plugin decodes.
    pub fn encodings(&self) -> &[String] {
        &self.encodings
    }

    /// The plugin's interface for encodings, if the plugin decodes any.
    pub(crate) fn encoding(&self) -> Option<EncodingHandle<'_>> {
        self.interface(Instance::encoding)
    }

    /// The plugin's encoder, if it has one. Isolated plugins have none.
    pub(crate) fn encoder(&self) -> Option<EncoderHandle<'_>> {
        self.interface(Instance::encoder)
    }

    /// The plugin's opener.
    ///
    /// # Errors
    /// [`Error::Usage`] if the plugin has no opener.
    pub(crate) fn opener(&self) -> Result<OpenerHandle<'_>> {
        self.interface(Instance::opener).ok_or_else(|| Error::usage(format!("{self} opens no URIs")))
    }

    fn interface<'a, T>(&'a self, get: impl FnOnce(&'a Instance) -> Option<T>) -> Option<T> {
        tracing_hooks::host_call(&self.account, "get_interface", || get(&self.parts.instance))
    }

    /// The plugin's importer.
    ///
    /// # Errors
    /// [`Error::Usage`] if the plugin has no importer.
    pub fn importer(&self) -> Result<ImporterHandle<'_>> {
        self.interface(Instance::importer).ok_or_else(|| Error::usage(format!("{self} reads no format")))
    }

    /// The plugin's exporter.
    ///
    /// # Errors
    /// [`Error::Usage`] if the plugin has no exporter.
    pub fn exporter(&self) -> Result<ExporterHandle<'_>> {
        self.interface(Instance::exporter).ok_or_else(|| Error::usage(format!("{self} writes no format")))
    }

    /// The account in which the plugin's memory is counted.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The process of an isolated plugin; `None` for other plugins.
    pub(crate) fn process(&self) -> Option<&PluginProcess> {
        self.process.as_ref()
    }

    /// Whether the plugin's code is in another process.
    pub fn is_isolated(&self) -> bool {
        self.loaded.isolated.is_some()
    }

    /// Whether the instance panicked, or its process has ended.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed) || self.process.as_ref().is_some_and(PluginProcess::has_ended)
    }

    /// Marks the instance as unusable if `error` reports a panic of the instance.
    pub(crate) fn note_panic(&self, error: &ApiError) {
        if error.code() == crossdock_plugin_api::Code::PANICKED {
            self.poisoned.store(true, Ordering::Relaxed);
        }
    }

    /// Drops a handle at the end of a task of its own. If it is the last one and the plugin runs in
    /// this process, the instance is destroyed at once.
    pub(crate) fn end(self: Arc<Self>) {
        if self.is_isolated() { drop(self) } else { reclaimer::destroy_here(|| drop(self)) }
    }

    /// Converts an error that the plugin reported in the step `what`. Marks the instance as
    /// unusable if the error reports a panic.
    pub(crate) fn failed(&self, what: impl Into<String>, source: ApiError) -> Error {
        self.note_panic(&source);
        match source.code() {
            crossdock_plugin_api::Code::CANCELLED => Error::Cancelled,
            _ => Error::Plugin { plugin: self.to_string(), what: what.into(), source },
        }
    }
}

impl std::fmt::Display for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.loaded.metadata.name, self.loaded.metadata.version)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once and does not use `parts` afterwards.
        reclaimer::destroy_when_idle(Box::new(unsafe { ManuallyDrop::take(&mut self.parts) }));
    }
}
