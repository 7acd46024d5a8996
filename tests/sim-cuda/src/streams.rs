//! Streams and events: queues of work, and moments in them.

use std::collections::VecDeque;

use crate::capture::Capture;
use crate::codes::{INVALID_HANDLE, NOT_READY, Outcome};
use crate::order::{Access, Clock};
use crate::report::Site;
use crate::run::Op;
use crate::state::{Handle, Sim};

/// The handles that need no creation.
const LEGACY: [Handle; 2] = [0, 1];
const PER_THREAD: Handle = 2;

/// What may wait to run: bytes that are held for it, on all streams, and operations on one.
const BACKLOG_BYTES: u64 = 64 << 20;
const BACKLOG_OPERATIONS: usize = 1024;

/// One stream. Its slot is also its number in clocks, and is used again when all of its work is done and the host
/// knows it.
///
/// The legacy default stream is one stream for each device like any other, and makes nobody wait: streams that are
/// created non-blocking do not wait for the real one either, and the simulator takes every stream as one of these. A
/// program that relies on the default stream's waiting is accused here.
pub(crate) struct Stream {
    pub handle: Handle,
    pub device: usize,
    pub clock: Clock,
    /// What was given to it and has not run.
    pub queue: VecDeque<Op>,
    /// How many operations have run; the first one in the queue is number `done + 1`.
    pub done: u64,
    pub destroyed: bool,
    /// Runs only for those who wait, and never because somebody asked.
    pub held: bool,
    pub capture: Option<Capture>,
}

/// A moment on a stream: when so many of its operations have run.
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

/// What an event was last recorded after.
#[derive(Clone, Default)]
pub(crate) struct Record {
    pub targets: Vec<Target>,
    pub clock: Clock,
    /// So often a query is told that it is not ready, done or not, while the host has not synchronised with it.
    pub patience: usize,
    /// Recorded on a stream under this capture.
    pub captured: Option<Capture>,
}

impl Stream {
    /// After all that it was given so far.
    pub(crate) fn tail(&self, slot: usize) -> Target {
        Target { slot, number: self.done + self.queue.len() as u64 }
    }
}

