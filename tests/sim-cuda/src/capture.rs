//! Graph capture: as much of it as tells that a stream is under capture, and what may not be done then. What is given to
//! such a stream is taken, and runs never: there are no graphs to launch.

use std::cell::Cell;
use std::thread::ThreadId;

use crate::codes::{
    CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD,
    CAPTURED_EVENT, ILLEGAL_STATE, INVALID_VALUE, Outcome,
};
use crate::state::{Handle, Sim};
use crate::streams::Record;

/// `CUstreamCaptureMode`.
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

/// What a stream is under.
#[derive(Clone, Copy)]
pub(crate) struct Capture {
    /// The stream on which it began.
    pub origin: usize,
    mode: i32,
    thread: ThreadId,
    invalid: bool,
}

thread_local! {
    /// How careful this thread is with the captures of others.
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// Exchanges this thread's mode.
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

    /// Ends it, on the stream where it began.
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
            if stream.capture.is_some_and(|theirs| theirs.origin == slot) {
                stream.capture = None;
            }
        }
        if capture.invalid { Err(CAPTURE_INVALIDATED) } else { Ok(self.new_handle()) }
    }

    /// 0 for none, 1 for active, 2 for one that was broken.
    pub(crate) fn capture_status(&self, slot: usize) -> i32 {
        self.streams[slot].capture.map_or(0, |capture| 1 + i32::from(capture.invalid))
    }

    /// For calls that would break a capture somewhere, unless this thread said that it does not care.
    pub(crate) fn refuse_during_capture(&mut self) -> Outcome {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let minds = |capture: &Capture| match (capture.mode, mode) {
            (RELAXED, _) | (_, RELAXED) => false,
            (THREAD_LOCAL, _) | (_, THREAD_LOCAL) => capture.thread == thread,
            _ => true,
        };
        let mut refused = false;
        for stream in &mut self.streams {
            if let Some(capture) = stream.capture.as_mut().filter(|capture| minds(capture)) {
                capture.invalid = true;
                refused = true;
            }
        }
        if refused { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// For calls that ask whether a stream is done.
    pub(crate) fn refuse_capturing_stream(&mut self, slot: usize) -> Outcome {
        let Some(capture) = self.streams[slot].capture else { return Ok(()) };
        self.invalidate(capture.origin);
        Err(CAPTURE_UNSUPPORTED)
    }

    /// For calls that ask about all streams of a device.
    pub(crate) fn refuse_capturing_streams(&mut self, device: usize) -> Outcome {
        let asked = self.streams_of(device).into_iter().map(|slot| self.refuse_capturing_stream(slot));
        asked.fold(Ok(()), Outcome::and)
    }

    /// Whether what a stream is given now belongs to a graph, and does not run.
    pub(crate) fn is_captured(&self, slot: usize) -> Outcome<bool> {
        match self.streams[slot].capture {
            Some(Capture { invalid: true, .. }) => Err(CAPTURE_INVALIDATED),
            capture => Ok(capture.is_some()),
        }
    }

    /// For calls that ask whether an event has passed.
    pub(crate) fn refuse_captured(&mut self, event: Handle) -> Outcome {
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

    /// A wait of or for a capture: it takes the waiting stream in. Whether that is what the wait was.
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
