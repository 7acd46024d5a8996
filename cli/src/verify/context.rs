//! The context of a case: the plugin under test, the device, the seed, and the suite's own
//! sessions.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use crossdock::api::{Device, Error, abi};
use crossdock::discovery::Search;
use crossdock::load::{Load, Loaded, PluginFile};
use crossdock::memory::Backend;
use crossdock::{Host, Session, Table};
use crossdock_arrays::DeviceBatch;

use super::coverage;
use super::random::Random;
use super::subject::Subject;
use super::verdict::{Check, failed, skipped};
use super::watch::{HostOptions, Watch};

/// The plugin, device, seed and sessions that a case uses.
pub struct CaseContext {
    pub case: &'static str,
    pub plugin: PathBuf,
    pub device: Device,
    pub seed: u64,
    /// The samples that are files.
    pub samples: Vec<PathBuf>,
    /// The samples that are URIs.
    uris: Vec<String>,
    /// The time limit of the whole case.
    pub limit: Duration,
    pub backend: Backend,
    /// The suite's own sessions, which have no plugins. They own the objects that the suite itself
    /// creates and reads.
    sessions: Vec<Session>,
    /// All watched hosts. Objects that were passed to the plugin may hold references to them until
    /// the case ends.
    watches: Mutex<Vec<Watch>>,
}

impl CaseContext {
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
        let (uris, samples): (Vec<_>, _) = samples.iter().cloned().partition(|sample| is_uri(sample));
        let uris = uris.into_iter().map(|uri| uri.display().to_string()).collect();
        let plugin = plugin.to_path_buf();
        Ok(Self {
            case,
            plugin,
            device,
            seed,
            samples,
            uris,
            limit,
            backend,
            sessions,
            watches: Mutex::default(),
        })
    }

    /// The samples that are URIs.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.uris.iter().map(String::as_str)
    }

    /// The random numbers of this case.
    pub fn random(&self) -> Random {
        coverage::record_seed_use();
        Random::new(self.seed, self.case)
    }

    /// The suite's own session on `device`, which is the case's device or the CPU.
    pub fn session(&self, device: Device) -> Check<&Session> {
        let session = self.sessions.iter().find(|session| session.device() == device);
        session.ok_or_else(|| skipped(format!("there is no session on {device}")))
    }

    pub fn loaded(&self) -> Check<Loaded> {
        PluginFile::new(&self.plugin)
            .load()
            .map_err(|refused| skipped(format!("the plugin does not load (see entry.loads): {refused}")))
    }

    /// The plugin's entry, in this process.
    pub fn entry(&self) -> Check<&'static abi::PluginEntry> {
        self.loaded()?.entry.ok_or_else(|| skipped("the plugin's code runs in another process"))
    }

    /// A host for one instance.
    pub fn watch(&self, options: HostOptions) -> Watch {
        let watch = Watch::new(&self.backend, &self.plugin, self.device, options);
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
        watch
    }

    /// An instance whose host offers all interfaces.
    pub fn subject(&self) -> Check<Subject> {
        self.subject_with(HostOptions::default())
    }

    pub fn subject_with(&self, options: HostOptions) -> Check<Subject> {
        let watch = self.watch(options);
        let instance = self.create(watch)?;
        instance.map_err(|error| failed("create", "an instance", error))
    }

    /// Calls the plugin's `create`. The inner result is the result of `create`. The outer result is
    /// an error if the suite itself fails.
    pub fn create(&self, watch: Watch) -> Check<Result<Subject, Error>> {
        let entry = self.entry()?;
        let stream = self.session(self.device)?.memory().create_stream(self.device);
        let stream = stream.map_err(|error| failed("the suite's own memory", "a stream", error))?;
        // SAFETY: `entry` comes from a loaded plugin, whose code stays mapped, and a watched host
        // is never freed. Cases drop the objects that an instance opened before they drop the
        // instance, except cases for the rule that this order does not matter.
        let instance = unsafe { Subject::create(entry, watch, stream, &self.backend) };
        if instance.is_err() {
            watch.end();
        }
        Ok(instance)
    }

    /// Converts the record batch to the batches of a table on `device`.
    pub fn table(&self, batch: &RecordBatch, device: Device) -> Check<Vec<DeviceBatch>> {
        let table = Table::from_record_batch(self.session(device)?, batch);
        let table = table.map_err(|error| failed("the suite's own table", "a table", error.one_line()))?;
        Ok(table.batches().to_vec())
    }
}

/// Whether a sample is a URI and not a file.
pub fn is_uri(sample: &Path) -> bool {
    sample.to_str().is_some_and(|text| crossdock::scheme_of(text).is_some())
}

impl Drop for CaseContext {
    fn drop(&mut self) {
        self.backend.settle();
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        watches.iter().for_each(|watch| watch.end());
    }
}
