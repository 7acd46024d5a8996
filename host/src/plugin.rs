//! A plugin's instance in a session, with its formats, and its orderly end.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_isolation::{Decoder, Process, Remote};
use crossdock_memory_backend::{Account, Backend, fork_count};
use crossdock_plugin_api::{
    EncodingHandle, Error as ApiError, ExporterHandle, Format, Host as Handle, ImporterHandle, Instance,
    SessionSettings,
};

use crate::error::{Error, Result};
use crate::host_object::HostObject;
use crate::janitor;
use crate::load::{Loaded, Refusal, Refused};
use crate::metadata::Metadata;
use crate::traced::{self, Ended};

/// An instance that a session made of a loaded plugin. Streams and writers that it opened share it; when the last of
/// them is gone, and everything that the plugin lent out, the instance is destroyed.
pub struct Plugin {
    loaded: Loaded,
    account: Arc<Account>,
    importer_formats: Vec<Format>,
    exporter_formats: Vec<Format>,
    encodings: Vec<String>,
    /// Whether it has said that it panicked: nothing more is to be had of it.
    poisoned: AtomicBool,
    /// Where it runs, if not here.
    process: Option<Process>,
    retired: ManuallyDrop<Retired>,
}

/// The instance and its host object, which the janitor destroys in the end.
struct Retired {
    // Dropped in this order: the instance's `destroy` may still use its host.
    instance: Ended<Instance>,
    host: HostObject,
    /// How many references to the host object there were when the instance was made: ours and the instance's own.
    /// Those beyond belong to what it lent out.
    own_references: usize,
    forks: u32,
}

impl janitor::Retired for Retired {
    fn is_idle(&self) -> bool {
        self.host.references() <= self.own_references
    }

    fn forks(&self) -> u32 {
        self.forks
    }

    fn held(&self, backend: &Backend) -> Option<(String, usize)> {
        let account = self.host.account();
        let references = self.host.references().saturating_sub(self.own_references);
        (references > 0 && account.is_of(backend)).then(|| (account.name().to_string(), references))
    }
}

impl Plugin {
    /// Makes an instance and asks for its formats and encodings.
    pub(crate) fn create(
        loaded: Loaded,
        session: u64,
        account: Arc<Account>,
        settings: SessionSettings,
        backend: &Backend,
        decoder: Arc<Decoder>,
    ) -> Result<Arc<Self>, Refused> {
        let refuse = |error| Refusal::Create(error).of(&loaded.who);
        janitor::wait_for_room();
        let mark = loaded.first_run.as_ref().and_then(|first_run| first_run.begin("its first instance"));
        let host = HostObject::new(&loaded.metadata.name, account.clone(), settings, Some(decoder));
        let mut process = None;
        let create = || match (&loaded.isolated, loaded.entry) {
            (Some(isolated), _) => {
                // SAFETY: the object is alive.
                let handle = unsafe { Handle::retain(host.as_ptr()) }?;
                let name = &loaded.metadata.name;
                let lend = |account| {
                    let object = HostObject::new(name, account, settings, None);
                    // SAFETY: the object is alive, and the handle retains it.
                    unsafe { Handle::retain(object.as_ptr()) }
                };
                let remote = Remote::create(isolated, session, name, backend, &handle, settings, lend)?;
                process = Some(remote.process());
                Ok(Instance::of(remote))
            }
            // SAFETY: the entry passed the load checks and its code stays mapped; `Retired` keeps the host object until the
            // instance is dropped, which the janitor does on its own stack, after every stream and writer: these hold an
            // Arc of this plugin.
            (None, Some(entry)) => unsafe { Instance::create(entry, host.as_ptr()) },
            (None, None) => Err(ApiError::internal("a plugin without code")),
        };
        let instance = account.call("create", create).map_err(refuse)?;
        let instance = Ended::new(instance, &account, "destroy");
        let own_references = host.references();
        let retired = ManuallyDrop::new(Retired { instance, host, own_references, forks: fork_count() });
        let (importer_formats, exporter_formats, encodings) = (Vec::new(), Vec::new(), Vec::new());
        let poisoned = AtomicBool::new(false);
        let mut plugin = Self {
            loaded,
            account,
            importer_formats,
            exporter_formats,
            encodings,
            poisoned,
            process,
            retired,
        };
        plugin.ask().map_err(|error| Refusal::Create(error).of(&plugin.loaded.who))?;
        drop(mark);
        if let Some(first_run) = &plugin.loaded.first_run {
            first_run.is_over();
        }
        Ok(Arc::new(plugin))
    }

    fn ask(&mut self) -> Result<(), ApiError> {
        let Self { account, .. } = &*self;
        let mut formats = (Vec::new(), Vec::new(), Vec::new());
        if let Some(importer) = self.interface(Instance::importer) {
            let asked = account.call("importer.formats", || importer.formats());
            formats.0 = asked.map_err(|e| e.context("its importer's formats"))?;
        }
        if let Some(exporter) = self.interface(Instance::exporter) {
            let asked = account.call("exporter.formats", || exporter.formats());
            formats.1 = asked.map_err(|e| e.context("its exporter's formats"))?;
        }
        if let Some(encoding) = self.encoding() {
            formats.2 =
                account.call("encoding.ids", || encoding.ids()).map_err(|e| e.context("its encodings"))?;
        }
        (self.importer_formats, self.exporter_formats, self.encodings) = formats;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.loaded.metadata.name
    }

    /// What it said of itself before it was loaded.
    pub fn metadata(&self) -> &Metadata {
        &self.loaded.metadata
    }

    /// The formats that it reads.
    pub fn importer_formats(&self) -> &[Format] {
        &self.importer_formats
    }

    /// The formats that it writes.
    pub fn exporter_formats(&self) -> &[Format] {
        &self.exporter_formats
    }

    /// The ids of the encodings that it decodes.
    pub fn encodings(&self) -> &[String] {
        &self.encodings
    }

    /// Its encodings, if it has any.
    pub(crate) fn encoding(&self) -> Option<EncodingHandle<'_>> {
        self.interface(Instance::encoding)
    }

    fn interface<'a, T>(&'a self, of: impl FnOnce(&'a Instance) -> Option<T>) -> Option<T> {
        traced::call(&self.account, "get_interface", || of(&self.retired.instance))
    }

    /// Its importer, or an error that says that it has none.
    pub fn importer(&self) -> Result<ImporterHandle<'_>> {
        self.interface(Instance::importer).ok_or_else(|| Error::usage(format!("{self} reads no format")))
    }

    /// Its exporter, or an error that says that it has none.
    pub fn exporter(&self) -> Result<ExporterHandle<'_>> {
        self.interface(Instance::exporter).ok_or_else(|| Error::usage(format!("{self} writes no format")))
    }

    /// The account that its memory is counted in.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Whether its code is in another process.
    pub fn is_isolated(&self) -> bool {
        self.loaded.isolated.is_some()
    }

    /// Whether it panicked, or its process has ended.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed) || self.process.as_ref().is_some_and(Process::has_ended)
    }

    /// Notes what an error that it reported says of it.
    pub(crate) fn heed(&self, error: &ApiError) {
        if error.code() == crossdock_plugin_api::Code::PANICKED {
            self.poisoned.store(true, Ordering::Relaxed);
        }
    }

    /// What it reported, as the host's error.
    pub(crate) fn failed(&self, what: impl Into<String>, source: ApiError) -> Error {
        self.heed(&source);
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
        // SAFETY: taken once, here; the field is not used afterwards.
        janitor::retire(Box::new(unsafe { ManuallyDrop::take(&mut self.retired) }));
    }
}
