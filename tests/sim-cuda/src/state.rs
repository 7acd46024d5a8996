//! The state of the simulator.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::codes::{
    CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, Outcome,
};
use crate::config::Config;
use crate::launch::{Function, Module};
use crate::mapped::Physical;
use crate::memory::{Block, BlockId, FreedBlock};
use crate::order::Clock;
use crate::pools::Pool;
use crate::random::Random;
use crate::report::{Findings, Site, Sites, Violation, say};
use crate::space::Space;
use crate::streams::{Event, Stream};

/// A handle, which is a number and not an address.
pub(crate) type Handle = usize;

/// All handles are greater than this number, which is a non-canonical address. So a handle is never
/// the address of an object.
const HANDLES: Handle = 0x00c0_da00_0000_0000;

/// The whole state of the simulator. One lock protects it.
pub(crate) struct Sim {
    pub started: bool,
    /// The exported function that is running.
    pub call: &'static str,
    pub process: u32,
    pub config: &'static Config,
    pub seed: u64,
    pub random: Random,
    pub sites: Sites,
    pub findings: Findings,
    pub devices: Vec<Device>,
    pub streams: Vec<Stream>,
    /// The index in `streams` of each stream, by handle.
    pub stream_slots: HashMap<Handle, usize>,
    /// The index in `streams` of each default stream, by device and thread. The thread is `None`
    /// for a legacy default stream.
    pub default_streams: HashMap<(usize, Option<std::thread::ThreadId>), usize>,
    pub events: HashMap<Handle, Event>,
    pub pools: HashMap<Handle, Pool>,
    /// The memory that cuMemCreate allocated, by handle.
    pub physical: HashMap<Handle, Physical>,
    /// The reserved address ranges: the size in bytes, by begin.
    pub reserved: HashMap<u64, u64>,
    pub modules: HashMap<Handle, Module>,
    pub functions: HashMap<Handle, Function>,
    /// The work that has run according to a query or synchronization by any thread of the host.
    pub host: Clock,
    /// The work with which the host has synchronized directly. This excludes work that the host
    /// only queried, and work on other streams that ran before the synchronized work.
    pub waited_for: Clock,
    pub blocks: HashMap<BlockId, Block>,
    /// The number of bytes of host memory that pending work holds.
    pub backlog_bytes: u64,
    /// The end and the id of each live block, by begin.
    pub addresses: BTreeMap<u64, (u64, BlockId)>,
    /// The most recently freed device blocks, by begin.
    pub freed_blocks: BTreeMap<u64, FreedBlock>,
    pub freed_order: VecDeque<u64>,
    /// The kernels that were reported because they have no CPU implementation.
    pub skipped_kernels: Vec<String>,
    last_handle: Handle,
    last_block: BlockId,
}

/// One device with its primary context.
pub(crate) struct Device {
    pub context: Handle,
    pub retained: u64,
    /// The code that every call returns after a kernel has failed.
    pub sticky: Option<Code>,
    pub space: Option<Space>,
    /// The number of bytes that cuMemAlloc allocated.
    pub direct: u64,
    pub default_pool: Handle,
}

/// A thread's stack of contexts. The stack has no destructor, so that other thread-local
/// destructors can still call the driver.
#[derive(Clone, Copy)]
struct Current {
    contexts: [Handle; MAX_DEPTH],
    depth: usize,
}

const MAX_DEPTH: usize = 32;

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current { contexts: [0; MAX_DEPTH], depth: 0 }) };
}

/// The context that is current on this thread, or 0.
pub(crate) fn current_context() -> Handle {
    let Current { contexts, depth } = CURRENT.get();
    depth.checked_sub(1).map_or(0, |top| contexts[top])
}

/// Pushes a context, which becomes current.
pub(crate) fn push_context(context: Handle) -> Outcome {
    let mut current = CURRENT.get();
    *current.contexts.get_mut(current.depth).ok_or(INVALID_VALUE)? = context;
    current.depth += 1;
    CURRENT.set(current);
    Ok(())
}

