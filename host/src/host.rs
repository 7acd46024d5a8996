//! A host: one owner of memory, and the plugins that were found.

use std::sync::{Arc, OnceLock};

use crossdock_memory_backend::{Backend, BackendBuilder, Leak, LedgerSnapshot, Trace};
use crossdock_plugin_api::Device;

use crate::discovery::{Candidate, Catalog, Origin, Search};
use crate::error::{Error, Result};
use crate::janitor;
use crate::load::{Loaded, Refusal, Refused};
use crate::metadata::{Metadata, MetadataError};
use crate::policy::{Policy, Which};
use crate::traced::trace_from_environment;

/// A host. Clones are the same one; two that were built apart share nothing but the images of plugin files that both
/// load, of which each makes instances of its own.
#[derive(Clone)]
pub struct Host(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    backend: Backend,
    catalog: Catalog,
    /// For each candidate of the catalog, what became of loading it.
    loaded: Vec<OnceLock<Result<Loaded, Arc<Refused>>>>,
    threads: usize,
}

/// How a [`Host`] is to be.
pub struct HostBuilder {
    search: Search,
    backend: Option<Backend>,
    memory_limit_bytes: Option<usize>,
    threads: Option<usize>,
    trace: Option<Arc<Trace>>,
    policy: Policy,
}

impl Host {
    /// Looks in the usual places, without a memory limit, with as many threads as the machine has.
    pub fn builder() -> HostBuilder {
        HostBuilder {
            search: Search::usual(),
            backend: None,
            memory_limit_bytes: None,
            threads: None,
            trace: None,
            policy: Policy::default(),
        }
    }

    /// What was found, chosen, shadowed, refused.
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// The owner of its memory.
    pub fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Who holds what, and what was copied.
    pub fn ledger(&self) -> LedgerSnapshot {
        self.0.backend.ledger()
    }

    /// The plugins to use, in order of precedence.
    pub fn plugins(&self) -> impl Iterator<Item = &Metadata> {
        self.0.catalog.chosen().map(|(_, metadata)| &**metadata)
    }

    /// Loads a plugin, unless it is loaded already.
    ///
    /// # Errors
    /// [`Error::Usage`] where none has this name, [`Error::Refused`] where it fails a check, or failed one before.
    pub fn load(&self, name: &str) -> Result<Loaded> {
        let found =
            self.0.catalog.candidates.iter().position(|c| c.metadata.as_ref().is_ok_and(|m| m.name == name));
        let index = found.ok_or_else(|| self.unknown(name))?;
        match self.load_candidate(index) {
            Some(Ok(loaded)) => Ok(loaded),
            Some(Err(refused)) => Err(Error::Refused(refused)),
            None => Err(self.unknown(name)),
        }
    }

    /// Loads the candidate at `index` of the catalog, if it was chosen.
    pub fn load_candidate(&self, index: usize) -> Option<Result<Loaded, Arc<Refused>>> {
        let candidate = self.0.catalog.candidates.get(index)?;
        candidate.metadata.as_ref().ok()?;
        let slot = self.0.loaded.get(index)?;
        let load = || candidate.load().map_err(Arc::new);
        Some(slot.get_or_init(load).clone())
    }

    /// Why there is no plugin of this name to use: the first candidate that calls itself so was refused, or there is none.
    fn unknown(&self, name: &str) -> Error {
        let refused = self.0.catalog.candidates.iter().find_map(|candidate| {
            let refused = candidate.metadata.as_ref().err()?;
            let says = candidate.inspect()?;
            (says.metadata.name == name).then(|| refused.clone())
        });
        if let Some(refused) = refused {
            return Error::Refused(refused);
        }
        let known = self.known();
        Error::usage(format!(
            "there is no plugin '{name}'; plugins: {known} (crossdock plugins --explain tells where was looked)"
        ))
    }

