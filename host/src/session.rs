//! A session: a device, settings, and its own plugin instances.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crossdock_isolation::Decoder;
use crossdock_kernel_library::Threads;
use crossdock_memory::{Memory, Stream};
use crossdock_memory_backend::{Account, TaskPool};
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, CancelFlag, ChildType, Device, EncodedArray, EncodedNode,
    Host as HostHandle, Owned, Result as ApiResult, SessionSettings, Validate, abi,
};

use crate::decode::HostDecodes;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::host_object::{HostObject, session_is_closed};
use crate::instances::{Instances, List};
use crate::kernels::KernelThreads;
use crate::plugin::Plugin;
use crate::processes::Processes;
use crate::registry::Registry;
use crate::vortex_types::VortexTypes;

/// A device, settings and plugin instances for reading, writing and converting. Clones share their
/// state; separate sessions are independent.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// The cancel flag of the session, or of one task of the session.
    cancel: CancelFlag,
}

struct Inner {
    host: Host,
    /// Identifies the session in the process.
    number: u64,
    settings: SessionSettings,
    call: CallSettings,
    validate: Option<Validate>,
    account: Arc<Account>,
    /// The host's own stream, for tables and for moves between devices.
    stream: Stream,
    /// One instance of each plugin that can be loaded.
    plugins: List<Plugin>,
    vortex_types: VortexTypes,
    /// The threads for tasks of the plugins and for kernels of the host.
    tasks: Arc<TaskPool>,
    /// Decodes arrays for the session's plugins instead of the session.
    decoder: Option<Arc<dyn Decoder>>,
    host_decodes: HostDecodes,
    processes: Processes,
}

/// Settings of a [`Session`] to be opened.
pub struct SessionBuilder {
    host: Host,
    device: Device,
    validate: Option<Validate>,
    byte_budget: u64,
    cancel: CancelFlag,
    decoder: Option<Arc<dyn Decoder>>,
    threads: Option<usize>,
}

impl Host {
    /// Starts the settings of a session: on the CPU, without a byte budget.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder {
            host: self.clone(),
            device: Device::CPU,
            validate: None,
            byte_budget: 0,
            cancel: CancelFlag::new(),
            decoder: None,
            threads: None,
        }
    }
}

impl SessionBuilder {
    /// Sets a decoder that decodes arrays for the session's plugins instead of the session.
    pub(crate) fn decoder(mut self, decoder: Arc<dyn Decoder>) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// Sets how many threads the session's plugins may use, instead of the number of the host.
    pub(crate) fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the device on which the session returns results.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets how thoroughly external data is validated. By default, the session fully validates
    /// bytes from files and streams, and validates only the layout of structs from within the
    /// process.
    pub fn validate(mut self, validate: Validate) -> Self {
        self.validate = Some(validate);
        self
    }

    /// Sets the maximum number of bytes that a call should keep in flight; 0 for no preference.
    pub fn byte_budget(mut self, bytes: u64) -> Self {
        self.byte_budget = bytes;
        self
    }

    /// Sets the flag that stops the session's work.
    pub fn cancel_flag(mut self, cancel: CancelFlag) -> Self {
        self.cancel = cancel;
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// [`Error::Device`] if the device does not exist or cannot be used.
    pub fn open(self) -> Result<Session> {
        let settings = SessionSettings {
            device: self.device,
            memory_limit_bytes: self.host.backend().limit_bytes().unwrap_or(0) as u64,
            threads: self.threads.unwrap_or(self.host.threads()),
        };
        let tasks = TaskPool::new(settings.threads);
        let account = self.host.backend().account("host");
        let object = HostObject::new("host", account.clone(), settings, &tasks, None);
        let device = |source| Error::Device { what: format!("cannot work on {}", self.device), source };
        // SAFETY: the object is alive, and the handle retains it.
        let handle = unsafe { HostHandle::retain(object.as_ptr()) }.map_err(device)?;
        let memory = Memory::from_host(&handle).map_err(device)?;
        let stream = memory.default_stream(self.device).map_err(device)?;
        let call = CallSettings {
            byte_budget: self.byte_budget,
            cancel: self.cancel.clone(),
            // SAFETY: `stream` is the device's default stream, which lives as long as the memory
            // that the session owns.
            stream: unsafe { CallStream::new(stream.raw()) },
            ..CallSettings::new(self.device)
        };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let inner = Inner {
            host: self.host,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            settings,
            call,
            validate: self.validate,
            account,
            stream,
            plugins: List::default(),
            vortex_types: VortexTypes::default(),
            tasks,
            decoder: self.decoder,
            host_decodes: HostDecodes::default(),
            processes: Processes::default(),
        };
        Ok(Session { inner: Arc::new(inner), cancel: self.cancel })
    }
}

impl Session {
    /// The host of the session.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// The device on which the session returns results.
    pub fn device(&self) -> Device {
        self.inner.settings.device
    }