/// Pops the current context, if there is one.
pub(crate) fn pop_context() -> Option<Handle> {
    let mut current = CURRENT.get();
    current.depth = current.depth.checked_sub(1)?;
    CURRENT.set(current);
    Some(current.contexts[current.depth])
}

impl Sim {
    pub(crate) fn new(config: &'static Config) -> Self {
        let mut sim = Self {
            started: false,
            call: "",
            process: std::process::id(),
            config,
            seed: config.seed,
            random: Random::new(config.seed),
            sites: Sites::default(),
            findings: Findings::default(),
            devices: Vec::new(),
            streams: Vec::new(),
            stream_slots: HashMap::new(),
            default_streams: HashMap::new(),
            events: HashMap::new(),
            pools: HashMap::new(),
            physical: HashMap::new(),
            reserved: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            host: Clock::default(),
            waited_for: Clock::default(),
            blocks: HashMap::new(),
            backlog_bytes: 0,
            addresses: BTreeMap::new(),
            freed_blocks: BTreeMap::new(),
            freed_order: VecDeque::new(),
            skipped_kernels: Vec::new(),
            last_handle: HANDLES,
            last_block: 0,
        };
        for device in 0..config.devices {
            let (context, default_pool) = (sim.new_handle(), sim.new_handle());
            sim.pools.insert(default_pool, Pool::new(device));
            let device = Device { context, retained: 0, sticky: None, space: None, direct: 0, default_pool };
            sim.devices.push(device);
        }
        sim
    }

    pub(crate) fn new_handle(&mut self) -> Handle {
        self.last_handle += 64;
        self.last_handle
    }

    pub(crate) fn new_block(&mut self) -> BlockId {
        self.last_block += 1;
        self.last_block
    }

    /// The call site of the driver call that is running.
    pub(crate) fn here(&mut self) -> Site {
        self.sites.here(self.call)
    }

    /// The index of a `CUdevice`.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<usize> {
        usize::try_from(ordinal).ok().filter(|o| *o < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    /// The device that a context belongs to.
    pub(crate) fn device_of(&self, context: Handle) -> Outcome<usize> {
        self.devices.iter().position(|device| device.context == context).ok_or(INVALID_CONTEXT)
    }

    /// The device whose context is current on this thread, if it is usable.
    pub(crate) fn current(&self) -> Outcome<usize> {
        let device = self.device_of(current_context())?;
        self.usable(device)?;
        Ok(device)
    }

    pub(crate) fn usable(&self, device: usize) -> Outcome {
        match &self.devices[device] {
            Device { retained: 0, .. } => Err(CONTEXT_IS_DESTROYED),
            Device { sticky: Some(code), .. } => Err(*code),
            _ => Ok(()),
        }
    }

    /// Reports an invalid or destroyed handle.
    pub(crate) fn stale(&mut self, kind: &str, handle: Handle) -> Code {
        let text = format!("{} got the handle {handle:#x}, which is not a live {kind}", self.call);
        let site = self.here();
        self.violation(Violation::StaleHandle, &text, &[("the call", site)]);
        INVALID_HANDLE
    }

    /// Reports a violation, and ends the process unless violations are only counted.
    pub(crate) fn violation(&mut self, what: Violation, text: &str, sites: &[(&str, Site)]) {
        self.findings.count += 1;
        self.findings.last = Some(what);
        let mut lines = format!("violation: {}: {text}\n", what.name().to_string_lossy());
        for (label, site) in sites {
            lines += &format!("  {label}:\n{}", self.sites.describe(*site));
        }
        lines += &format!("  replay with CROSSDOCK_SIM_CUDA_SEED={}", self.seed);
        say(&lines);
        if !self.findings.only_count {
            // SAFETY: `abort` has no preconditions.
            unsafe { libc::abort() };
        }
    }
}

/// Writes through a caller's pointer. Rejects a null pointer.
///
/// # Safety
/// `to` is null or valid for a write, aligned or not.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: `to` is not null, so it is valid for an unaligned write by this function's contract.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
