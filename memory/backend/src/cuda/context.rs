//! A device's primary context, and what calls into it share.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Device, Error, Result};

use super::answer::Answer;
use super::driver::{
    CAPTURE_MODE_RELAXED, Context, Driver, EVENT_DISABLE_TIMING, Ordinal, RawEvent, RawStream,
    STREAM_NON_BLOCKING, SUCCESS,
};

/// One device's context. It is retained for the life of the process, as every other user of the primary context wants it;
/// streams and events are kept for reuse rather than destroyed, so that a handle which a block remembers stays one.
pub(crate) struct Gpu {
    pub driver: Driver,
    pub ordinal: Ordinal,
    pub device: Device,
    pub capability: (u32, u32),
    context: Context,
    idle_events: Mutex<Vec<Handle>>,
    idle_streams: Mutex<Vec<Handle>>,
    /// All that were ever made, for the end.
    streams: Mutex<Vec<Handle>>,
    /// Whether others were told the handle of any, and may capture it.
    exposed: AtomicBool,
}

/// A handle of the driver's, which is used on any thread.
#[derive(Clone, Copy)]
struct Handle(*mut std::ffi::c_void);

// SAFETY: the driver takes its handles on every thread.
unsafe impl Send for Handle {}

// SAFETY: as above; what changes is behind locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Retains the primary context, which takes 100 ms and more where nobody has it yet.
    pub(crate) fn open(
        driver: Driver,
        device: Device,
        ordinal: Ordinal,
        capability: (u32, u32),
    ) -> Result<Arc<Self>> {
        let (mut handle, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the driver is started; both pointers are to locals.
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
            streams: Mutex::default(),
            exposed: AtomicBool::new(false),
        }))
    }

    /// Makes the context current on this thread for as long as the guard lives.
    pub(crate) fn enter(&self) -> Result<Entered> {
        self.try_enter().map_err(Error::from)
    }

    /// The same, with the driver's own answer.
    pub(crate) fn try_enter(&self) -> Result<Entered, Answer> {
        let mut before = std::ptr::null_mut();
        // SAFETY: a pointer to a local.
        let code = unsafe { (self.driver.ctx_get_current)(&mut before) };
        self.driver.accept("cuCtxGetCurrent", code)?;
        if before == self.context {
            return Ok(Entered { driver: self.driver, before: None });
        }
        // SAFETY: a context that is retained for ever.
        let code = unsafe { (self.driver.ctx_set_current)(self.context) };
        self.driver.accept("cuCtxSetCurrent", code)?;
        Ok(Entered { driver: self.driver, before: Some(before) })
    }

    /// For as long as the guard lives, what this thread asks of the driver breaks no capture of others. Only for what has
    /// nothing to do with theirs.
    pub(crate) fn relaxed(&self) -> Relaxed<'_> {
        self.driver.relaxed()
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// An event without timing: a fresh one, or one that nobody has any more. The context is current.
    pub(crate) fn take_event(&self) -> Result<RawEvent> {
        if let Some(event) = lock(&self.idle_events).pop() {
            return Ok(event.0);
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: a pointer to a local; the caller has entered.
        let code = unsafe { (self.driver.event_create)(&mut event, EVENT_DISABLE_TIMING) };
        self.driver.check("cuEventCreate", code)?;
        Ok(event)
    }

    /// Takes back an event that nobody refers to. Waits that were enqueued for it hold on to the moment, not to the event.
    pub(crate) fn give_event(&self, event: RawEvent) {
        lock(&self.idle_events).push(Handle(event));
    }

    /// A stream that does not wait for the legacy default one. The context is current.
    pub(crate) fn take_stream(&self) -> Result<RawStream> {
        if let Some(stream) = lock(&self.idle_streams).pop() {
            return Ok(stream.0);
        }
        let mut stream = std::ptr::null_mut();
        // SAFETY: a pointer to a local; the caller has entered.
        let code = unsafe { (self.driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        lock(&self.streams).push(Handle(stream));
        Ok(stream)
    }

    /// Takes back a stream whose owner is done with it. What it was given still runs.
    pub(crate) fn give_stream(&self, stream: RawStream) {
        lock(&self.idle_streams).push(Handle(stream));
    }

    /// Others were told a stream's own handle.
    pub(crate) fn note_exposed(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    /// Whether a stream is known to be under graph capture. The context is current.
    pub(crate) fn is_captured(&self, stream: RawStream) -> bool {
        self.exposed.load(Ordering::Relaxed) && self.is_capturing(stream).unwrap_or(false)
    }

    /// The same, asked in any case. The context is current.
    pub(crate) fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        let mut status = 0;
        // SAFETY: a live stream of this context, and a local.
        let code = unsafe { (self.driver.stream_is_capturing)(stream, &mut status) };
        self.driver.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Whether all that a stream has been given has run. One that is under capture has not.
    pub(crate) fn is_idle(&self, stream: RawStream) -> Result<bool> {
        let _entered = self.enter()?;
        if self.is_capturing(stream)? {
            return Ok(false);
        }
        let _relaxed = self.relaxed();
        // SAFETY: a live stream of this context.
        Ok(unsafe { (self.driver.stream_query)(stream) } == SUCCESS)
    }

    /// What follows on `stream` comes after `event`.
    pub(crate) fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        // SAFETY: both are alive: streams of ours always are, and the event is the caller's.
        let code = unsafe { (self.driver.stream_wait_event)(stream, event, 0) };
        self.driver.check("cuStreamWaitEvent", code)
    }

    /// What follows on `stream` comes after what `earlier` has been given.
    pub(crate) fn follow(&self, _entered: &Entered, stream: RawStream, earlier: RawStream) -> Result<()> {
        let event = self.record(earlier)?;
        let waited = self.wait(stream, event);
        self.give_event(event);
        waited
    }

    /// Does work on a stream of our own, in the order of `stream`.
    pub(crate) fn beside(
        &self,
        entered: &Entered,
        stream: RawStream,
        work: impl FnOnce(RawStream) -> Result<()>,
    ) -> Result<()> {
        let own = self.take_stream()?;
        let done = self.follow(entered, own, stream).and_then(|()| work(own));
        // What failed may have been done in part.
        let followed = self.follow(entered, stream, own);
        if followed.is_err() {
            let _relaxed = self.relaxed();
            // SAFETY: a stream of this context.
            unsafe { (self.driver.stream_synchronize)(own) };
        }
        self.give_stream(own);
        done.and(followed)
    }

    /// The context that a stream belongs to; for the default ones the current one.
    pub(crate) fn context_of(&self, _entered: &Entered, stream: RawStream) -> Result<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a live stream by the caller's word, and a pointer to a local.
        let code = unsafe { (self.driver.stream_get_ctx)(stream, &mut context) };
        self.driver.check("cuStreamGetCtx", code)?;
        Ok(context)
    }

    /// Marks all that is in flight in the context, work of others included. The caller has entered.
    ///
    /// # Errors
    /// The driver's: older ones cannot, and none can while any stream of the context is under graph capture, which this breaks.
    pub(crate) fn record_everything(&self) -> Result<RawEvent> {
        let Some(record) = self.driver.ctx_record_event else {
            return Err(Error::unsupported("no cuCtxRecordEvent"));
        };
        let event = self.take_event()?;
        // SAFETY: an event of this context.
        let code = unsafe { record(self.context(), event) };
        match self.driver.check("cuCtxRecordEvent", code) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.give_event(event);
                Err(error)
            }
        }
    }

    /// Records what `stream` has been given into a fresh event.
    pub(crate) fn record(&self, stream: RawStream) -> Result<RawEvent> {
        let event = self.take_event()?;
        // SAFETY: both are of this context.
        let code = unsafe { (self.driver.event_record)(event, stream) };
        match self.driver.check("cuEventRecord", code) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.give_event(event);
                Err(error)
            }
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let Ok(_entered) = self.enter() else { return };
        for stream in lock(&self.streams).drain(..) {
            // SAFETY: made by `take_stream`, and nobody has a handle without this Gpu.
            unsafe { (self.driver.stream_destroy)(stream.0) };
        }
        for event in lock(&self.idle_events).drain(..) {
            // SAFETY: made by `take_event`, and given back.
            unsafe { (self.driver.event_destroy)(event.0) };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts back what was current before, so that the caller's own work with CUDA does not notice.
pub(crate) struct Entered {
    driver: Driver,
    before: Option<Context>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was current on this thread; null is no context.
            unsafe { (self.driver.ctx_set_current)(before) };
        }
    }
}

impl Driver {
    /// See [`Gpu::relaxed`].
    pub(crate) fn relaxed(&self) -> Relaxed<'_> {
        let mut mode = CAPTURE_MODE_RELAXED;
        // SAFETY: a pointer to a local.
        let code = unsafe { (self.thread_exchange_capture_mode)(&mut mode) };
        Relaxed { driver: self, before: (code == SUCCESS).then_some(mode) }
    }
}

/// Gives the thread its own capture mode back.
pub(crate) struct Relaxed<'a> {
    driver: &'a Driver,
    before: Option<c_int>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.before {
            // SAFETY: a pointer to a field.
            unsafe { (self.driver.thread_exchange_capture_mode)(mode) };
        }
    }
}
