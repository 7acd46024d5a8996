//! A session: a device, settings, and plugin instances of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_isolation::Decoder;
use crossdock_memory::{Memory, Stream};
use crossdock_memory_backend::Account;
use crossdock_plugin_api::{
    CallSettings, CallStream, CancelFlag, Device, Host as HostHandle, SessionSettings, Validate,
};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::host_object::{HostObject, session_is_closed};
use crate::instances::{Instances, List};
use crate::plugin::Plugin;
use crate::registry::Registry;
use crate::vortex_types::VortexTypes;

/// Where work happens. Clones are the same one; sessions do not disturb each other.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// Its own, or that of one piece of its work.
    cancel: CancelFlag,
}

struct Inner {
    host: Host,
    /// No other one of the process has it.
    number: u64,
    settings: SessionSettings,
    call: CallSettings,
    validate: Option<Validate>,
    account: Arc<Account>,
    /// The host's own use of memory: for tables, and for moves between devices.
    stream: Stream,
    /// An instance of each plugin that can be loaded, to ask for their formats.
    plugins: List<Plugin>,
    vortex_types: VortexTypes,
    /// Who decodes for its plugins in its place.
    decoder: Option<Arc<Decoder>>,
}

/// How a [`Session`] is to be.
pub struct SessionBuilder {
    host: Host,
    device: Device,
    validate: Option<Validate>,
    byte_budget: u64,
    cancel: CancelFlag,
    decoder: Option<Arc<Decoder>>,
}

impl Host {
    /// A session to be set up.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder {
            host: self.clone(),
            device: Device::CPU,
            validate: None,
            byte_budget: 0,
            cancel: CancelFlag::new(),
            decoder: None,
        }
    }
}

impl SessionBuilder {
    /// Who decodes for its plugins in its place.
    pub(crate) fn decoder(mut self, decoder: Arc<Decoder>) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// Where results go.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// How closely to look at what comes from outside. Unless set, bytes from files and streams are validated in full,
    /// structs from within the process by their layout.
    pub fn validate(mut self, validate: Validate) -> Self {
        self.validate = Some(validate);
        self
    }

    /// How many bytes a call should keep in flight at most; 0 for no wish.
    pub fn byte_budget(mut self, bytes: u64) -> Self {
        self.byte_budget = bytes;
        self
    }

    /// Stops the session's work when set.
    pub fn cancel_flag(mut self, cancel: CancelFlag) -> Self {
        self.cancel = cancel;
        self
    }

    /// Opens it.
    ///
    /// # Errors
    /// The device does not exist, or what is missing for it.
    pub fn open(self) -> Result<Session> {
        let settings = SessionSettings {
            device: self.device,
            memory_limit_bytes: self.host.backend().limit_bytes().unwrap_or(0) as u64,
            threads: self.host.threads(),
        };
        let account = self.host.backend().account("host");
        let object = HostObject::new("host", account.clone(), settings, None);
        let device = |source| Error::Device { what: format!("cannot work on {}", self.device), source };
        // SAFETY: the object is alive, and the handle retains it.
        let handle = unsafe { HostHandle::retain(object.as_ptr()) }.map_err(device)?;
        let memory = Memory::from_host(&handle).map_err(device)?;
        let stream = memory.default_stream(self.device).map_err(device)?;
        let call = CallSettings {
            byte_budget: self.byte_budget,
            cancel: self.cancel.clone(),
            // SAFETY: the device's default one, which lives as long as the memory that the session keeps.
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
            decoder: self.decoder,
        };
        Ok(Session { inner: Arc::new(inner), cancel: self.cancel })
    }
}

impl Session {
    /// The host that it belongs to.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// Where results go.
    pub fn device(&self) -> Device {
        self.inner.settings.device
    }

    /// The stream that its own work goes onto.
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// Memory, counted under the name "host".
    pub fn memory(&self) -> &Memory {
        self.inner.stream.memory()
    }

    /// Stops its work when set.
    pub fn cancel_flag(&self) -> &CancelFlag {
        &self.cancel
    }

    /// The same session, whose work this flag stops instead: for callers who stop one piece of work.
    pub fn with_cancel_flag(&self, cancel: CancelFlag) -> Session {
        Session { inner: self.inner.clone(), cancel }
    }

    /// An error if its work is to stop.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.cancel_flag().is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// The host as plugins see it, for somebody who is none and speaks the plugin interface: memory, a log and settings. What
    /// is taken through it is counted under `name`. It may outlive the session.
    ///
    /// # Errors
    /// Only of this library's own making.
    pub fn host_handle(&self, name: &str) -> Result<HostHandle> {
        let account = self.inner.host.backend().account(name);
        let object = HostObject::new(name, account, self.inner.settings, Some(self.decoder()));
        // SAFETY: the object is alive, and the handle retains it.
        let handle = unsafe { HostHandle::retain(object.as_ptr()) };
        handle.map_err(|error| Error::data("cannot lend the host", error))
    }