    /// The stream on which the host itself works for the session.
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// Memory that is counted under the name "host".
    pub fn memory(&self) -> &Memory {
        self.inner.stream.memory()
    }

    /// The flag that stops the session's work.
    pub fn cancel_flag(&self) -> &CancelFlag {
        &self.cancel
    }

    /// Returns a clone of the session with another cancel flag, for example to stop a single task.
    pub fn with_cancel_flag(&self, cancel: CancelFlag) -> Session {
        Session { inner: self.inner.clone(), cancel }
    }

    /// The threads of the session, for kernels that the host itself launches.
    pub(crate) fn kernel_threads(&self) -> Arc<dyn Threads> {
        Arc::new(KernelThreads(self.inner.tasks.for_instance()))
    }

    /// Returns [`Error::Cancelled`] if the cancel flag is set.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.cancel_flag().is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Returns a host object for code that is not a plugin but uses the plugin interface: memory, a
    /// log and settings. Memory that is allocated through this object is counted under `name`. The
    /// host object may outlive the session.
    ///
    /// # Errors
    /// An error occurs only because of a bug in this library.
    pub fn host_handle(&self, name: &str) -> Result<HostHandle> {
        let account = self.inner.host.backend().account(name);
        let object =
            HostObject::new(name, account, self.inner.settings, &self.inner.tasks, Some(self.decoder()));
        // SAFETY: the object is alive, and the handle retains it.
        let handle = unsafe { HostHandle::retain(object.as_ptr()) };
        handle.map_err(|error| Error::data("cannot export the host object", error))
    }

    /// Returns a decoder that decodes arrays for plugins as long as the session is open.
    fn decoder(&self) -> Arc<dyn Decoder> {
        Arc::new(SessionDecoder(Arc::downgrade(&self.inner)))
    }

    pub(crate) fn other_decoder(&self) -> Option<&dyn Decoder> {
        self.inner.decoder.as_deref()
    }

    pub(crate) fn vortex_types(&self) -> &VortexTypes {
        &self.inner.vortex_types
    }

    pub(crate) fn account(&self) -> &Account {
        &self.inner.account
    }

    /// Settings of calls that read bytes.
    pub(crate) fn call_for_bytes(&self) -> CallSettings {
        self.call(self.inner.validate.unwrap_or(Validate::Full))
    }

    /// Settings of calls that read structs in memory.
    pub(crate) fn call_for_structs(&self) -> CallSettings {
        self.call(self.validate_structs())
    }

    fn call(&self, validate: Validate) -> CallSettings {
        CallSettings { validate, cancel: self.cancel.clone(), ..self.inner.call.clone() }
    }

    /// How thoroughly structs from within the process are validated.
    pub(crate) fn validate_structs(&self) -> Validate {
        self.inner.validate.unwrap_or(Validate::Layout)
    }

    pub(crate) fn host_decodes(&self) -> &HostDecodes {
        &self.inner.host_decodes
    }

    /// Returns an instance of each plugin that can be loaded. Plugins that cannot be loaded are
    /// logged; [`Self::plugin`] returns their error.
    pub fn plugins(&self) -> Arc<[Arc<Plugin>]> {
        self.plugins_without_warnings(&[])
    }

    /// Like [`Self::plugins`], but logs no warnings about the plugins `names`, whose errors the
    /// caller reports.
    pub(crate) fn plugins_without_warnings(&self, names: &[&str]) -> Instances<Plugin> {
        self.inner.plugins.get_or_create(|| {
            let mut all = Vec::new();
            for metadata in self.inner.host.plugins() {
                match self.plugin(&metadata.name) {
                    Ok(plugin) => all.push(plugin),
                    Err(_) if names.contains(&metadata.name.as_str()) => {}
                    Err(error) => tracing::warn!("{}", error.one_line()),
                }
            }
            all
        })
    }

    /// Whether this thread is creating the session's plugins, and is running code of one of them.
    /// Using the plugins would then deadlock.
    pub(crate) fn is_creating_plugins_here(&self) -> bool {
        self.inner.plugins.is_creating_here()
    }

    /// Creates an instance of a plugin.
    ///
    /// Blocks while more than 64 dropped instances are not yet destroyed. Otherwise, threads that
    /// open and close sessions could exhaust memory, because only one thread destroys instances.
    /// Blocks for at most 10 seconds, and does not block while a single destruction takes longer
    /// than 1 second.
    ///
    /// # Errors
    /// [`Error::Usage`] if no plugin has this name, [`Error::Refused`] if the plugin fails a check
    /// or cannot create an instance.
    pub fn plugin(&self, name: &str) -> Result<Arc<Plugin>> {
        self.instance(name, name, self.inner.settings)
    }

