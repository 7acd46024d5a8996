//! Owns the memory, and the catalog of the plugins that discovery found.

use std::sync::{Arc, OnceLock};

use crossdock_memory_backend::{Allocator, Backend, BackendBuilder, Leak, LedgerSnapshot, Trace};
use crossdock_plugin_api::Device;

use crate::discovery::{Candidate, Catalog, Origin, Search};
use crate::error::{Error, Result};
use crate::load::{Loaded, Refusal, Refused};
use crate::metadata::{Metadata, MetadataError};
use crate::policy::{Policy, Which};
use crate::reclaimer;
use crate::tracing_hooks::trace_from_environment;

/// A host. Clones share their state. Hosts that were built separately share only the mapped code of
/// plugin files that they both load; each host creates its own plugin instances.
#[derive(Clone)]
pub struct Host(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    backend: Backend,
    catalog: Catalog,
    /// The result of loading each candidate of the catalog.
    loaded: Vec<OnceLock<Result<Loaded, Arc<Refused>>>>,
    threads: usize,
}

/// Settings of a [`Host`] to be built.
pub struct HostBuilder {
    search: Search,
    backend: Option<Backend>,
    memory_limit_bytes: Option<usize>,
    allocators: Vec<(Device, Allocator)>,
    threads: Option<usize>,
    trace: Option<Arc<Trace>>,
    policy: Policy,
}

impl Host {
    /// Starts with the standard search paths, no memory limit, and one thread per processor.
    pub fn builder() -> HostBuilder {
        HostBuilder {
            search: Search::standard(),
            backend: None,
            memory_limit_bytes: None,
            allocators: Vec::new(),
            threads: None,
            trace: None,
            policy: Policy::default(),
        }
    }

    /// The candidates that were found, each with the reason if it is not used.
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// The owner of the host's memory.
    pub fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// The current allocations, and all copies since the host was built.
    pub fn ledger(&self) -> LedgerSnapshot {
        self.0.backend.ledger()
    }

    /// The plugins that are used, in order of precedence.
    pub fn plugins(&self) -> impl Iterator<Item = &Metadata> {
        self.0.catalog.chosen().map(|(_, metadata)| &**metadata)
    }

    /// Loads a plugin, unless it is already loaded.
    ///
    /// # Errors
    /// [`Error::Usage`] if no plugin has this name, [`Error::Refused`] if the plugin fails a check
    /// in this call or failed a check in an earlier call.
    pub fn load(&self, name: &str) -> Result<Loaded> {
        let position =
            self.0.catalog.candidates.iter().position(|c| c.metadata.as_ref().is_ok_and(|m| m.name == name));
        let index = position.ok_or_else(|| self.unknown(name))?;
        match self.load_candidate(index) {
            Some(Ok(loaded)) => Ok(loaded),
            Some(Err(refused)) => Err(Error::Refused(refused)),
            None => Err(self.unknown(name)),
        }
    }

    /// Loads the candidate at `index` of the catalog. `None` if the candidate is not used or does
    /// not exist.
    pub fn load_candidate(&self, index: usize) -> Option<Result<Loaded, Arc<Refused>>> {
        let candidate = self.0.catalog.candidates.get(index)?;
        candidate.metadata.as_ref().ok()?;
        let slot = self.0.loaded.get(index)?;
        let load = || candidate.load().map_err(Arc::new);
        Some(slot.get_or_init(load).clone())
    }

    /// Returns the error for a name without a usable plugin. It is the refusal of the first
    /// candidate of this name, or [`Error::Usage`] if no candidate has this name.
    fn unknown(&self, name: &str) -> Error {
        let refused = self.0.catalog.candidates.iter().find_map(|candidate| {
            let refused = candidate.metadata.as_ref().err()?;
            let inspected = candidate.inspect()?;
            (inspected.metadata.name == name).then(|| refused.clone())
        });
        if let Some(refused) = refused {
            return Error::Refused(refused);
        }
        let known = self.known();
        Error::usage(format!(
            "there is no plugin '{name}'; available plugins: {known} ({})",
            crate::registry::search_advice()
        ))
    }

    fn known(&self) -> String {
        let names: Vec<_> = self.plugins().map(|m| m.name.as_str()).collect();
        if names.is_empty() { "none".to_string() } else { names.join(", ") }
    }

    /// Whether a plugin file with this name was found, even if it is refused.
    fn is_file_of(&self, name: &str) -> bool {
        self.0.catalog.candidates.iter().filter(|candidate| candidate.origin != Origin::Linked).any(
            |candidate| match &candidate.metadata {
                Ok(metadata) => metadata.name == name,
                Err(_) => candidate.inspect().is_some_and(|inspected| inspected.metadata.name == name),
            },
        )
    }

