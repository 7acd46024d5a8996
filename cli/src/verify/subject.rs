//! What cases work with: the plugin under test, an instance of it under watch, and tables.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use crossdock::api::{
    CallSettings, CallStream, Device, EncodingHandle, Error, ExporterHandle, ImporterHandle, Instance, abi,
};
use crossdock::discovery::Search;
use crossdock::load::{Load, Loaded, PluginFile};
use crossdock::memory::Backend;
use crossdock::{Host, Session, Table};
use crossdock_arrays::DeviceBatch;
use crossdock_memory::Stream;

use super::coverage;
use super::random::Random;
use super::verdict::{Check, Stop, failed, not_offered, skipped};
use super::watch::{Watch, Wishes};

/// Where a case runs.
pub struct Ground {
    pub case: &'static str,
    pub plugin: PathBuf,
    pub device: Device,
    pub seed: u64,
    pub samples: Vec<PathBuf>,
    /// How long the case may take in all.
    pub limit: Duration,
    pub backend: Backend,
    /// The suite's own sessions, without plugins: what it makes and reads itself is theirs.
    sessions: Vec<Session>,
    /// What was lent may hold a watched host until the case has dropped it.
    watches: Mutex<Vec<Watch>>,
}

/// An instance under watch.
pub struct Subject {
    instance: ManuallyDrop<Instance>,
    pub watch: Watch,
    stream: Stream,
    backend: Backend,
}

impl Ground {
    pub fn new(
        case: &'static str,
        plugin: &Path,
        device: Device,
        seed: u64,
        samples: &[PathBuf],
        limit: Duration,
    ) -> Check<Self> {
        let backend = Backend::builder().untouchable(device == Device::UNTOUCHABLE).build();
        let host = Host::builder().backend(backend.clone()).search(Search::nowhere()).build_lenient();
        let open = |device| {
            host.session().device(device).open().map_err(|error: crossdock::Error| skipped(error.one_line()))
        };
        let mut sessions = vec![open(Device::CPU)?];
        if device != Device::CPU {
            sessions.push(open(device)?);
        }
        let (plugin, samples) = (plugin.to_path_buf(), samples.to_vec());
        Ok(Self { case, plugin, device, seed, samples, limit, backend, sessions, watches: Mutex::default() })
    }

    /// Numbers for this case.
    pub fn random(&self) -> Random {
        coverage::seeded();
        Random::new(self.seed, self.case)
    }

    /// The suite's own session on `device`, which is the case's or the CPU.
    pub fn session(&self, device: Device) -> Check<&Session> {
        let found = self.sessions.iter().find(|session| session.device() == device);
        found.ok_or_else(|| skipped(format!("there is no session on {device}")))
    }

    pub fn loaded(&self) -> Check<Loaded> {
        PluginFile::new(&self.plugin)
            .load()
            .map_err(|refused| skipped(format!("it does not load (see entry.loads): {refused}")))
    }

    /// Its functions, in this process.
    pub fn entry(&self) -> Check<&'static abi::PluginEntry> {
        self.loaded()?.entry.ok_or_else(|| skipped("its code is in another process"))
    }

    /// A host for one instance.
    pub fn watch(&self, wishes: Wishes) -> Watch {
        let watch = Watch::new(&self.backend, &self.plugin, self.device, wishes);
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
        watch
    }

    /// An instance with a host that offers all it has.
    pub fn subject(&self) -> Check<Subject> {
        self.subject_with(Wishes::default())
    }

    pub fn subject_with(&self, wishes: Wishes) -> Check<Subject> {
        let watch = self.watch(wishes);
        let instance = self.create(watch)?;
        instance.map_err(|error| failed("create", "an instance", error))
    }

    /// What `create` says.
    pub fn create(&self, watch: Watch) -> Check<Result<Subject, Error>> {
        let entry = self.entry()?;
        let stream = self.session(self.device)?.memory().create_stream(self.device);
        let stream = stream.map_err(|error| failed("the suite's own memory", "a stream", error))?;
        // SAFETY: the entry passed the load checks and its code stays mapped; a watched host lives for ever. Whoever has a
        // subject drops what it opened first; where a case does not, that is what it tries.
        let instance = unsafe { Instance::create(entry, watch.as_ptr()) };
        if instance.is_err() {
            watch.end();
        }
        let backend = self.backend.clone();
        Ok(instance.map(|instance| Subject { instance: ManuallyDrop::new(instance), watch, stream, backend }))
    }

    /// A table where the case's device, or a format that knows host memory alone, wants it.
    pub fn table(&self, batch: &RecordBatch, device: Device) -> Check<Vec<DeviceBatch>> {
        let table = Table::from_record_batch(self.session(device)?, batch);
        let table = table.map_err(|error| failed("the suite's own table", "a table", error.one_line()))?;
        Ok(table.batches().to_vec())
    }
}

impl Subject {
    pub fn importer(&self) -> Check<ImporterHandle<'_>> {
        self.instance.importer().ok_or_else(|| not_offered("the plugin has no importer"))
    }

    pub fn exporter(&self) -> Check<ExporterHandle<'_>> {
        self.instance.exporter().ok_or_else(|| not_offered("the plugin has no exporter"))
    }

    pub fn encoding(&self) -> Check<EncodingHandle<'_>> {
        self.instance.encoding().ok_or_else(|| not_offered("the plugin has no encodings"))
    }

    /// A call on the case's device, and a stream of its own there.
    pub fn call(&self) -> CallSettings {
        // SAFETY: a stream of the device, alive as long as the subject, which every call is made with.
        let stream = unsafe { CallStream::new(self.stream.raw()) };
        CallSettings { stream, ..CallSettings::new(self.stream.device()) }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Destroys the instance as soon as a host may: when there are no more references to its host than `fresh` has, another
    /// instance that lent nothing. Else it lives on.
    pub fn end_early(self, fresh: &Subject) -> Option<Subject> {
        (self.watch.references() > fresh.watch.references()).then_some(self)
    }

    /// Destroys the instance, and gives what was watched.
    pub fn end(self) -> Watch {
        self.watch
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.backend.settle();
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        watches.iter().for_each(|watch| watch.end());
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.instance) };
        self.backend.settle();
        self.watch.end();
    }
}

/// An error of the host library or of the boundary while the suite looks at what it got.
pub fn looked(place: &str) -> impl Fn(Error) -> Stop + '_ {
    move |error| failed(place, "an array that keeps the specification", error)
}
