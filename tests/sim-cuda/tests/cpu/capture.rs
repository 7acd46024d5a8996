//! Tests graph capture. The expected codes are those of driver 580 on an H200.

use crate::common::*;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

struct Scene {
    captured: Handle,
    other: Handle,
    /// An event that was recorded on `other` and has passed.
    event: Handle,
}

fn scene(mode: i32) -> Scene {
    let scene = Scene { captured: stream(), other: stream(), event: event() };
    ok!(cuEventRecord(scene.event, scene.other));
    ok!(cuEventSynchronize(scene.event));
    ok!(cuStreamBeginCapture_v2(scene.captured, mode));
    scene
}

impl Scene {
    /// Returns the capture status of the captured stream, and the code that cuStreamEndCapture
    /// returns.
    fn end(self) -> (i32, i32) {
        let (mut status, mut graph) = (-1, 0);
        ok!(cuStreamIsCapturing(self.captured, &mut status));
        (status, code!(cuStreamEndCapture(self.captured, &mut graph)))
    }
}

const VALID: (i32, i32) = (1, 0);
const INVALIDATED: (i32, i32) = (2, 901);

#[test]
fn queries_of_the_captured_stream_invalidate_the_capture_in_every_mode() {
    let _gpu = Gpu::get();
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let queries: [fn(&Scene) -> i32; 4] = [
            |s| code!(cuStreamSynchronize(s.captured)),
            |s| code!(cuStreamQuery(s.captured)),
            |_| code!(cuCtxSynchronize()),
            |s| {
                let mut context = 0;
                ok!(cuCtxGetCurrent(&mut context));
                code!(cuCtxRecordEvent(context, s.event))
            },
        ];
        for query in queries {
            let scene = scene(mode);
            assert_eq!((query(&scene), scene.end()), (900, INVALIDATED));
        }
        let scene = scene(mode);
        ok!(cuEventRecord(scene.event, scene.captured));
        assert_eq!((code!(cuEventQuery(scene.event)), scene.end()), (907, INVALIDATED));
    }
}

#[test]
fn unsafe_calls_invalidate_captures_that_are_not_relaxed() {
    let _gpu = Gpu::get();
    for (mode, code, end) in
        [(GLOBAL, 900, INVALIDATED), (THREAD_LOCAL, 900, INVALIDATED), (RELAXED, 0, VALID)]
    {
        let scene = scene(mode);
        assert_eq!((code!(cuStreamSynchronize(scene.other)), scene.end()), (code, end), "mode {mode}");
        let mut pointer = std::ptr::null_mut();
        let scene = self::scene(mode);
        assert_eq!((code!(cuMemHostAlloc(&mut pointer, 8, 1)), scene.end()), (code, end), "mode {mode}");
        if code == 0 {
            ok!(cuMemFreeHost(pointer));
        }
        let (mut pool, mut bytes) = (0, 0u64);
        ok!(cuDeviceGetDefaultMemPool(&mut pool, 0));
        let (reserved, scene) = (5, self::scene(mode));
        let code_of_query = code!(cuMemPoolGetAttribute(pool, reserved, (&raw mut bytes).cast()));
        assert_eq!((code_of_query, scene.end()), (code, end), "mode {mode}");
    }
}

#[test]
fn unsafe_call_in_global_mode_invalidates_global_capture_of_other_thread() {
    let _gpu = Gpu::get();
    for (mode, thread_mode, code, end) in
        [(GLOBAL, GLOBAL, 900, INVALIDATED), (GLOBAL, RELAXED, 0, VALID), (THREAD_LOCAL, GLOBAL, 0, VALID)]
    {
        let scene = scene(mode);
        let event = scene.event;
        let query = std::thread::spawn(move || {
            let mut mode = thread_mode;
            ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
            code!(cuEventSynchronize(event))
        });
        assert_eq!(
            (query.join().unwrap(), scene.end()),
            (code, end),
            "mode {mode}, mode of the thread {thread_mode}"
        );
    }
}

#[test]
fn captured_work_does_not_run() {
    let gpu = Gpu::get();
    let scene = scene(RELAXED);
    let (captured, other) = (scene.captured, scene.other);
    let block = alloc(8, other);
    fill(block, 1, 8, other);
    sync(other);
    fill(block, 2, 8, captured);
    assert_eq!(scene.end(), VALID);
    sync(captured);
    assert_eq!(read(block, 1, other), [1]);
    free(block, other);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn captured_stream_cannot_wait_for_uncaptured_work() {
    let _gpu = Gpu::get();
    let scene = scene(RELAXED);
    assert_eq!(code!(cuStreamWaitEvent(scene.captured, scene.event, 0)), 905);
    assert_eq!(scene.end(), INVALIDATED);
}

#[test]
fn stream_that_waits_for_a_captured_event_joins_the_capture() {
    let _gpu = Gpu::get();
    let scene = scene(RELAXED);
    let other = scene.other;
    ok!(cuEventRecord(scene.event, scene.captured));
    ok!(cuStreamWaitEvent(other, scene.event, 0));
    let mut status = -1;
    ok!(cuStreamIsCapturing(other, &mut status));
    assert_eq!((status, scene.end()), (1, VALID));
    ok!(cuStreamIsCapturing(other, &mut status));
    assert_eq!(status, 0);
}
