//! Streams, which are queues of work, and events, which are positions in these queues.

use std::collections::VecDeque;

use crate::capture::Capture;
use crate::codes::{INVALID_HANDLE, NOT_READY, Outcome};
use crate::order::{Access, Clock};
use crate::report::Site;
use crate::run::Op;
use crate::state::{Handle, Sim};

/// The handles of the legacy default stream.
const LEGACY: [Handle; 2] = [0, 1];
/// The handle of the per-thread default stream.
const PER_THREAD: Handle = 2;

/// The limits of pending work: the bytes of host memory that work on all streams holds, and the
/// number of operations on one stream.
const MAX_BACKLOG_BYTES: u64 = 64 << 20;
const MAX_BACKLOG_LEN: usize = 1024;

/// One stream. Its slot is its index in `Sim::streams` and in clocks. A slot is reused after the
/// stream is destroyed and the host has queried or synchronized with all of its work.
///
/// Each device has a legacy default stream, for which other streams do not wait. In a real driver,
/// non-blocking streams do not wait for it either, and the simulator treats every stream as
/// non-blocking. So a program that relies on the implicit waits of the legacy default stream is
/// reported.
pub(crate) struct Stream {
    pub handle: Handle,
    pub device: usize,
    pub clock: Clock,
    /// The pending operations.
    pub queue: VecDeque<Op>,
    /// The number of operations that have run. The first operation in the queue has the number
    /// `done + 1`.
    pub done: u64,
    pub is_destroyed: bool,
    /// Whether the stream's work runs only in synchronizations, and not in queries.
    pub is_held: bool,
    pub capture: Option<Capture>,
    /// The number of the priority; a lower number is a higher priority.
    pub priority: i32,
}

/// A position in a stream. It is reached when `number` operations of the stream have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub slot: usize,
    pub number: u64,
}

/// One event.
pub(crate) struct Event {
    pub device: usize,
    pub record: Option<Record>,
}

/// The positions at which an event was last recorded.
#[derive(Clone, Default)]
pub(crate) struct Record {
    pub targets: Vec<Target>,
    pub clock: Clock,
    /// The number of queries that must still return "not ready". Ignored after the host has
    /// synchronized with the event.
    pub patience: usize,
    /// The capture in which the event was recorded.
    pub captured: Option<Capture>,
}

impl Stream {
    /// The position after all queued operations.
    pub(crate) fn tail(&self, slot: usize) -> Target {
        Target { slot, number: self.done + self.queue.len() as u64 }
    }
}

impl Sim {
    pub(crate) fn create_stream(&mut self, device: usize) -> (Handle, usize) {
        let handle = self.new_handle();
        let host = self.host.clone();
        let reusable = |(slot, stream): (usize, &Stream)| {
            let is_known = host.get(slot) >= stream.clock.get(slot);
            (stream.is_destroyed && stream.queue.is_empty() && is_known).then_some(slot)
        };
        let slot = self.streams.iter().enumerate().find_map(reusable);
        let done = slot.map_or(0, |slot| self.streams[slot].done);
        let stream = Stream {
            handle,
            device,
            clock: host,
            queue: VecDeque::new(),
            done,
            is_destroyed: false,
            is_held: false,
            capture: None,
            priority: 0,
        };
        let slot = match slot {
            Some(slot) => {
                self.streams[slot] = stream;
                slot
            }
            None => {
                self.streams.push(stream);
                self.streams.len() - 1
            }
        };
        self.stream_slots.insert(handle, slot);
        (handle, slot)
    }