    /// Decodes arrays for plugins for as long as the session is open.
    fn decoder(&self) -> Arc<Decoder> {
        let session = Arc::downgrade(&self.inner);
        Arc::new(move |call, array| {
            let inner = session.upgrade().ok_or_else(session_is_closed)?;
            Session { cancel: inner.call.cancel.clone(), inner }.decode_for_plugin(call, array)
        })
    }

    pub(crate) fn other_decoder(&self) -> Option<&Decoder> {
        self.inner.decoder.as_deref()
    }

    pub(crate) fn vortex_types(&self) -> &VortexTypes {
        &self.inner.vortex_types
    }

    pub(crate) fn account(&self) -> &Account {
        &self.inner.account
    }

    /// What calls about bytes from outside are told.
    pub(crate) fn call_for_bytes(&self) -> CallSettings {
        self.call(self.inner.validate.unwrap_or(Validate::Full))
    }

    /// What calls about structs in memory are told.
    pub(crate) fn call_for_structs(&self) -> CallSettings {
        self.call(self.validate_structs())
    }

    fn call(&self, validate: Validate) -> CallSettings {
        CallSettings { validate, cancel: self.cancel.clone(), ..self.inner.call.clone() }
    }

    /// How closely structs from within the process are looked at.
    pub(crate) fn validate_structs(&self) -> Validate {
        self.inner.validate.unwrap_or(Validate::Layout)
    }

    /// All plugins that can be loaded, to ask for their formats. One that cannot is reported to the log; asking for it
    /// by name gives the error.
    pub fn plugins(&self) -> Arc<[Arc<Plugin>]> {
        self.plugins_quiet_about(&[])
    }

    /// The same, where those of `names` that cannot be loaded are not reported: for callers who ask for them next.
    pub(crate) fn plugins_quiet_about(&self, names: &[&str]) -> Instances<Plugin> {
        self.inner.plugins.get_or_make(|| {
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

    /// Whether this thread makes the plugins just now, and is in the code of one of them: it would wait for itself.
    pub(crate) fn makes_plugins_here(&self) -> bool {
        self.inner.plugins.is_made_here()
    }

    /// An instance of the plugin of this name. While 64 that were let go of are yet to be destroyed it is not made, as long as each
    /// of them ends within a second and for ten seconds at most: threads that open and close sessions are not to outrun the one that
    /// ends their instances.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is none, [`Error::Refused`] where it fails a check or to make an instance.
    pub fn plugin(&self, name: &str) -> Result<Arc<Plugin>> {
        self.instance(name, name, self.inner.settings)
    }

    /// The session's own instance of a plugin that was chosen: another one in its place where that has panicked.
    pub(crate) fn usable(&self, chosen: Arc<Plugin>) -> Result<Arc<Plugin>> {
        if !chosen.is_poisoned() {
            return Ok(chosen);
        }
        let new = self.inner.plugins.making(|| self.plugin(chosen.name()))?;
        self.inner.plugins.replace(&chosen, &new);
        Ok(new)
    }

    /// All of them, with new instances of those that have panicked and that `is_asked` says will be asked. Where none can be made,
    /// the old one says so.
    pub(crate) fn usable_plugins(
        &self,
        is_asked: impl Fn(&Instances<Plugin>, &Arc<Plugin>) -> bool,
    ) -> Instances<Plugin> {
        let plugins = self.plugins();
        let is_wanted = |plugin: &&Arc<Plugin>| plugin.is_poisoned() && is_asked(&plugins, plugin);
        let poisoned: Vec<_> = plugins.iter().filter(is_wanted).collect();
        if poisoned.is_empty() {
            return plugins;
        }
        for plugin in poisoned {
            if let Err(error) = self.usable(plugin.clone()) {
                tracing::warn!("{}", error.one_line());
            }
        }
        self.plugins()
    }

    /// A new instance of a plugin that was chosen, for one task, whose memory is counted as that task's.
    pub(crate) fn fresh(&self, chosen: &Arc<Plugin>, task: &str) -> Result<Arc<Plugin>> {
        if chosen.is_isolated() {
            // The session's own instance keeps the process that both are in for the next task.
            self.usable(chosen.clone())?;
        }
        self.instance(chosen.name(), &format!("{} ({task})", chosen.name()), self.inner.settings)
    }

    /// A new instance of a plugin, whose memory is counted as `account`, told of these settings.
    pub(crate) fn instance(
        &self,
        name: &str,
        account: &str,
        settings: SessionSettings,
    ) -> Result<Arc<Plugin>> {
        let loaded = self.inner.host.load(name)?;
        let backend = self.inner.host.backend();
        Plugin::create(loaded, self.inner.number, backend.account(account), settings, backend, self.decoder())
            .map_err(|refused| Error::Refused(Arc::new(refused)))
    }

    /// Runs `choose` over the formats of all plugins; where it finds nothing, a plugin that failed to load, if it was
    /// asked for by name, is the better explanation.
    pub(crate) fn choose<T>(
        &self,
        wanted: Option<&str>,
        choose: impl FnOnce(&Registry<'_>) -> Result<T>,
    ) -> Result<T> {
        let plugins = self.plugins_quiet_about(wanted.as_slice());
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
