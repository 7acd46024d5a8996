//! One list of copies while it is worked on, by its caller and by whoever helps.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::{Error, Result};

use super::MOST_CHUNKS;
use super::chunk::{self, Chunk};
use super::cut::Cut;
use super::ring::Ring;
use super::workers::Workers;
use crate::cuda::driver::RawStream;

/// How far ahead of the copying to the host the device may be. Not the whole ring, for others may want some of it.
const MOST_IN_FLIGHT: usize = MOST_CHUNKS / 4 * 3;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    ToHost,
}

/// Copies in one direction on one stream.
///
/// To the device, everybody takes the next part, fills a chunk and enqueues it. To the host, the caller enqueues, and
/// everybody takes what has been enqueued, waits for it and writes it out.
pub(super) struct Job {
    direction: Direction,
    stream: RawStream,
    cut: Cut,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// The first part that nobody has taken.
    next: usize,
    /// To the host: enqueued, oldest first, with their parts.
    in_flight: VecDeque<(Chunk, usize)>,
    /// Parts in somebody's hands.
    busy: usize,
    failed: Option<Error>,
}

// SAFETY: the ranges in `cut` are the caller's, who stays in the call until nobody is busy with them, and are cut so that no
// two parts overlap; the driver takes the stream on every thread.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    pub(super) fn new(direction: Direction, stream: RawStream, cut: Cut) -> Self {
        Self { direction, stream, cut, state: Mutex::default(), idle: Condvar::new() }
    }

    /// All of it on this thread.
    pub(super) fn run_alone(&self, ring: &Ring) -> Result<()> {
        for n in 0..self.cut.len() {
            let mut chunk = ring.take(self.stream)?;
            let done = match self.direction {
                Direction::ToDevice => {
                    chunk.gather(&self.cut, n);
                    chunk.enqueue(ring.cuda(), self.stream, &self.cut, n, true)
                }
                Direction::ToHost => chunk
                    .enqueue(ring.cuda(), self.stream, &self.cut, n, false)
                    .and_then(|()| chunk.wait(ring.cuda()))
                    .map(|()| chunk.scatter(&self.cut, n)),
            };
            ring.put(chunk);
            done?;
        }
        Ok(())
    }

    /// The caller's share. Returns when nobody is at it any more.
    pub(super) fn lead(&self, ring: &Ring, workers: &Workers) -> Result<()> {
        if self.direction == Direction::ToHost {
            self.pump(ring, workers);
        }
        while self.step(ring) {}
        let mut state = self.lock();
        while state.busy > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // After a failure some are still in flight. The failure stays: a helper that comes late must find nothing to do.
        for (chunk, _) in state.in_flight.drain(..) {
            ring.put(chunk);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Whether there is anything for one more thread to do.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        state.failed.is_none()
            && match self.direction {
                Direction::ToDevice => state.next < self.cut.len(),
                Direction::ToHost => !state.in_flight.is_empty(),
            }
    }

    /// Does one part, if there is one to do.
    pub(super) fn step(&self, ring: &Ring) -> bool {
        match self.direction {
            Direction::ToDevice => self.fill_one(ring),
            Direction::ToHost => self.drain_one(ring),
        }
    }

    fn fill_one(&self, ring: &Ring) -> bool {
        let mut state = self.lock();
        let n = state.next;
        if state.failed.is_some() || n >= self.cut.len() {
            return false;
        }
        state.next += 1;
        state.busy += 1;
        drop(state);
        let filled = ring.take(self.stream).and_then(|mut chunk| {
            chunk.gather(&self.cut, n);
            let enqueued = chunk.enqueue(ring.cuda(), self.stream, &self.cut, n, true);
            ring.put(chunk);
            enqueued
        });
        self.done(filled.map(|()| None));
        true
    }

    /// Enqueues all parts, as far ahead as there are chunks, and writes out what has arrived when there are none.
    fn pump(&self, ring: &Ring, workers: &Workers) {
        for n in 0..self.cut.len() {
            let chunk = loop {
                let state = self.lock();
                if state.failed.is_some() {
                    return;
                }
                let room = state.in_flight.len() + state.busy < MOST_IN_FLIGHT;
                let others = state.in_flight.len() + state.busy > 0;
                drop(state);
                let got = if room { ring.try_take(self.stream) } else { Ok(None) };
                match got {
                    Ok(Some(chunk)) => break Ok(chunk),
                    Ok(None) if self.step(ring) => {}
                    // The others are writing out all there is: one of them will be done in a moment.
                    Ok(None) if others => self.moment(),
                    Ok(None) => break ring.take(self.stream),
                    Err(error) => break Err(error),
                }
            };
            let enqueued = chunk.and_then(|mut chunk| {
                match chunk.enqueue(ring.cuda(), self.stream, &self.cut, n, false) {
                    Ok(()) => Ok((chunk, n)),
                    Err(error) => {
                        ring.put(chunk);
                        Err(error)
                    }
                }
            });
            self.lock().busy += 1;
            self.done(enqueued.map(Some));
            workers.wake();
        }
    }

    fn drain_one(&self, ring: &Ring) -> bool {
        let mut state = self.lock();
        if state.failed.is_some() {
            return false;
        }
        let Some((mut chunk, n)) = state.in_flight.pop_front() else { return false };
        state.busy += 1;
        drop(state);
        chunk::populate(&self.cut, n);
        let arrived = chunk.wait(ring.cuda());
        if arrived.is_ok() {
            chunk.scatter(&self.cut, n);
        }
        ring.put(chunk);
        self.done(arrived.map(|()| None));
        true
    }

    /// Ends what made somebody busy.
    fn done(&self, result: Result<Option<(Chunk, usize)>>) {
        let mut state = self.lock();
        state.busy -= 1;
        match result {
            Ok(enqueued) => state.in_flight.extend(enqueued),
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
        drop(state);
        self.idle.notify_all();
    }

    /// Until somebody is done with a part.
    fn moment(&self) {
        let state = self.lock();
        if state.busy > 0 && state.in_flight.is_empty() {
            drop(self.idle.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