    /// Destroys a stream. Its pending work still runs.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) -> Outcome {
        let slot = self.stream(handle)?;
        if self.stream_slots.remove(&handle).is_none() {
            return Err(INVALID_HANDLE);
        }
        self.streams[slot].is_destroyed = true;
        Ok(())
    }

    /// The slot of a stream, if its device is usable. Only the default streams need a current
    /// context.
    pub(crate) fn stream(&mut self, handle: Handle) -> Outcome<usize> {
        if let Some(slot) = self.stream_slots.get(&handle) {
            let slot = *slot;
            self.usable(self.streams[slot].device)?;
            return Ok(slot);
        }
        let current = self.current()?;
        let key = match handle {
            handle if LEGACY.contains(&handle) => (current, None),
            PER_THREAD => (current, Some(std::thread::current().id())),
            _ => return Err(self.stale("stream", handle)),
        };
        if let Some(slot) = self.default_streams.get(&key) {
            return Ok(*slot);
        }
        let (_, slot) = self.create_stream(current);
        self.default_streams.insert(key, slot);
        Ok(slot)
    }

    /// The slot of the current device's legacy default stream. Calls without a stream parameter use
    /// this stream.
    pub(crate) fn legacy_stream(&mut self) -> Outcome<usize> {
        self.stream(0)
    }

    /// Returns the access of a stream's next operation. The operation is ordered after all work in
    /// the host's clock.
    pub(crate) fn next_access(&mut self, slot: usize, site: Site) -> Access {
        let stream = &mut self.streams[slot];
        stream.clock.join(&self.host);
        let time = stream.clock.tick(slot);
        Access { stream: slot, time, site }
    }

    /// Queues an operation. If too much work is pending, the older half of this work runs, because
    /// a real device would have run it by now.
    pub(crate) fn push(&mut self, slot: usize, op: Op) {
        self.backlog_bytes += self.weight(&op);
        self.streams[slot].queue.push_back(op);
        if self.backlog_bytes > MAX_BACKLOG_BYTES || self.streams[slot].queue.len() > MAX_BACKLOG_LEN {
            let half = |(slot, stream): (usize, &Stream)| Target {
                slot,
                number: stream.done + stream.queue.len().div_ceil(2) as u64,
            };
            let mut targets: Vec<Target> = self.streams.iter().enumerate().map(half).collect();
            targets.retain(|target| !self.needs_held_stream(&[*target]));
            self.run_to(&targets);
        }
    }

    pub(crate) fn create_event(&mut self) -> Outcome<Handle> {
        let device = self.current()?;
        let handle = self.new_handle();
        self.events.insert(handle, Event { device, record: None });
        Ok(handle)
    }

    /// Destroys an event. Queued waits for it stay valid.
    pub(crate) fn destroy_event(&mut self, handle: Handle) -> Outcome {
        if self.events.remove(&handle).is_none() {
            return Err(self.stale("event", handle));
        }
        Ok(())
    }

    fn event(&mut self, handle: Handle) -> Outcome<&mut Event> {
        if !self.events.contains_key(&handle) {
            return Err(self.stale("event", handle));
        }
        let device = self.events[&handle].device;
        self.usable(device)?;
        self.events.get_mut(&handle).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn record_event(&mut self, handle: Handle, stream: Handle) -> Outcome {
        let slot = self.stream(stream)?;
        let (device, captured) = (self.streams[slot].device, self.streams[slot].capture);
        self.record(handle, device, vec![slot], captured)
    }

    /// Records an event after all work of a device.
    pub(crate) fn record_device(&mut self, handle: Handle, device: usize) -> Outcome {
        self.usable(device)?;
        let slots = self.streams_of(device);
        self.reject_capturing_streams(device)?;
        self.record(handle, device, slots, None)
    }

    fn record(
        &mut self,
        handle: Handle,
        device: usize,
        slots: Vec<usize>,
        captured: Option<Capture>,
    ) -> Outcome {
        let mut clock = self.host.clone();
        let mut targets = Vec::with_capacity(slots.len());
        for slot in slots {
            // The record is a new position, which no earlier synchronization includes.
            self.streams[slot].clock.tick(slot);
            clock.join(&self.streams[slot].clock);
            targets.push(self.streams[slot].tail(slot));
        }
        let patience = self.random.below(3);
        let event = self.event(handle)?;
        if event.device != device {
            return Err(INVALID_HANDLE);
        }
        event.record = Some(Record { targets, clock, patience, captured });
        Ok(())
    }

    /// Orders later work of the stream after the event's last record.
    pub(crate) fn wait_event(&mut self, stream: Handle, event: Handle) -> Outcome {
        let slot = self.stream(stream)?;
        let Some(record) = self.event(event)?.record.clone() else { return Ok(()) };
        if self.wait_within_capture(slot, &record)? {
            return Ok(());
        }
        self.streams[slot].clock.join(&record.clock);
        self.push(slot, Op::Wait(record.targets));
        Ok(())
    }

    pub(crate) fn query_event(&mut self, handle: Handle) -> Outcome {
        let device = self.event(handle)?.device;
        self.reject_captured(handle)?;
        self.reject_during_capture()?;
        let Some(record) = self.events.get_mut(&handle).and_then(|event| event.record.as_mut()) else {
            return Ok(());
        };
        // An event with which the host has synchronized is not pending.
        let mut is_pending = record.patience > 0 && !record.clock.is_within(&self.host);
        record.patience = record.patience.saturating_sub(1);
        let record = record.clone();
        is_pending |= self.needs_held_stream(&record.targets);
        if is_pending {
            self.run_a_little(&record.targets);
            self.usable(device)?;
            return Err(NOT_READY);
        }
        self.host_learns(device, &record.targets, &record.clock)
    }

    pub(crate) fn synchronize_event(&mut self, handle: Handle) -> Outcome {
        let device = self.event(handle)?.device;
        self.reject_captured(handle)?;
        self.reject_during_capture()?;
        let Some(record) = self.event(handle)?.record.clone() else { return Ok(()) };
        self.host_waits(device, &record.targets, &record.clock)
    }

    pub(crate) fn query_stream(&mut self, handle: Handle) -> Outcome {
        let slot = self.stream(handle)?;
        self.reject_capturing_stream(slot)?;
        self.reject_during_capture()?;
        let device = self.streams[slot].device;
        let tail = self.streams[slot].tail(slot);
        let is_pending = self.streams[slot].done < tail.number && self.random.below(3) > 0;
        if is_pending || self.needs_held_stream(&[tail]) {
            self.run_a_little(&[tail]);
            self.usable(device)?;
            return Err(NOT_READY);
        }
        let clock = self.streams[slot].clock.clone();
        self.host_learns(device, &[tail], &clock)
    }

    pub(crate) fn synchronize_stream(&mut self, handle: Handle) -> Outcome {
        let slot = self.stream(handle)?;
        self.reject_capturing_stream(slot)?;
        self.reject_during_capture()?;
        self.finish_stream(slot)
    }

    /// Runs all work of a stream, and waits for it on the host.
    pub(crate) fn finish_stream(&mut self, slot: usize) -> Outcome {
        let stream = &self.streams[slot];
        let (device, tail, clock) = (stream.device, stream.tail(slot), stream.clock.clone());
        self.host_waits(device, &[tail], &clock)
    }

    /// Runs all work of a device, and waits for it on the host.
    pub(crate) fn finish_device(&mut self, device: usize) -> Outcome {
        let mut clock = Clock::default();
        let mut targets = Vec::new();
        for slot in self.streams_of(device) {
            clock.join(&self.streams[slot].clock);
            targets.push(self.streams[slot].tail(slot));
        }
        self.host_waits(device, &targets, &clock)
    }

    pub(crate) fn streams_of(&self, device: usize) -> Vec<usize> {
        (0..self.streams.len()).filter(|slot| self.streams[*slot].device == device).collect()
    }

    /// Runs work up to the targets, and adds it to the host's clock. Used for successful queries.
    fn host_learns(&mut self, device: usize, targets: &[Target], clock: &Clock) -> Outcome {
        self.run_to(targets);
        self.usable(device)?;
        self.host.join(clock);
        Ok(())
    }

    /// Like [`Self::host_learns`], but also records that the host has waited for the work. Used for
    /// synchronizations.
    fn host_waits(&mut self, device: usize, targets: &[Target], clock: &Clock) -> Outcome {
        self.host_learns(device, targets, clock)?;
        // Adds only the streams of the targets. The host has not directly waited for other streams,
        // even if the streams of the targets have waited for other streams.
        targets.iter().for_each(|target| self.waited_for.join_one(clock, target.slot));
        self.settle_pools(device);
        Ok(())
    }
}