    fn known(&self) -> String {
        let names: Vec<_> = self.plugins().map(|m| m.name.as_str()).collect();
        if names.is_empty() { "none was found".to_string() } else { names.join(", ") }
    }

    /// Whether a plugin of this name was found as a file, though it may be refused.
    fn is_file_of(&self, name: &str) -> bool {
        self.0.catalog.candidates.iter().filter(|candidate| candidate.origin != Origin::Linked).any(
            |candidate| match &candidate.metadata {
                Ok(metadata) => metadata.name == name,
                Err(_) => candidate.inspect().is_some_and(|says| says.metadata.name == name),
            },
        )
    }

    pub(crate) fn threads(&self) -> usize {
        self.0.threads
    }

    /// Waits until every plugin instance that can end has ended, and tells what has not been given back by then: after
    /// all sessions, tables and exported arrays are gone, these are leaks.
    pub fn settle(&self) -> Vec<Leak> {
        // What a device was done with may have been an instance's last object.
        self.0.backend.settle();
        janitor::settle();
        let mut leaks = self.0.backend.leaks();
        leaks.extend(janitor::held(&self.0.backend).into_iter().map(|(account, references)| Leak {
            account,
            device: Device::CPU,
            bytes: 0,
            blocks: 0,
            streams: 0,
            events: 0,
            references: references as u64,
        }));
        leaks
    }
}

impl HostBuilder {
    /// Where to look for plugins, instead of the usual places.
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// Adds a plugin file, or a directory of them, to where is looked.
    pub fn plugins(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.search = self.search.given(path);
        self
    }

    /// What plugin files may be loaded, instead of all that fit; [`Policy::usual`] is what the system's files say.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The owner of its memory; the memory limit is then this one's, and where calls are recorded.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// How many bytes may be held at once, over all devices.
    pub fn memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// How many threads plugins may keep busy.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Where calls of and by plugins are recorded; otherwise what [`trace_from_environment`] gives.
    pub fn trace(mut self, trace: Arc<Trace>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Looks for plugins; none of their code runs yet. What was found and cannot be used, though it means to be a
    /// plugin, is reported to the log.
    ///
    /// # Errors
    /// A plugin file that was given by its path is missing or refused, or calls cannot be recorded as the environment asks.
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
                "'{name}' is to be isolated, and there is no file of a plugin with this name; plugins: {}",
                host.known()
            )));
        }
        let catalog = &host.0.catalog;
        if let Some(refused) = catalog.candidates.iter().find_map(Candidate::refused_though_given) {
            return Err(Error::Refused(refused));
        }
        catalog.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        for refused in catalog.candidates.iter().filter_map(|candidate| candidate.metadata.as_ref().err()) {
            match refused.reason {
                // Ordinary: a library among plugins, a plugin in two places.
                Refusal::Metadata(MetadataError::NotElf | MetadataError::NotAPlugin)
                | Refusal::Shadowed { .. } => tracing::debug!("{refused}"),
                // As whoever wrote the policy wants it.
                Refusal::NotAllowed { .. } | Refusal::NotLocked { .. } | Refusal::Folder { .. } => {
                    tracing::info!("{refused}");
                }
                _ => tracing::warn!("{refused}"),
            }
        }
        Ok(host)
    }

    /// The same, where files that were given and refused are only noted in the catalog.
    pub fn build_lenient(self) -> Host {
        let backend = self.backend.unwrap_or_else(|| {
            let builder = Backend::builder();
            let builder = self.trace.into_iter().fold(builder, BackendBuilder::trace);
            self.memory_limit_bytes.into_iter().fold(builder, BackendBuilder::limit_bytes).build()
        });
        let catalog = self.search.run_under(self.policy);
        let loaded = catalog.candidates.iter().map(|_| OnceLock::new()).collect();
        let threads =
            self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        Host(Arc::new(Inner { backend, catalog, loaded, threads: threads.max(1) }))
    }
}
