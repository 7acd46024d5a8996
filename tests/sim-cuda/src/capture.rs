//! Simulates the part of graph capture that decides whether a stream is under capture and which
//! calls are then rejected. Work on a captured stream is accepted and never runs, because graphs
//! are not launched.

use std::cell::Cell;
use std::thread::ThreadId;

use crate::codes::{
    CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD,
    CAPTURED_EVENT, ILLEGAL_STATE, INVALID_VALUE, Outcome,
};
use crate::state::{Handle, Sim};
use crate::streams::Record;

/// The values of `CUstreamCaptureMode`.
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

/// The capture that a stream belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Capture {
    /// The index in `Sim::streams` of the stream on which the capture began.
    pub origin: usize,
    mode: i32,
    thread: ThreadId,
    invalid: bool,
}

thread_local! {
    /// The capture mode of this thread. It decides which calls of this thread invalidate a capture
    /// that another thread began.
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// Sets this thread's capture mode. Returns the previous mode.
pub(crate) fn exchange_mode(new: i32) -> Outcome<i32> {
    if !(GLOBAL..=RELAXED).contains(&new) {
        return Err(INVALID_VALUE);
    }
    Ok(MODE.replace(new))
}

impl Sim {
    pub(crate) fn begin_capture(&mut self, stream: Handle, mode: i32) -> Outcome {
        let slot = self.stream(stream)?;
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(INVALID_VALUE);
        }
        if stream <= 1 {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.streams[slot].capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let thread = std::thread::current().id();
        self.streams[slot].capture = Some(Capture { origin: slot, mode, thread, invalid: false });
        Ok(())
    }

    /// Ends the capture that began on `stream`.
    pub(crate) fn end_capture(&mut self, stream: Handle) -> Outcome<Handle> {
        let slot = self.stream(stream)?;
        let Some(capture) = self.streams[slot].capture else { return Err(ILLEGAL_STATE) };
        if capture.origin != slot {
            return Err(CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        for stream in &mut self.streams {
            if stream.capture.is_some_and(|other| other.origin == slot) {
                stream.capture = None;
            }
        }
        if capture.invalid { Err(CAPTURE_INVALIDATED) } else { Ok(self.new_handle()) }
    }

    /// The stream's `CUstreamCaptureStatus`: 0 for none, 1 for active, 2 for invalidated.
    pub(crate) fn capture_status(&self, slot: usize) -> i32 {
        self.streams[slot].capture.map_or(0, |capture| 1 + i32::from(capture.invalid))
    }

    /// Rejects a call that is unsafe during captures if the modes of a capture and of this thread
    /// forbid the call. Each capture that forbids the call is invalidated.
    pub(crate) fn reject_during_capture(&mut self) -> Outcome {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let forbids = |capture: &Capture| match (capture.mode, mode) {
            (RELAXED, _) | (_, RELAXED) => false,
            (THREAD_LOCAL, _) | (_, THREAD_LOCAL) => capture.thread == thread,
            _ => true,
        };
        let mut is_rejected = false;
        for stream in &mut self.streams {
            if let Some(capture) = stream.capture.as_mut().filter(|capture| forbids(capture)) {
                capture.invalid = true;
                is_rejected = true;
            }
        }
        if is_rejected { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Rejects a query or synchronization of a stream if the stream is under capture, and
    /// invalidates the capture.
    pub(crate) fn reject_capturing_stream(&mut self, slot: usize) -> Outcome {
        let Some(capture) = self.streams[slot].capture else { return Ok(()) };
        self.invalidate(capture.origin);
        Err(CAPTURE_UNSUPPORTED)
    }

    /// Rejects a synchronization of a device if a stream of the device is under capture, and
    /// invalidates each capture of its streams.
    pub(crate) fn reject_capturing_streams(&mut self, device: usize) -> Outcome {
        let results = self.streams_of(device).into_iter().map(|slot| self.reject_capturing_stream(slot));
        results.fold(Ok(()), Outcome::and)
    }

    /// Whether an operation that is queued on the stream now is captured. Captured work never runs.
    pub(crate) fn is_captured(&self, slot: usize) -> Outcome<bool> {
        match self.streams[slot].capture {
            Some(Capture { invalid: true, .. }) => Err(CAPTURE_INVALIDATED),
            capture => Ok(capture.is_some()),
        }
    }

    /// Rejects a query or synchronization of an event if the event was recorded in a capture, and
    /// invalidates the capture.
    pub(crate) fn reject_captured(&mut self, event: Handle) -> Outcome {
        let record = self.events.get(&event).and_then(|event| event.record.as_ref());
        let Some(capture) = record.and_then(|record| record.captured) else { return Ok(()) };
        self.invalidate(capture.origin);
        Err(CAPTURED_EVENT)
    }

    fn invalidate(&mut self, origin: usize) {
        for stream in &mut self.streams {
            if let Some(capture) = stream.capture.as_mut().filter(|capture| capture.origin == origin) {
                capture.invalid = true;
            }
        }
    }

    /// Handles a stream's wait for an event if the stream or the event belongs to a capture. A
    /// stream that waits for a captured event joins the event's capture. Returns whether the wait
    /// belongs to a capture.
    pub(crate) fn wait_within_capture(&mut self, slot: usize, record: &Record) -> Outcome<bool> {
        match (self.streams[slot].capture, record.captured) {
            (None, None) => Ok(false),
            (Some(capture), None) => {
                self.invalidate(capture.origin);
                Err(CAPTURE_ISOLATION)
            }
            (_, Some(capture)) => {
                self.streams[slot].capture = Some(capture);
                Ok(true)
            }
        }
    }
}
