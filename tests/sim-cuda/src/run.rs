//! Runs the work of streams as late as possible. The seed selects one of the permitted orders.

use std::collections::BTreeMap;

use crossdock_plugin_api::abi;

use crate::codes::{Code, LAUNCH_FAILED};
use crate::memory::{BlockId, Spot};
use crate::report::say;
use crate::state::Sim;
use crate::streams::Target;

/// An operation on a stream.
pub(crate) enum Op {
    /// Waits until other streams have reached these targets.
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
    /// Frees a block.
    Free(BlockId),
    /// Breaks the context with an error code, like a kernel that accesses invalid memory.
    Fault(Code),
}

/// The place of the bytes that an operation accesses.
pub(crate) enum Place {
    /// In a device block or in pinned memory.
    Block(Spot),
    /// A copy of pageable memory, which was made when the operation was queued.
    Staged(Vec<u8>),
    /// Pageable memory. The call that queued the operation waits for it.
    Pageable(*mut u8),
}

// SAFETY: the pointer of a pageable place is used only during the driver call that created the
// place.
unsafe impl Send for Place {}

/// The launch of a kernel.
pub(crate) struct Launch {
    pub name: String,
    pub cpu_implementation: unsafe extern "C" fn(*const abi::Arg, usize) -> abi::Code,
    pub args: Vec<(abi::Arg, Option<Place>)>,
    /// The place of the copy of the arguments on the device, and the expected arguments.
    pub list: Option<(Place, Vec<abi::Arg>)>,
}

impl Sim {
    /// Runs exactly the operations that must run before these targets are reached.
    pub(crate) fn run_to(&mut self, targets: &[Target]) {
        let needed = self.needed(targets);
        while let Some(slot) = self.choose(&needed) {
            self.step(slot);
        }
    }

    /// Runs up to two operations that must run before these targets are reached, but none on a held
    /// stream.
    pub(crate) fn run_a_little(&mut self, targets: &[Target]) {
        let mut needed = self.needed(targets);
        needed.retain(|slot, _| !self.streams[*slot].is_held);
        for _ in 0..=self.random.below(2) {
            if let Some(slot) = self.choose(&needed) {
                self.step(slot);
            }
        }
    }

    /// Whether work on a held stream must run before these targets are reached.
    pub(crate) fn needs_held_stream(&self, targets: &[Target]) -> bool {
        self.streams.iter().any(|stream| stream.is_held)
            && self.needed(targets).keys().any(|slot| self.streams[*slot].is_held)
    }

    /// Returns, for each stream, the number of operations that must have run when these targets are
    /// reached.
    fn needed(&self, targets: &[Target]) -> BTreeMap<usize, u64> {
        let mut needed = BTreeMap::new();
        let mut pending = targets.to_vec();
        while let Some(Target { slot, number }) = pending.pop() {
            let stream = &self.streams[slot];
            let from = needed.get(&slot).copied().unwrap_or(stream.done);
            if number <= from {
                continue;
            }
            let known = (from - stream.done) as usize;
            for op in stream.queue.iter().take((number - stream.done) as usize).skip(known) {
                if let Op::Wait(targets) = op {
                    pending.extend(targets);
                }
            }
            needed.insert(slot, number);
        }
        needed
    }

    /// Chooses a random stream that has run fewer operations than `needed` and can run its next
    /// operation.
    fn choose(&mut self, needed: &BTreeMap<usize, u64>) -> Option<usize> {
        let can_run = |(slot, number): (&usize, &u64)| {
            let stream = &self.streams[*slot];
            let ready = match stream.queue.front() {
                Some(Op::Wait(targets)) => targets.iter().all(|t| self.streams[t.slot].done >= t.number),
                Some(_) => true,
                None => false,
            };
            (stream.done < *number && ready).then_some(*slot)
        };
        let ready: Vec<usize> = needed.iter().filter_map(can_run).collect();
        (!ready.is_empty()).then(|| ready[self.random.below(ready.len())])
    }

