//! Processes a list of copies on the caller's thread and on worker threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::{Error, Result};

use super::MAX_CHUNKS;
use super::chunk::{self, Chunk};
use super::copy_plan::CopyPlan;
use super::ring::Ring;
use super::workers::Workers;
use crate::cuda::driver::RawStream;
use crate::read_at::ReadAt;

/// Maximum number of chunks that one copy to the host may use at the same time. It is less than the
/// whole ring, so that other jobs get chunks.
const MAX_IN_FLIGHT: usize = MAX_CHUNKS / 4 * 3;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    ToHost,
}

/// Copies in one direction on one stream.
///
/// For copies to the device, every thread takes the next part, fills a chunk and enqueues it. For
/// copies to the host, the caller enqueues the parts, and every thread takes an enqueued part,
/// waits for it, and copies it from the chunk to its targets.
pub(super) struct Job<'a> {
    direction: Direction,
    /// The source that is read, if the bytes do not come from host memory. The addresses in `plan`
    /// are then offsets in the source.
    source: Option<&'a dyn ReadAt>,
    stream: RawStream,
    plan: CopyPlan,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// For copies to the device: the index of the next part to take.
    next: usize,
    /// For copies to the host: the enqueued chunks with the indices of their parts, oldest first.
    in_flight: VecDeque<(Chunk, usize)>,
    /// Number of parts that threads are processing.
    busy: usize,
    failed: Option<Error>,
}

// SAFETY: the ranges in `plan` are valid until the caller's call returns, and the call returns only
// after all threads are done with the ranges. The parts do not overlap. The driver accepts the
// stream on any thread.
unsafe impl Send for Job<'_> {}
// SAFETY: all mutable state is behind a lock. The ranges in `plan` are valid until the caller's
// call returns, and every part is processed by one thread.
unsafe impl Sync for Job<'_> {}

impl<'a> Job<'a> {
    pub(super) fn new(direction: Direction, stream: RawStream, plan: CopyPlan) -> Self {
        Self { direction, source: None, stream, plan, state: Mutex::default(), idle: Condvar::new() }
    }

    /// Creates a job that reads `source` and copies to the device.
    pub(super) fn from_source(source: &'a dyn ReadAt, stream: RawStream, plan: CopyPlan) -> Self {
        Self { source: Some(source), ..Self::new(Direction::ToDevice, stream, plan) }
    }

    /// Number of parts.
    pub(super) fn len(&self) -> usize {
        self.plan.len()
    }

    /// Runs the job on this thread.
    pub(super) fn run_alone(&self, ring: &Ring) -> Result<()> {
        for n in 0..self.plan.len() {
            let mut chunk = ring.take(self.stream)?;
            let result = match self.direction {
                Direction::ToDevice => self.send(ring, &mut chunk, n),
                Direction::ToHost => chunk
                    .enqueue(ring.cuda(), self.stream, &self.plan, n, false)
                    .and_then(|()| chunk.wait(ring.cuda()))
                    .map(|()| chunk.scatter(&self.plan, n)),
            };
            ring.put(chunk);
            result?;
        }
        Ok(())
    }

    /// Runs parts of the job on the caller's thread. Returns when no thread is working on the job
    /// any more.
    pub(super) fn lead(&self, ring: &Ring, workers: &Workers) -> Result<()> {
        if self.direction == Direction::ToHost {
            self.enqueue_parts(ring, workers);
        }
        while self.run_part(ring) {}
        self.finish(ring)
    }

    /// Waits until no thread is working on the job any more. Returns its first error.
    pub(super) fn finish(&self, ring: &Ring) -> Result<()> {
        let mut state = self.lock();
        while state.busy > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // After a failure some chunks are still in flight. `failed` stays set, so that a thread
        // that finds the job later does nothing.
        for (chunk, _) in state.in_flight.drain(..) {
            ring.put(chunk);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Whether the job has a part that another thread can process.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        state.failed.is_none()
            && match self.direction {
                Direction::ToDevice => state.next < self.plan.len(),
                Direction::ToHost => !state.in_flight.is_empty(),
            }
    }

    /// Processes one part. Returns `false` if no part can be processed now.
    pub(super) fn run_part(&self, ring: &Ring) -> bool {
        match self.direction {
            Direction::ToDevice => self.send_part(ring),
            Direction::ToHost => self.receive_part(ring),
        }
    }

    fn send_part(&self, ring: &Ring) -> bool {
        let mut state = self.lock();
        let n = state.next;
        if state.failed.is_some() || n >= self.plan.len() {
            return false;
        }
        state.next += 1;
        state.busy += 1;
        drop(state);
        let result = ring.take(self.stream).and_then(|mut chunk| {
            let enqueued = self.send(ring, &mut chunk, n);
            ring.put(chunk);
            enqueued
        });
        self.finish_part(result.map(|()| None));
        true
    }

    /// Fills a chunk with part `n`, and enqueues its copy to the device.
    fn send(&self, ring: &Ring, chunk: &mut Chunk, n: usize) -> Result<()> {
        chunk.gather(&self.plan, n, self.source)?;
        chunk.enqueue(ring.cuda(), self.stream, &self.plan, n, true)
    }

    /// Enqueues all parts. While no chunk is available for the next part, copies enqueued parts to
    /// their targets.
    fn enqueue_parts(&self, ring: &Ring, workers: &Workers) {
        for n in 0..self.plan.len() {
            let chunk = loop {
                let state = self.lock();
                if state.failed.is_some() {
                    return;
                }
                let has_room = state.in_flight.len() + state.busy < MAX_IN_FLIGHT;
                let has_others = state.in_flight.len() + state.busy > 0;
                drop(state);
                let chunk = if has_room { ring.try_take(self.stream) } else { Ok(None) };
                match chunk {
                    Ok(Some(chunk)) => break Ok(chunk),
                    Ok(None) if self.run_part(ring) => {}
                    // Other threads are copying all parts in flight to their targets, and one of
                    // them will soon return its chunk.
                    Ok(None) if has_others => self.wait_for_others(),
                    Ok(None) => break ring.take(self.stream),
                    Err(error) => break Err(error),
                }
            };
            let enqueued = chunk.and_then(|mut chunk| {
                match chunk.enqueue(ring.cuda(), self.stream, &self.plan, n, false) {
                    Ok(()) => Ok((chunk, n)),
                    Err(error) => {
                        ring.put(chunk);
                        Err(error)
                    }
                }
            });
            self.lock().busy += 1;
            self.finish_part(enqueued.map(Some));
            workers.wake();
        }
    }

    fn receive_part(&self, ring: &Ring) -> bool {
        let mut state = self.lock();
        if state.failed.is_some() {
            return false;
        }
        let Some((mut chunk, n)) = state.in_flight.pop_front() else { return false };
        state.busy += 1;
        drop(state);
        chunk::populate(&self.plan, n);
        let arrived = chunk.wait(ring.cuda());
        if arrived.is_ok() {
            chunk.scatter(&self.plan, n);
        }
        ring.put(chunk);
        self.finish_part(arrived.map(|()| None));
        true
    }

    /// Records the result of processing one part.
    fn finish_part(&self, result: Result<Option<(Chunk, usize)>>) {
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

    /// Waits until another thread is done with a part.
    fn wait_for_others(&self) {
        let state = self.lock();
        if state.busy > 0 && state.in_flight.is_empty() {
            drop(self.idle.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
