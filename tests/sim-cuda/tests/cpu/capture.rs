//! Graph capture, as an H200 with driver 580 was seen to answer.

use crate::common::*;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

struct Scene {
    captured: Handle,
    other: Handle,
    /// Recorded on `other`, and passed.
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
    /// The status that the stream has, and how its capture ends.
    fn end(self) -> (i32, i32) {
        let (mut status, mut graph) = (-1, 0);
        ok!(cuStreamIsCapturing(self.captured, &mut status));
        (status, code!(cuStreamEndCapture(self.captured, &mut graph)))
    }
}

const WHOLE: (i32, i32) = (1, 0);
const BROKEN: (i32, i32) = (2, 901);

#[test]
fn asking_for_the_captured_stream_breaks_the_capture_in_every_mode() {
    let _gpu = Gpu::get();
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let asks: [fn(&Scene) -> i32; 4] = [
            |s| code!(cuStreamSynchronize(s.captured)),
            |s| code!(cuStreamQuery(s.captured)),
            |_| code!(cuCtxSynchronize()),
            |s| {
                let mut context = 0;
                ok!(cuCtxGetCurrent(&mut context));
                code!(cuCtxRecordEvent(context, s.event))
            },
        ];
        for ask in asks {
            let scene = scene(mode);
            assert_eq!((ask(&scene), scene.end()), (900, BROKEN));
        }
        let scene = scene(mode);
        ok!(cuEventRecord(scene.event, scene.captured));
        assert_eq!((code!(cuEventQuery(scene.event)), scene.end()), (907, BROKEN));
    }
}

#[test]
fn asking_about_other_streams_breaks_a_capture_that_minds() {
    let _gpu = Gpu::get();
    for (mode, code, end) in [(GLOBAL, 900, BROKEN), (THREAD_LOCAL, 900, BROKEN), (RELAXED, 0, WHOLE)] {
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
        let asked = code!(cuMemPoolGetAttribute(pool, reserved, (&raw mut bytes).cast()));
        assert_eq!((asked, scene.end()), (code, end), "mode {mode}");
    }
}

#[test]
fn another_thread_breaks_a_global_capture_unless_it_is_relaxed() {
    let _gpu = Gpu::get();
    for (mode, thread_mode, code, end) in
        [(GLOBAL, GLOBAL, 900, BROKEN), (GLOBAL, RELAXED, 0, WHOLE), (THREAD_LOCAL, GLOBAL, 0, WHOLE)]
    {
        let scene = scene(mode);
        let event = scene.event;
        let answer = std::thread::spawn(move || {
            let mut mode = thread_mode;
            ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
            code!(cuEventSynchronize(event))
        });
        assert_eq!((answer.join().unwrap(), scene.end()), (code, end), "mode {mode}, thread's {thread_mode}");
    }
}

#[test]
fn what_a_captured_stream_is_given_does_not_run() {
    let gpu = Gpu::get();
    let scene = scene(RELAXED);
    let (captured, other) = (scene.captured, scene.other);
    let block = alloc(8, other);
    fill(block, 1, 8, other);
    sync(other);
    fill(block, 2, 8, captured);
    assert_eq!(scene.end(), WHOLE);
    sync(captured);
    assert_eq!(read(block, 1, other), [1]);
    free(block, other);
    assert_eq!(gpu.violations(), 0);
}

#[test]
fn a_captured_stream_may_not_wait_for_what_is_not_captured() {
    let _gpu = Gpu::get();
    let scene = scene(RELAXED);
    assert_eq!(code!(cuStreamWaitEvent(scene.captured, scene.event, 0)), 905);
    assert_eq!(scene.end(), BROKEN);
}

#[test]
fn a_stream_that_waits_for_a_captured_one_is_captured_with_it() {
    let _gpu = Gpu::get();
    let scene = scene(RELAXED);
    let other = scene.other;
    ok!(cuEventRecord(scene.event, scene.captured));
    ok!(cuStreamWaitEvent(other, scene.event, 0));
    let mut status = -1;
    ok!(cuStreamIsCapturing(other, &mut status));
    assert_eq!((status, scene.end()), (1, WHOLE));
    ok!(cuStreamIsCapturing(other, &mut status));
    assert_eq!(status, 0);
}