    fn step(&mut self, slot: usize) {
        let stream = &mut self.streams[slot];
        let Some(op) = stream.queue.pop_front() else { return };
        stream.done += 1;
        let device = stream.device;
        self.backlog_bytes = self.backlog_bytes.saturating_sub(self.weight(&op));
        // A broken context runs no more work.
        if self.devices[device].sticky.is_none() {
            self.execute(device, op);
        }
    }

    fn execute(&mut self, device: usize, op: Op) {
        match op {
            Op::Wait(_) => {}
            Op::Free(block) => self.destroy_block(block),
            Op::Fault(code) => self.devices[device].sticky = Some(code),
            Op::Launch(launch) => self.execute_launch(device, &launch),
            // If the block of a source or target no longer exists, the block was freed out of
            // order. This free has already been reported.
            Op::Copy { to, from, bytes } => {
                if let (Some(to), Some(from)) = (self.real(&to), self.real(&from)) {
                    // SAFETY: `locate` checked ranges in blocks when the copy was queued, and the
                    // size of a block never changes. Staged memory has `bytes` bytes. The caller of
                    // a copy from or to pageable memory passes valid memory and waits for the copy.
                    unsafe { std::ptr::copy(from, to, bytes) };
                }
            }
            Op::Fill { to, value, bytes } => {
                if let Some(to) = self.real(&to) {
                    // SAFETY: `locate` checked the range when the fill was queued, and the size of
                    // a block never changes.
                    unsafe { to.write_bytes(value, bytes) };
                }
            }
        }
    }

    fn execute_launch(&mut self, device: usize, launch: &Launch) {
        if let Some((place, expected)) = &launch.list {
            let Some(real) = self.real(place) else { return };
            let bytes = |of: *const u8| {
                // SAFETY: `locate` checked the range of the copy when the launch was queued, and
                // the expected arguments have the same size and no padding.
                unsafe { std::slice::from_raw_parts(of, size_of_val(expected.as_slice())) }
            };
            if bytes(real) != bytes(expected.as_ptr().cast()) {
                say(&format!(
                    "kernel {}: the arguments on the device are not those of the launch",
                    launch.name
                ));
                self.devices[device].sticky = Some(LAUNCH_FAILED);
                return;
            }
        }
        let mut args = Vec::with_capacity(launch.args.len());
        for (arg, place) in &launch.args {
            let mut arg = *arg;
            if let Some(place) = place {
                let Some(real) = self.real(place) else { return };
                arg.value = real as u64;
            }
            args.push(arg);
        }
        // SAFETY: the caller of cuLaunchKernel passes a CPU implementation that accepts these
        // arguments. Their addresses point to the bytes of live blocks, and `locate` checked their
        // lengths at the launch.
        let code = unsafe { (launch.cpu_implementation)(args.as_ptr(), args.len()) };
        if code != 0 {
            say(&format!(
                "kernel {} failed: its CPU implementation returned {code}; the context is broken",
                launch.name
            ));
            self.devices[device].sticky = Some(LAUNCH_FAILED);
        }
    }

    /// The bytes of host memory that are released when the operation has run.
    pub(crate) fn weight(&self, op: &Op) -> u64 {
        match op {
            Op::Copy { from: Place::Staged(bytes), .. } => bytes.len() as u64,
            Op::Free(block) => self.blocks.get(block).map_or(0, |block| block.bytes),
            _ => 0,
        }
    }

    fn real(&self, place: &Place) -> Option<*mut u8> {
        match place {
            Place::Block(Spot { id, offset }) => {
                let begin = self.blocks.get(id)?.real.pointer();
                // SAFETY: `locate` checked that the offset is inside of the block.
                Some(unsafe { begin.add(*offset as usize) })
            }
            Place::Staged(bytes) => Some(bytes.as_ptr().cast_mut()),
            Place::Pageable(pointer) => Some(*pointer),
        }
    }
}
