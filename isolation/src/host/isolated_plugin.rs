//! A plugin that runs in processes of its own, and these processes.

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
use crate::host::segments::SharedDeviceSegments;
use crate::locks::lock;
use crate::sandbox::cgroup::Group;
use crate::wire::messages::Request;

/// A plugin with one process per session and device. Sessions share no process, so that a process
/// sees the inputs of one session only.
pub struct IsolatedPlugin {
    /// The plugin's name in messages.
    plugin: String,
    file: File,
    program: Option<Program>,
    check: ProgramCheck,
    deadlines: Deadlines,
    cgroup: Option<PathBuf>,
    running: Mutex<Running>,
    /// Shared by all processes, including objects that remain of ended ones.
    budget: ReceiveBudget,
}

/// Running processes by session and device.
type Running = HashMap<(u64, Option<Device>), Weak<Child>>;

impl IsolatedPlugin {
    /// The plugin in `file`, which messages call `plugin`.
    ///
    /// `program` runs it, else that of [`serve_with`], else the command beside this process's
    /// executable. `check` decides whether the first or the last of these may be started. If there
    /// is a `cgroup`, each process is in a control group below it.
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

    /// The process of a session for a device: the running one, or a new one with the segments that
    /// `create_segments` returns. Received messages are charged to `account`.
    ///
    /// # Errors
    /// The process cannot be started, or cannot load the plugin. makes for it. What the host holds
    /// of what it sends counts as `account`'s.
    pub(crate) fn child(
        &self,
        session: u64,
        device: Option<Device>,
        memory_limit_bytes: u64,
        trace: Option<&Arc<Trace>>,
        account: Arc<Account>,
        create_segments: impl FnOnce(Device) -> Result<SharedDeviceSegments>,
    ) -> Result<Arc<Child>> {
        let mut running = lock(&self.running);
        running.retain(|_, child| child.strong_count() > 0);
        let existing = running.get(&(session, device)).and_then(Weak::upgrade);
        if let Some(child) = existing.filter(|child| child.is_running()) {
            return Ok(child);
        }
        let program = Program::to_start(self.program.as_ref(), self.check)?;
        let segments = device.map(create_segments).transpose()?.map(Arc::new);
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