    pub(crate) fn threads(&self) -> usize {
        self.0.threads
    }

    /// Waits until every idle plugin instance is destroyed, and returns the memory and references
    /// that are still held. After all sessions, tables and exported arrays are dropped, these are
    /// leaks.
    pub fn settle(&self) -> Vec<Leak> {
        // Pending device work may hold the last object of an instance.
        self.0.backend.settle();
        reclaimer::settle();
        let mut leaks = self.0.backend.leaks();
        leaks.extend(reclaimer::leaked_references(&self.0.backend).into_iter().map(
            |(account, references)| Leak {
                account,
                device: Device::CPU,
                bytes: 0,
                blocks: 0,
                streams: 0,
                events: 0,
                references: references as u64,
            },
        ));
        leaks
    }
}

impl HostBuilder {
    /// Sets where to look for plugins, instead of the standard paths.
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// Adds a plugin file, or a directory of plugin files, to the search.
    pub fn plugins(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.search = self.search.with_path(path);
        self
    }

    /// Sets which plugin files may be loaded. By default, all compatible plugin files may be
    /// loaded. [`Policy::from_standard_files`] reads the system's policy files.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the owner of the host's memory. The owner's memory limit and trace then apply to the
    /// host.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Sets the maximum number of bytes allocated at any time, over all devices.
    pub fn memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Sets the allocator of a CUDA device, so that the process can have one pool for all its
    /// libraries. The memory limit still applies. Has no effect together with
    /// [`Self::backend`].
    pub fn allocator(mut self, device: Device, allocator: Allocator) -> Self {
        self.allocators.push((device, allocator));
        self
    }

    /// Sets how many threads plugins may use.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the trace that records the host's calls to plugins and the plugins' calls to the host.
    /// It replaces [`trace_from_environment`].
    pub fn trace(mut self, trace: Arc<Trace>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Looks for plugins, without running their code. Refused plugins are logged.
    ///
    /// # Errors
    /// A plugin file that was named explicitly is missing or refused, an isolated plugin has no
    /// file, or the trace that the environment asks for cannot be created.
    pub fn build(mut self) -> Result<Host> {
        if self.backend.is_none() && self.trace.is_none() {
            self.trace = trace_from_environment()?;
        }
        let isolated = match &self.policy.isolation.which {
            Which::Named(names) => names.clone(),
            _ => Vec::new(),
        };
        let host = self.build_lenient();
        if let Some(name) = isolated.iter().find(|name| !host.is_file_of(name)) {
            return Err(Error::usage(format!(
                "plugin '{name}' is to be isolated, but no plugin file has this name; available plugins: {}",
                host.known()
            )));
        }
        let catalog = &host.0.catalog;
        if let Some(refused) = catalog.candidates.iter().find_map(Candidate::explicit_refusal) {
            return Err(Error::Refused(refused));
        }
        catalog.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        for refused in catalog.candidates.iter().filter_map(|candidate| candidate.metadata.as_ref().err()) {
            match refused.reason {
                // No warning is needed, because a folder of plugins may contain other libraries,
                // and two folders may contain the same plugin.
                Refusal::Metadata(MetadataError::NotElf | MetadataError::NotAPlugin)
                | Refusal::Shadowed { .. } => tracing::debug!("{refused}"),
                // No warning is needed, because the policy excludes these files on purpose.
                Refusal::NotAllowed { .. } | Refusal::NotLocked { .. } | Refusal::Folder { .. } => {
                    tracing::info!("{refused}");
                }
                _ => tracing::warn!("{refused}"),
            }
        }
        Ok(host)
    }

    /// Like [`Self::build`], but refused files only appear in the catalog.
    pub fn build_lenient(self) -> Host {
        let backend = self.backend.unwrap_or_else(|| {
            let builder = Backend::builder();
            let builder = self.trace.into_iter().fold(builder, BackendBuilder::trace);
            let builder = self
                .allocators
                .into_iter()
                .fold(builder, |builder, (device, allocator)| builder.allocator(device, allocator));
            self.memory_limit_bytes.into_iter().fold(builder, BackendBuilder::limit_bytes).build()
        });
        let catalog = self.search.run_with_policy(self.policy);
        let loaded = catalog.candidates.iter().map(|_| OnceLock::new()).collect();
        let threads =
            self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        Host(Arc::new(Inner { backend, catalog, loaded, threads: threads.max(1) }))
    }
}
