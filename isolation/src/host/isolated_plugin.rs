//! A plugin that runs in its own processes.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use crossdock_memory_backend::{Account, Trace};
use crossdock_plugin_api::{Device, Result};

use crate::files::mapping::ReceiveBudget;
use crate::host::child::Child;
use crate::host::deadlines::Deadlines;
use crate::host::program::{Program, ProgramCheck};
use crate::host::writable_segments::WritableSegments;
use crate::locks::lock;
use crate::sandbox::cgroup::Group;
use crate::wire::messages::Request;

/// A plugin that runs in one process for each session and device. A process thus receives only the
/// inputs of its own session.
pub struct IsolatedPlugin {
    /// The plugin's name in messages.
    plugin: String,
    file: File,
    program: Option<Program>,
    check: ProgramCheck,
    deadlines: Deadlines,
    cgroup: Option<PathBuf>,
    running: Mutex<Running>,
    /// The budget of all processes of the plugin. It includes objects that remain after their
    /// process has ended.
    budget: ReceiveBudget,
}

/// Running processes by session and device.
type Running = HashMap<(u64, Option<Device>), Weak<Child>>;

impl IsolatedPlugin {
    /// Creates a plugin from `file`. Messages name the plugin `plugin`.
    ///
    /// `program` is the program that runs the plugin. The default is the program of [`serve_with`],
    /// or else the command `crossdock` in the folder of this process's executable. `check` decides
    /// whether `program` or the command may be started. If `cgroup` is set, each process gets its
    /// own control group in `cgroup`.
    ///
    /// [`serve_with`]: crate::serve_with
    pub fn new(
        plugin: String,
        file: File,
        program: Option<Program>,
        check: ProgramCheck,
        deadlines: Deadlines,
        cgroup: Option<PathBuf>,
    ) -> Self {
        let (running, budget) = (Mutex::default(), ReceiveBudget::default());
        Self { plugin, file, program, check, deadlines, cgroup, running, budget }
    }

    /// Returns the running process of a session for a device, or starts a process with the segments
    /// that `create_segments` returns. Received messages are charged to `account`.
    ///
    /// # Errors
    /// The process cannot be started, or cannot load the plugin.
    pub(crate) fn child(
        &self,
        session: u64,
        device: Option<Device>,
        memory_limit_bytes: u64,
        trace: Option<&Arc<Trace>>,
        account: Arc<Account>,
        create_segments: impl Fn(Device) -> Result<WritableSegments>,
    ) -> Result<Arc<Child>> {
        let mut running = lock(&self.running);
        running.retain(|_, child| child.strong_count() > 0);
        let existing = running.get(&(session, device)).and_then(Weak::upgrade);
        if let Some(child) = existing.filter(|child| child.is_running()) {
            return Ok(child);
        }
        let program = Program::to_start(self.program.as_ref(), self.check)?;
        let in_host_memory = Arc::new(create_segments(Device::CPU)?);
        let on_device = device.map(&create_segments).transpose()?.map(Arc::new);
        let segments = (on_device.unwrap_or_else(|| in_host_memory.clone()), in_host_memory);
        let create_group = |parent| Group::new(parent, memory_limit_bytes, device.is_some());
        let group = self.cgroup.as_deref().map(create_group).transpose()?;
        let (plugin, deadlines) = (self.plugin.clone(), self.deadlines);
        let budget = self.budget.with_account(account);
        let child = Child::start(plugin, &program, group, deadlines, segments, trace.cloned(), budget)?;
        let child = Arc::new(child);
        let (version, plugin) = (env!("CARGO_PKG_VERSION").to_owned(), self.plugin.clone());
        let trace_start = trace.map(|trace| trace.start());
        let request = Request::Load { version, plugin, memory_limit_bytes, trace_start };
        child.load(&request, &self.file)?;
        running.insert((session, device), Arc::downgrade(&child));
        Ok(child)
    }
}