    /// Returns the session's instance of the plugin `name`, or a replacement if this instance
    /// panicked.
    pub(crate) fn working_plugin(&self, name: &str) -> Result<Arc<Plugin>> {
        let plugins = self.plugins_without_warnings(&[name]);
        match plugins.iter().find(|plugin| plugin.name() == name) {
            Some(plugin) => self.working_instance(plugin.clone()),
            None => self.plugin(name),
        }
    }

    /// Returns the session's instance of a chosen plugin, or a replacement if this instance
    /// panicked.
    pub(crate) fn working_instance(&self, chosen: Arc<Plugin>) -> Result<Arc<Plugin>> {
        if !chosen.is_poisoned() {
            return Ok(chosen);
        }
        let new = self.inner.plugins.while_creating(|| self.plugin(chosen.name()))?;
        self.inner.plugins.replace(&chosen, &new);
        Ok(new)
    }

    /// Returns all plugins. Replaces the instances that panicked and that `is_needed` selects. An
    /// instance that cannot be replaced stays in the list, and reports its panic when it is called.
    pub(crate) fn working_plugins(
        &self,
        is_needed: impl Fn(&Instances<Plugin>, &Arc<Plugin>) -> bool,
    ) -> Instances<Plugin> {
        let plugins = self.plugins();
        let must_replace = |plugin: &&Arc<Plugin>| plugin.is_poisoned() && is_needed(&plugins, plugin);
        let poisoned: Vec<_> = plugins.iter().filter(must_replace).collect();
        if poisoned.is_empty() {
            return plugins;
        }
        for plugin in poisoned {
            if let Err(error) = self.working_instance(plugin.clone()) {
                tracing::warn!("{}", error.one_line());
            }
        }
        self.plugins()
    }

    /// Creates an instance of a chosen plugin for one task. The memory of the instance is counted
    /// separately.
    pub(crate) fn instance_for_task(&self, chosen: &Arc<Plugin>, task: &str) -> Result<Arc<Plugin>> {
        self.instance(chosen.name(), &format!("{} ({task})", chosen.name()), self.inner.settings)
    }

    /// Creates an instance of a plugin with these settings. Its memory is counted under `account`.
    pub(crate) fn instance(
        &self,
        name: &str,
        account: &str,
        settings: SessionSettings,
    ) -> Result<Arc<Plugin>> {
        let loaded = self.inner.host.load(name)?;
        let backend = self.inner.host.backend();
        let (account, tasks, decoder) = (backend.account(account), &self.inner.tasks, self.decoder());
        let plugin = Plugin::create(loaded, self.inner.number, account, settings, backend, tasks, decoder)
            .map_err(|refused| Error::Refused(Arc::new(refused)))?;
        plugin.process().into_iter().for_each(|process| self.inner.processes.keep(process));
        Ok(plugin)
    }

    /// Runs `choose` over the formats of all plugins. If `choose` fails and `wanted` is the name of
    /// a plugin that failed to load, the returned error is that plugin's refusal.
    pub(crate) fn choose<T>(
        &self,
        wanted: Option<&str>,
        choose: impl FnOnce(&Registry<'_>) -> Result<T>,
    ) -> Result<T> {
        let plugins = self.plugins_without_warnings(wanted.as_slice());
        let is_missing = |name: &&str| !plugins.iter().any(|plugin| plugin.name() == *name);
        let refused = wanted.filter(is_missing).and_then(|name| match self.plugin(name) {
            Err(refused @ Error::Refused(_)) => Some(refused),
            _ => None,
        });
        match (choose(&Registry::new(&plugins)), refused) {
            (Err(_), Some(refused)) => Err(refused),
            (Ok(choice), Some(refused)) => {
                tracing::warn!("{}", refused.one_line());
                Ok(choice)
            }
            (result, None) => result,
        }
    }
}

/// Decodes arrays for plugins as long as the session is open.
struct SessionDecoder(Weak<Inner>);

impl SessionDecoder {
    fn session(&self) -> ApiResult<Session> {
        let inner = self.0.upgrade().ok_or_else(session_is_closed)?;
        Ok(Session { cancel: inner.call.cancel.clone(), inner })
    }
}

impl Decoder for SessionDecoder {
    fn decode(
        &self,
        call: &Call<'_>,
        array: EncodedArray,
        rows: Option<Range<u64>>,
    ) -> ApiResult<Owned<abi::Batch>> {
        self.session()?.decode_for_plugin(call, array, rows)
    }

    fn children(&self, node: EncodedNode<'_>) -> ApiResult<Vec<ChildType>> {
        self.session()?.child_types(node)
    }
}
