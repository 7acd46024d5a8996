//! Running what streams were given: as late as possible, in an order that the seed decides among those allowed.

use std::collections::BTreeMap;

use crossdock_plugin_api::abi;

use crate::codes::{Code, LAUNCH_FAILED};
use crate::memory::{BlockId, Spot};
use crate::report::say;
use crate::state::Sim;
use crate::streams::Target;

/// Something that a stream was given.
pub(crate) enum Op {
    /// Until these moments.
    Wait(Vec<Target>),
    Copy {
        to: Place,
        from: Place,
        bytes: usize,
    },
    Fill {
        to: Place,
        value: u8,
        bytes: usize,
    },
    Launch(Box<Launch>),
    /// The end of a block.
    Free(BlockId),
    /// A kernel that reaches where it may not.
    Fault(Code),
}

/// Where bytes are.
pub(crate) enum Place {
    /// In a block that the simulator knows, of a device or pinned.
    Block(Spot),
    /// Pageable memory as it was when the copy was asked for.
    Staged(Vec<u8>),
    /// Pageable memory, while its owner waits for the copy.
    Pageable(*mut u8),
}

// SAFETY: a pageable place is used only during the call that made it.
unsafe impl Send for Place {}

/// A kernel's launch.
pub(crate) struct Launch {
    pub name: String,
    pub twin: unsafe extern "C" fn(*const abi::Arg, usize) -> abi::Code,
    pub args: Vec<(abi::Arg, Option<Place>)>,
}

impl Sim {
    /// Runs what must have run at these moments, and nothing else.
    pub(crate) fn run_to(&mut self, targets: &[Target]) {
        let needed = self.needed(targets);
        while let Some(slot) = self.choose(&needed) {
            self.step(slot);
        }
    }

    /// Runs one or two operations of these, if there are any.
    pub(crate) fn run_a_little(&mut self, targets: &[Target]) {
        let mut needed = self.needed(targets);
        needed.retain(|slot, _| !self.streams[*slot].held);
        for _ in 0..=self.random.below(2) {
            if let Some(slot) = self.choose(&needed) {
                self.step(slot);
            }
        }
    }

    /// Whether any of these needs a stream that is held.
    pub(crate) fn is_held_up(&self, targets: &[Target]) -> bool {
        self.streams.iter().any(|stream| stream.held)
            && self.needed(targets).keys().any(|slot| self.streams[*slot].held)
    }

    /// How far each stream has to come.
    fn needed(&self, targets: &[Target]) -> BTreeMap<usize, u64> {
        let mut needed = BTreeMap::new();
        let mut left = targets.to_vec();
        while let Some(Target { slot, number }) = left.pop() {
            let stream = &self.streams[slot];
            let from = needed.get(&slot).copied().unwrap_or(stream.done);
            if number <= from {
                continue;
            }
            let known = (from - stream.done) as usize;
            for op in stream.queue.iter().take((number - stream.done) as usize).skip(known) {
                if let Op::Wait(targets) = op {
                    left.extend(targets);
                }
            }
            needed.insert(slot, number);
        }
        needed
    }

    /// One of the streams that are not yet so far, and can go on.
    fn choose(&mut self, needed: &BTreeMap<usize, u64>) -> Option<usize> {
        let can_go_on = |(slot, number): (&usize, &u64)| {
            let stream = &self.streams[*slot];
            let ready = match stream.queue.front() {
                Some(Op::Wait(targets)) => targets.iter().all(|t| self.streams[t.slot].done >= t.number),
                Some(_) => true,
                None => false,
            };
            (stream.done < *number && ready).then_some(*slot)
        };
        let ready: Vec<usize> = needed.iter().filter_map(can_go_on).collect();
        (!ready.is_empty()).then(|| ready[self.random.below(ready.len())])
    }

    fn step(&mut self, slot: usize) {
        let stream = &mut self.streams[slot];
        let Some(op) = stream.queue.pop_front() else { return };
        stream.done += 1;
        let device = stream.device;
        self.backlog_bytes = self.backlog_bytes.saturating_sub(self.weight(&op));
        // A broken context runs nothing any more.
        if self.devices[device].sticky.is_none() {
            self.execute(device, op);
        }
    }

    fn execute(&mut self, device: usize, op: Op) {
        match op {
            Op::Wait(_) => {}
            Op::Free(block) => self.bury(block),
            Op::Fault(code) => self.devices[device].sticky = Some(code),
            Op::Launch(launch) => self.execute_launch(device, &launch),
            // A place that is gone was reported when it went.
            Op::Copy { to, from, bytes } => {
                if let (Some(to), Some(from)) = (self.real(&to), self.real(&from)) {
                    // SAFETY: the bounds of both were checked against their blocks when the copy was asked for, and
                    // blocks do not change; staged bytes are that many; a pageable place is the caller's, who waits.
                    unsafe { std::ptr::copy(from, to, bytes) };
                }
            }
            Op::Fill { to, value, bytes } => {
                if let Some(to) = self.real(&to) {
                    // SAFETY: as above.
                    unsafe { to.write_bytes(value, bytes) };
                }
            }
        }
    }

    fn execute_launch(&mut self, device: usize, launch: &Launch) {
        let mut args = Vec::with_capacity(launch.args.len());
        for (arg, place) in &launch.args {
            let mut arg = *arg;
            if let Some(place) = place {
                let Some(real) = self.real(place) else { return };
                arg.value = real as u64;
            }
            args.push(arg);
        }
        // SAFETY: the caller of cuLaunchKernel vouches for the twin as it does for the kernel; the addresses are real and
        // of the lengths that it gave.
        let code = unsafe { (launch.twin)(args.as_ptr(), args.len()) };
        if code != 0 {
            say(&format!(
                "kernel {} failed: its host twin returned {code}; the context is broken",
                launch.name
            ));
            self.devices[device].sticky = Some(LAUNCH_FAILED);
        }
    }

    /// Bytes of the host's memory that can be used again when this has run.
    pub(crate) fn weight(&self, op: &Op) -> u64 {
        match op {
            Op::Copy { from: Place::Staged(bytes), .. } => bytes.len() as u64,
            Op::Free(block) => self.blocks.get(block).map_or(0, |block| block.bytes),
            _ => 0,
        }
    }

    fn real(&self, place: &Place) -> Option<*mut u8> {
        match place {
            // SAFETY: the offset was checked to lie in the block.
            Place::Block(Spot { id, offset }) => {
                let begin = self.blocks.get(id)?.real.pointer();
                // SAFETY: the offset was checked to lie in the block.
                Some(unsafe { begin.add(*offset as usize) })
            }
            Place::Staged(bytes) => Some(bytes.as_ptr().cast_mut()),
            Place::Pageable(pointer) => Some(*pointer),
        }
    }
}
