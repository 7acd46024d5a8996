//! Streams, events, and graph capture.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // the CUDA header has the names and the docs

use std::ffi::{c_int, c_uint};

use crate::capture::exchange_mode;
use crate::codes::INVALID_VALUE;
use crate::state::{Handle, put};

/// The number of the highest priority of a stream.
const GREATEST_PRIORITY: c_int = -5;

super::exports! {
    fn cuStreamCreate(sim, stream: *mut Handle, flags: c_uint) {
        let device = sim.current()?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        put(stream, sim.create_stream(device).0)
    }

    fn cuStreamCreateWithPriority(sim, stream: *mut Handle, flags: c_uint, priority: c_int) {
        let device = sim.current()?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let (handle, slot) = sim.create_stream(device);
        sim.streams[slot].priority = priority.clamp(GREATEST_PRIORITY, 0);
        put(stream, handle)
    }

    fn cuStreamGetPriority(sim, stream: Handle, priority: *mut c_int) {
        let slot = sim.stream(stream)?;
        put(priority, sim.streams[slot].priority)
    }

    fn cuCtxGetStreamPriorityRange(sim, least: *mut c_int, greatest: *mut c_int) {
        sim.current()?;
        put(least, 0)?;
        put(greatest, GREATEST_PRIORITY)
    }

    fn cuStreamDestroy_v2(sim, stream: Handle) {
        sim.destroy_stream(stream)
    }

    fn cuStreamGetCtx(sim, stream: Handle, context: *mut Handle) {
        let slot = sim.stream(stream)?;
        put(context, sim.devices[sim.streams[slot].device].context)
    }

    fn cuStreamQuery(sim, stream: Handle) {
        sim.query_stream(stream)
    }

    fn cuStreamSynchronize(sim, stream: Handle) {
        sim.synchronize_stream(stream)
    }

    fn cuStreamWaitEvent(sim, stream: Handle, event: Handle, _flags: c_uint) {
        sim.wait_event(stream, event)
    }

    fn cuStreamIsCapturing(sim, stream: Handle, status: *mut c_int) {
        let slot = sim.stream(stream)?;
        put(status, sim.capture_status(slot))
    }

    fn cuStreamBeginCapture_v2(sim, stream: Handle, mode: c_int) {
        sim.begin_capture(stream, mode)
    }

    fn cuStreamEndCapture(sim, stream: Handle, graph: *mut Handle) {
        put(graph, 0)?;
        put(graph, sim.end_capture(stream)?)
    }

    // A captured graph is only a handle, so there is nothing to destroy.
    fn cuGraphDestroy(_sim, _graph: Handle) {
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(_sim, mode: *mut c_int) {
        if mode.is_null() {
            return Err(INVALID_VALUE);
        }
        put(mode, exchange_mode(*mode)?)
    }

    fn cuEventCreate(sim, event: *mut Handle, _flags: c_uint) {
        put(event, sim.create_event()?)
    }

    fn cuEventDestroy_v2(sim, event: Handle) {
        sim.destroy_event(event)
    }

    fn cuEventRecord(sim, event: Handle, stream: Handle) {
        sim.record_event(event, stream)
    }

    fn cuEventQuery(sim, event: Handle) {
        sim.query_event(event)
    }

    fn cuEventSynchronize(sim, event: Handle) {
        sim.synchronize_event(event)
    }
}
