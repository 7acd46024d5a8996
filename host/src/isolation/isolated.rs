//! Plugins that are to run in processes of their own, and those processes.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, Weak};

use crossdock_memory_backend::Trace;
use crossdock_plugin_api::{Device, Result};

use super::Isolation;
use super::cgroup::Group;
use super::child::{Child, lock};
use super::rooms::Rooms;
use super::wire::Order;
use crate::source::Allowance;

/// A plugin with one process for all of its instances in a host that work on the same device, and a new one after its end.
pub struct Isolated {
    who: String,
    file: File,
    isolation: Isolation,
    /// By the device that they have.
    running: Mutex<HashMap<Option<Device>, Weak<Child>>>,
    /// For all of them, and for what is left of those that are gone.
    allowed: Allowance,
}

impl Isolated {
    pub fn new(who: String, file: File, isolation: Isolation) -> Self {
        Self { who, file, isolation, running: Mutex::default(), allowed: Allowance::default() }
    }

    /// Its process for a device: the one that runs, or a new one, with the rooms that `make` makes for it.
    pub fn child(
        &self,
        device: Option<Device>,
        memory_limit_bytes: u64,
        trace: Option<&Arc<Trace>>,
        make: impl FnOnce(Device) -> Result<Rooms>,
    ) -> Result<Arc<Child>> {
        let mut running = lock(&self.running);
        running.retain(|_, child| child.strong_count() > 0);
        let there = running.get(&device).and_then(Weak::upgrade);
        if let Some(child) = there.filter(|child| child.is_there()) {
            return Ok(child);
        }
        let (program, rooms) = (self.isolation.program()?, device.map(make).transpose()?.map(Arc::new));
        let group = self.isolation.cgroup.as_deref();
        let group =
            group.map(|parent| Group::new(parent, memory_limit_bytes, device.is_some())).transpose()?;
        let (who, silence) = (self.who.clone(), self.isolation.silence);
        let allowed = self.allowed.clone();
        let child = Child::start(who, &program, group, silence, rooms, trace.cloned(), allowed)?;
        let child = Arc::new(child);
        let (version, who) = (env!("CARGO_PKG_VERSION").to_owned(), self.who.clone());
        let recorded_from = trace.map(|trace| trace.began());
        let order = Order::Load { version, who, memory_limit_bytes, recorded_from };
        child.load(&order, &self.file)?;
        running.insert(device, Arc::downgrade(&child));
        Ok(child)
    }
}
