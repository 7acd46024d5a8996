//! Plugins that are to run in processes of their own, and those processes.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use crossdock_memory_backend::{Account, Trace};
use crossdock_plugin_api::{Device, Result};

use crate::cgroup::Group;
use crate::child::Child;
use crate::deadlines::Deadlines;
use crate::locks::lock;
use crate::mapping::Allowance;
use crate::program::{Program, ProgramCheck};
use crate::rooms::Rooms;
use crate::wire::Order;

/// A plugin with one process for its instances in a session that work on the same device, and a new one after its end: what one
/// session gives it to read is in no process that another one speaks with.
pub struct Isolated {
    who: String,
    file: File,
    program: Option<Program>,
    check: ProgramCheck,
    deadlines: Deadlines,
    cgroup: Option<PathBuf>,
    /// By the session and the device that they have.
    running: Mutex<Running>,
    /// For all of them, and for what is left of those that are gone.
    allowed: Allowance,
}

type Running = HashMap<(u64, Option<Device>), Weak<Child>>;

impl Isolated {
    /// The plugin in this file, which `who` is called in messages, and what runs it: `program`, else what
    /// [`serve_with`] names; `check` says why the former, or the command beside this process's executable, is not to be started. With
    /// `cgroup` each process has a control group below that one.
    ///
    /// [`serve_with`]: crate::serve_with
    pub fn new(
        who: String,
        file: File,
        program: Option<Program>,
        check: ProgramCheck,
        deadlines: Deadlines,
        cgroup: Option<PathBuf>,
    ) -> Self {
        Self {
            who,
            file,
            program,
            check,
            deadlines,
            cgroup,
            running: Mutex::default(),
            allowed: Allowance::default(),
        }
    }

    /// The process of a session, by a number of its own, for a device: the one that runs, or a new one, with the rooms that `make`
    /// makes for it. What the host holds of what it sends counts as `account`'s.
    pub(crate) fn child(
        &self,
        session: u64,
        device: Option<Device>,
        memory_limit_bytes: u64,
        trace: Option<&Arc<Trace>>,
        account: Arc<Account>,
        make: impl FnOnce(Device) -> Result<Rooms>,
    ) -> Result<Arc<Child>> {
        let mut running = lock(&self.running);
        running.retain(|_, child| child.strong_count() > 0);
        let there = running.get(&(session, device)).and_then(Weak::upgrade);
        if let Some(child) = there.filter(|child| child.is_there()) {
            return Ok(child);
        }
        let (program, rooms) = (
            Program::to_start(self.program.as_ref(), self.check)?,
            device.map(make).transpose()?.map(Arc::new),
        );
        let group = self.cgroup.as_deref();
        let group =
            group.map(|parent| Group::new(parent, memory_limit_bytes, device.is_some())).transpose()?;
        let (who, deadlines) = (self.who.clone(), self.deadlines);
        let allowed = self.allowed.counted_by(account);
        let child = Child::start(who, &program, group, deadlines, rooms, trace.cloned(), allowed)?;
        let child = Arc::new(child);
        let (version, who) = (env!("CARGO_PKG_VERSION").to_owned(), self.who.clone());
        let recorded_from = trace.map(|trace| trace.began());
        let order = Order::Load { version, who, memory_limit_bytes, recorded_from };
        child.load(&order, &self.file)?;
        running.insert((session, device), Arc::downgrade(&child));
        Ok(child)
    }
}
