//! All that the simulator knows.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::codes::{
    CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, Outcome,
};
use crate::config::Config;
use crate::launch::{Function, Module};
use crate::mapped::Physical;
use crate::memory::{Block, BlockId, Grave};
use crate::order::Clock;
use crate::pools::Pool;
use crate::random::Random;
use crate::report::{Findings, Site, Sites, Violation, say};
use crate::space::Space;
use crate::streams::{Event, Stream};

/// A handle: a number that is no address.
pub(crate) type Handle = usize;

/// Handles begin here: not canonical, so that nobody takes one for a struct.
const HANDLES: Handle = 0x00c0_da00_0000_0000;

/// Everything, behind one lock.
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
    /// By handle.
    pub stream_slots: HashMap<Handle, usize>,
    /// The streams that need no creation: of a device, and for the per-thread one of a thread.
    pub default_streams: HashMap<(usize, Option<std::thread::ThreadId>), usize>,
    pub events: HashMap<Handle, Event>,
    pub pools: HashMap<Handle, Pool>,
    /// Memory that was made without an address, by handle.
    pub physical: HashMap<Handle, Physical>,
    /// Addresses that were set aside for it, and for how many bytes.
    pub reserved: HashMap<u64, u64>,
    pub modules: HashMap<Handle, Module>,
    pub functions: HashMap<Handle, Function>,
    /// What the host knows to have run, on whichever thread.
    pub host: Clock,
    /// What it has waited for by name: without what it only asked about, and what came before it on other streams.
    pub waited_for: Clock,
    pub blocks: HashMap<BlockId, Block>,
    /// Bytes that are held for what has not run.
    pub backlog_bytes: u64,
    /// Begin to (end, block), of every live block.
    pub addresses: BTreeMap<u64, (u64, BlockId)>,
    /// Device memory that was freed, by begin; the oldest are forgotten.
    pub graves: BTreeMap<u64, Grave>,
    pub grave_order: VecDeque<u64>,
    /// Kernels that were reported as having no twin.
    pub without_twin: Vec<String>,
    last_handle: Handle,
    last_block: BlockId,
}

/// One device, which is one context: the primary one.
pub(crate) struct Device {
    pub context: Handle,
    pub retained: u64,
    /// What every call answers since a kernel went wrong.
    pub sticky: Option<Code>,
    pub space: Option<Space>,
    /// Bytes of cuMemAlloc.
    pub direct: u64,
    pub default_pool: Handle,
}

/// A thread's contexts. It needs no dropping, so that calls from a thread's last destructors still find it.
#[derive(Clone, Copy)]
struct Current {
    contexts: [Handle; DEEPEST],
    depth: usize,
}

const DEEPEST: usize = 32;

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current { contexts: [0; DEEPEST], depth: 0 }) };
}

/// The context that is current on this thread, or 0.
pub(crate) fn current_context() -> Handle {
    let Current { contexts, depth } = CURRENT.get();
    depth.checked_sub(1).map_or(0, |top| contexts[top])
}

/// Makes a context current on top of what is.
pub(crate) fn push_context(context: Handle) -> Outcome {
    let mut current = CURRENT.get();
    *current.contexts.get_mut(current.depth).ok_or(INVALID_VALUE)? = context;
    current.depth += 1;
    CURRENT.set(current);
    Ok(())
}

/// Takes away what is current, if anything is.
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
            graves: BTreeMap::new(),
            grave_order: VecDeque::new(),
            without_twin: Vec::new(),
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

    /// Where the call that is running came from.
    pub(crate) fn here(&mut self) -> Site {
        self.sites.here(self.call)
    }

    /// A `CUdevice`.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<usize> {
        usize::try_from(ordinal).ok().filter(|o| *o < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    /// The device that a context belongs to.
    pub(crate) fn device_of(&self, context: Handle) -> Outcome<usize> {
        self.devices.iter().position(|device| device.context == context).ok_or(INVALID_CONTEXT)
    }

    /// The device whose context is current on this thread, if it works.
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

    /// Reports a handle that is none, or none any more.
    pub(crate) fn stale(&mut self, kind: &str, handle: Handle) -> Code {
        let text = format!("{} was given {handle:#x}, which is no live {kind}", self.call);
        let site = self.here();
        self.violation(Violation::StaleHandle, &text, &[("the call", site)]);
        INVALID_HANDLE
    }

    /// Reports what a correct program does not do, and ends the process unless it is only to be counted.
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
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
    }
}

/// Writes through a caller's pointer.
///
/// # Safety
/// `to` is null, or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by this function's own contract; callers of a C function need not align.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