impl Sim {
    pub(crate) fn create_stream(&mut self, device: usize) -> (Handle, usize) {
        let handle = self.new_handle();
        let host = self.host.clone();
        let spent = |(slot, stream): (usize, &Stream)| {
            let seen = host.get(slot) >= stream.clock.get(slot);
            (stream.destroyed && stream.queue.is_empty() && seen).then_some(slot)
        };
        let slot = self.streams.iter().enumerate().find_map(spent);
        let done = slot.map_or(0, |slot| self.streams[slot].done);
        let stream = Stream {
            handle,
            device,
            clock: host,
            queue: VecDeque::new(),
            done,
            destroyed: false,
            held: false,
            capture: None,
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

    /// What was given to it still runs.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) -> Outcome {
        let slot = self.stream(handle)?;
        if self.stream_slots.remove(&handle).is_none() {
            return Err(INVALID_HANDLE);
        }
        self.streams[slot].destroyed = true;
        Ok(())
    }

    /// The slot behind a caller's handle, if its device works. Only the default streams need a current context.
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

    /// The legacy default stream of the current device, on which calls without a stream work.
    pub(crate) fn legacy_stream(&mut self) -> Outcome<usize> {
        self.stream(0)
    }

    /// A touch by the next operation of a stream, which comes after all that the host knows of.
    pub(crate) fn next_access(&mut self, slot: usize, site: Site) -> Access {
        let stream = &mut self.streams[slot];
        stream.clock.join(&self.host);
        let time = stream.clock.tick(slot);
        Access { stream: slot, time, site }
    }

    /// Gives a stream something to do. Where too much waits to be done, the older half of it is, as a device would have
    /// come to it by now.
    pub(crate) fn push(&mut self, slot: usize, op: Op) {
        self.backlog_bytes += self.weight(&op);
        self.streams[slot].queue.push_back(op);
        if self.backlog_bytes > BACKLOG_BYTES || self.streams[slot].queue.len() > BACKLOG_OPERATIONS {
            let half = |(slot, stream): (usize, &Stream)| Target {
                slot,
                number: stream.done + stream.queue.len().div_ceil(2) as u64,
            };
            let mut targets: Vec<Target> = self.streams.iter().enumerate().map(half).collect();
            targets.retain(|target| !self.is_held_up(&[*target]));
            self.run_to(&targets);
        }
    }

    pub(crate) fn create_event(&mut self) -> Outcome<Handle> {
        let device = self.current()?;
        let handle = self.new_handle();
        self.events.insert(handle, Event { device, record: None });
        Ok(handle)
    }

    /// Waits that were given to streams hold on to the moment.
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

    /// After everything that is in flight on a device.
    pub(crate) fn record_device(&mut self, handle: Handle, device: usize) -> Outcome {
        self.usable(device)?;
        let slots = self.streams_of(device);
        self.refuse_capturing_streams(device)?;
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
            // A moment of its own, which no earlier synchronisation has covered.
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

    /// What follows on the stream comes after what the event was last recorded after.
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
        self.refuse_captured(handle)?;
        self.refuse_during_capture()?;
        let Some(record) = self.events.get_mut(&handle).and_then(|event| event.record.as_mut()) else {
            return Ok(());
        };
        // What the host has synchronised with cannot be behind.
        let mut behind = record.patience > 0 && !record.clock.is_within(&self.host);
        record.patience = record.patience.saturating_sub(1);
        let record = record.clone();
        behind |= self.is_held_up(&record.targets);
        if behind {
            self.run_a_little(&record.targets);
            self.usable(device)?;
            return Err(NOT_READY);
        }
        self.host_learns(device, &record.targets, &record.clock)
    }

    pub(crate) fn synchronize_event(&mut self, handle: Handle) -> Outcome {
        let device = self.event(handle)?.device;
        self.refuse_captured(handle)?;
        self.refuse_during_capture()?;
        let Some(record) = self.event(handle)?.record.clone() else { return Ok(()) };
        self.host_waits(device, &record.targets, &record.clock)
    }

    pub(crate) fn query_stream(&mut self, handle: Handle) -> Outcome {
        let slot = self.stream(handle)?;
        self.refuse_capturing_stream(slot)?;
        self.refuse_during_capture()?;
        let device = self.streams[slot].device;
        let tail = self.streams[slot].tail(slot);
        let behind = self.streams[slot].done < tail.number && self.random.below(3) > 0;
        if behind || self.is_held_up(&[tail]) {
            self.run_a_little(&[tail]);
            self.usable(device)?;
            return Err(NOT_READY);
        }
        let clock = self.streams[slot].clock.clone();
        self.host_learns(device, &[tail], &clock)
    }

    pub(crate) fn synchronize_stream(&mut self, handle: Handle) -> Outcome {
        let slot = self.stream(handle)?;
        self.refuse_capturing_stream(slot)?;
        self.refuse_during_capture()?;
        self.finish_stream(slot)
    }

    /// Runs all that a stream has, and lets the host know.
    pub(crate) fn finish_stream(&mut self, slot: usize) -> Outcome {
        let stream = &self.streams[slot];
        let (device, tail, clock) = (stream.device, stream.tail(slot), stream.clock.clone());
        self.host_waits(device, &[tail], &clock)
    }

    /// Runs all that a device has, and lets the host know.
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

    /// By asking.
    fn host_learns(&mut self, device: usize, targets: &[Target], clock: &Clock) -> Outcome {
        self.run_to(targets);
        self.usable(device)?;
        self.host.join(clock);
        Ok(())
    }

    fn host_waits(&mut self, device: usize, targets: &[Target], clock: &Clock) -> Outcome {
        self.host_learns(device, targets, clock)?;
        // Of the streams that were waited for, and not of what these came after.
        targets.iter().for_each(|target| self.waited_for.join_one(clock, target.slot));
        self.settle_pools(device);
        Ok(())
    }
}
