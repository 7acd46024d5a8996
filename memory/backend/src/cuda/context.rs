//! The primary context of a device, with its cached events and streams.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Device, Error, Result};

use super::driver::{
    CAPTURE_MODE_RELAXED, Context, Driver, EVENT_DISABLE_TIMING, Ordinal, RawEvent, RawStream,
    STREAM_NON_BLOCKING, SUCCESS,
};
use super::driver_error::DriverError;

thread_local! {
    /// Whether this thread belongs to the host, so that no other code relies on its current context
    /// and its capture mode.
    static IS_HOSTS: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread has the relaxed capture mode until it ends.
    static IS_RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this thread belongs to the host. The first context that is entered then stays
/// current, and the capture mode stays relaxed, because setting and restoring them takes most of
/// the calls to the driver.
pub(crate) fn note_own_thread() {
    IS_HOSTS.set(true);
}

/// A device's primary context. It stays retained until the process ends, as other users of the
/// primary context expect. Streams and events are cached instead of destroyed, so that a handle
/// stored in a block stays valid.
pub(crate) struct Gpu {
    pub driver: Driver,
    pub ordinal: Ordinal,
    pub device: Device,
    pub capability: (u32, u32),
    context: Context,
    idle_events: Mutex<Vec<Handle>>,
    idle_streams: Mutex<Vec<Handle>>,
    /// The idle streams with a priority, and the priority.
    idle_with_priority: Mutex<Vec<(Handle, i32)>>,
    /// All streams created so far with a priority, and the priority.
    with_priority: Mutex<Vec<(Handle, i32)>>,
    /// The addresses of all streams created so far, which `drop` destroys.
    streams: Mutex<HashSet<usize>>,
    /// Whether the native handle of any stream was passed to other code, which may put the stream
    /// under graph capture.
    exposed: AtomicBool,
}

/// A handle of the driver, usable on any thread.
#[derive(Clone, Copy)]
struct Handle(*mut std::ffi::c_void);

// SAFETY: the driver accepts its handles on any thread.
unsafe impl Send for Handle {}

// SAFETY: the driver accepts its handles on any thread; all mutable state is behind locks or
// atomic.
unsafe impl Send for Gpu {}
// SAFETY: the driver accepts its handles on several threads at the same time; all mutable state is
// behind locks or atomic.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Retains the primary context, which takes 100 ms or more if it has not been created yet.
    pub(crate) fn open(
        driver: Driver,
        device: Device,
        ordinal: Ordinal,
        capability: (u32, u32),
    ) -> Result<Arc<Self>> {
        let (mut handle, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the driver is started; both pointers point to local variables.
        unsafe {
            driver.check("cuDeviceGet", (driver.device_get)(&mut handle, ordinal))?;
            driver
                .check("cuDevicePrimaryCtxRetain", (driver.primary_ctx_retain)(&mut context, handle))
                .map_err(|e| e.context(device))?;
        }
        Ok(Arc::new(Self {
            driver,
            ordinal: handle,
            device,
            capability,
            context,
            idle_events: Mutex::default(),
            idle_streams: Mutex::default(),
            idle_with_priority: Mutex::default(),
            with_priority: Mutex::default(),
            streams: Mutex::default(),
            exposed: AtomicBool::new(false),
        }))
    }

    /// Makes the context current on this thread while the guard lives.
    pub(crate) fn enter(&self) -> Result<Entered> {
        self.try_enter().map_err(Error::from)
    }

    /// Does the same as [`Self::enter`], but returns the error as a [`DriverError`].
    pub(crate) fn try_enter(&self) -> Result<Entered, DriverError> {
        let mut previous = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable.
        let code = unsafe { (self.driver.ctx_get_current)(&mut previous) };
        self.driver.check_code("cuCtxGetCurrent", code)?;
        if previous == self.context {
            return Ok(Entered { driver: self.driver, previous: None });
        }
        // SAFETY: the context stays retained until the process ends.
        let code = unsafe { (self.driver.ctx_set_current)(self.context) };
        self.driver.check_code("cuCtxSetCurrent", code)?;
        // The context of another device may be entered further up on this thread.
        let stays = IS_HOSTS.get() && previous.is_null();
        Ok(Entered { driver: self.driver, previous: (!stays).then_some(previous) })
    }

    /// While the guard lives, calls to the driver on this thread do not break graph captures of
    /// other threads. Use the guard only for work that is unrelated to such captures.
    pub(crate) fn relaxed(&self) -> Relaxed<'_> {
        self.driver.relaxed()
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Returns an event without timing, from the cache or newly created. The context must be
    /// current.
    pub(crate) fn take_event(&self) -> Result<RawEvent> {
        if let Some(event) = lock(&self.idle_events).pop() {
            return Ok(event.0);
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (self.driver.event_create)(&mut event, EVENT_DISABLE_TIMING) };
        self.driver.check("cuEventCreate", code)?;
        Ok(event)
    }

    /// Returns an event to the cache. Waits that are already enqueued refer to the work that the
    /// event recorded, so the event can be reused.
    pub(crate) fn return_event(&self, event: RawEvent) {
        lock(&self.idle_events).push(Handle(event));
    }

    /// Returns a stream that does not synchronise with the legacy default stream, from the cache or
    /// newly created. The context must be current.
    pub(crate) fn take_stream(&self) -> Result<RawStream> {
        if let Some(stream) = lock(&self.idle_streams).pop() {
            return Ok(stream.0);
        }
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (self.driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        lock(&self.streams).insert(stream.addr());
        Ok(stream)
    }

    /// Does the same as [`Self::take_stream`] for a stream whose priority is `priority`, or the
    /// nearest number of the device's range.
    pub(crate) fn take_stream_with_priority(&self, priority: i32) -> Result<RawStream> {
        if priority == 0 {
            return self.take_stream();
        }
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the pointers point to local variables; the context is current.
        let code = unsafe { (self.driver.ctx_get_stream_priority_range)(&mut least, &mut greatest) };
        self.driver.check("cuCtxGetStreamPriorityRange", code)?;
        // The greatest priority is the lowest number.
        let priority = priority.min(least).max(greatest);
        if priority == 0 {
            return self.take_stream();
        }
        let mut idle = lock(&self.idle_with_priority);
        if let Some(i) = idle.iter().position(|(_, of)| *of == priority) {
            return Ok(idle.swap_remove(i).0.0);
        }
        drop(idle);
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable; the context is current.
        let code =
            unsafe { (self.driver.stream_create_with_priority)(&mut stream, STREAM_NON_BLOCKING, priority) };
        self.driver.check("cuStreamCreateWithPriority", code)?;
        lock(&self.with_priority).push((Handle(stream), priority));
        lock(&self.streams).insert(stream.addr());
        Ok(stream)
    }

    /// Returns a stream to the cache. Work that is already enqueued on it still runs.
    pub(crate) fn return_stream(&self, stream: RawStream) {
        let known = lock(&self.with_priority).iter().find(|(known, _)| known.0 == stream).copied();
        if let Some(with_priority) = known {
            return lock(&self.idle_with_priority).push(with_priority);
        }
        lock(&self.idle_streams).push(Handle(stream));
    }

    /// Whether this `Gpu` created the stream, which then lives as long as the `Gpu`.
    pub(crate) fn has_stream(&self, stream: RawStream) -> bool {
        lock(&self.streams).contains(&stream.addr())
    }

    /// Notes that the native handle of a stream was passed to other code.
    pub(crate) fn note_exposed(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    /// Whether a stream is known to be under graph capture. Returns `false` without asking the
    /// driver if [`Self::note_exposed`] was never called. The context must be current.
    pub(crate) fn is_known_to_capture(&self, stream: RawStream) -> bool {
        self.exposed.load(Ordering::Relaxed) && self.is_capturing(stream).unwrap_or(false)
    }

    /// Whether a stream is under graph capture. The context must be current.
    pub(crate) fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        let mut status = 0;
        // SAFETY: `stream` is a live stream of this context, and the pointer points to a local
        // variable.
        let code = unsafe { (self.driver.stream_is_capturing)(stream, &mut status) };
        self.driver.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Whether all work of a stream has run; `false` while the stream is under graph capture.
    pub(crate) fn is_idle(&self, stream: RawStream) -> Result<bool> {
        let _entered = self.enter()?;
        if self.is_capturing(stream)? {
            return Ok(false);
        }
        let _relaxed = self.relaxed();
        // SAFETY: `stream` is a live stream of this context.
        Ok(unsafe { (self.driver.stream_query)(stream) } == SUCCESS)
    }

    /// Makes later work on `stream` wait for `event`.
    pub(crate) fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        // SAFETY: the stream is alive, because `Gpu` destroys its streams only in `drop`, and the
        // caller keeps the event alive.
        let code = unsafe { (self.driver.stream_wait_event)(stream, event, 0) };
        self.driver.check("cuStreamWaitEvent", code)
    }

    /// Makes later work on `stream` wait for the work enqueued so far on `earlier`.
    pub(crate) fn follow(&self, _entered: &Entered, stream: RawStream, earlier: RawStream) -> Result<()> {
        let event = self.record(earlier)?;
        let result = self.wait(stream, event);
        self.return_event(event);
        result
    }

    /// Runs `work` on a cached stream, after the work enqueued so far on `stream` and before later
    /// work on `stream`.
    pub(crate) fn run_on_cached_stream(
        &self,
        entered: &Entered,
        stream: RawStream,
        work: impl FnOnce(RawStream) -> Result<()>,
    ) -> Result<()> {
        let cached = self.take_stream()?;
        let result = self.follow(entered, cached, stream).and_then(|()| work(cached));
        // After an error, `stream` must wait too, because part of the work may have been enqueued.
        let followed = self.follow(entered, stream, cached);
        if followed.is_err() {
            let _relaxed = self.relaxed();
            // SAFETY: `cached` is a stream of this context.
            unsafe { (self.driver.stream_synchronize)(cached) };
        }
        self.return_stream(cached);
        result.and(followed)
    }

    /// The context of `stream`. For a default stream, this is the current context.
    pub(crate) fn context_of(&self, _entered: &Entered, stream: RawStream) -> Result<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `stream` is live by the contract of `stream_adopt`, and the pointer points to a
        // local variable.
        let code = unsafe { (self.driver.stream_get_ctx)(stream, &mut context) };
        self.driver.check("cuStreamGetCtx", code)?;
        Ok(context)
    }

    /// Records an event after all work in flight in the context, including work of other libraries.
    /// The context must be current.
    ///
    /// # Errors
    /// Returns an error if the driver lacks `cuCtxRecordEvent`, or if the call fails. While a
    /// stream of the context is under graph capture, the call fails and invalidates the capture.
    pub(crate) fn record_everything(&self) -> Result<RawEvent> {
        let Some(record) = self.driver.ctx_record_event else {
            return Err(Error::unsupported("no cuCtxRecordEvent"));
        };
        let event = self.take_event()?;
        // SAFETY: `event` belongs to this context.
        let code = unsafe { record(self.context(), event) };
        match self.driver.check("cuCtxRecordEvent", code) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.return_event(event);
                Err(error)
            }
        }
    }

    /// Records an event after the work enqueued so far on `stream`.
    pub(crate) fn record(&self, stream: RawStream) -> Result<RawEvent> {
        let event = self.take_event()?;
        // SAFETY: the event and the stream belong to this context.
        let code = unsafe { (self.driver.event_record)(event, stream) };
        match self.driver.check("cuEventRecord", code) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.return_event(event);
                Err(error)
            }
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let Ok(_entered) = self.enter() else { return };
        for stream in lock(&self.streams).drain() {
            // SAFETY: `take_stream` created the stream, and its handle may be used only while the
            // `Gpu` exists.
            unsafe { (self.driver.stream_destroy)(stream as RawStream) };
        }
        for event in lock(&self.idle_events).drain(..) {
            // SAFETY: `take_event` created the event, and `return_event` received it from its only
            // user.
            unsafe { (self.driver.event_destroy)(event.0) };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the previously current context when dropped, because the caller's own CUDA code may
/// rely on it.
pub(crate) struct Entered {
    driver: Driver,
    previous: Option<Context>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // SAFETY: `previous` was the current context of this thread; NULL means no context.
            unsafe { (self.driver.ctx_set_current)(previous) };
        }
    }
}

impl Driver {
    /// See [`Gpu::relaxed`].
    pub(crate) fn relaxed(&self) -> Relaxed<'_> {
        if IS_RELAXED.get() {
            return Relaxed { driver: self, previous: None };
        }
        let mut mode = CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer points to a local variable.
        let code = unsafe { (self.thread_exchange_capture_mode)(&mut mode) };
        if code == SUCCESS && IS_HOSTS.get() {
            IS_RELAXED.set(true);
            return Relaxed { driver: self, previous: None };
        }
        Relaxed { driver: self, previous: (code == SUCCESS).then_some(mode) }
    }
}

/// Restores the thread's capture mode when dropped.
pub(crate) struct Relaxed<'a> {
    driver: &'a Driver,
    previous: Option<c_int>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.previous {
            // SAFETY: the pointer points to a field.
            unsafe { (self.driver.thread_exchange_capture_mode)(mode) };
        }
    }
}
