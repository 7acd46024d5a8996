//! Defines CUDA events whose handles cross the plugin boundary.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::context::{Entered, Gpu};
use super::driver::{NOT_READY, RawEvent, RawStream, SUCCESS};
use crate::device::Stream;

/// An event that was recorded on a stream. Its handle, which crosses the plugin boundary, is the
/// raw pointer of an `Arc<CudaEvent>`.
#[repr(C)]
pub(crate) struct CudaEvent {
    /// The number of the backend to which the event belongs. Other backends reject its handle.
    backend: usize,
    /// The native handle. A `sync_event` points to this field.
    raw: RawEvent,
    /// The stream on which the event was recorded. Later work on that stream need not wait for the
    /// event. NULL for an external stream, because the driver may have reused its handle for
    /// another stream.
    stream: RawStream,
    gpu: Arc<Gpu>,
    /// Whether the driver has reported that the event has passed. The event is recorded only once,
    /// so it stays passed.
    has_passed: AtomicBool,
}

// SAFETY: the driver accepts events on any thread, and only the atomic field changes.
unsafe impl Send for CudaEvent {}
// SAFETY: the driver accepts an event on several threads at the same time, and only the atomic
// field changes.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// The device on which the event was recorded.
    pub(crate) fn device(&self) -> Device {
        self.gpu.device
    }

    /// Records an event after the work enqueued so far on `stream`.
    pub(crate) fn record(
        backend: usize,
        gpu: &Arc<Gpu>,
        _entered: &Entered,
        stream: &Stream,
    ) -> Result<Arc<Self>> {
        let raw = gpu.record(stream.raw)?;
        let stream = if stream.adopted { std::ptr::null_mut() } else { stream.raw };
        Ok(Arc::new(Self { backend, raw, stream, gpu: gpu.clone(), has_passed: AtomicBool::new(false) }))
    }

    /// Records an event after all work in flight on the device, including work of other libraries.
    pub(crate) fn record_everything(backend: usize, gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let raw = gpu.record_everything()?;
        Ok(Arc::new(Self {
            backend,
            raw,
            stream: std::ptr::null_mut(),
            gpu: gpu.clone(),
            has_passed: AtomicBool::new(false),
        }))
    }

    /// Converts the event to a handle; [`CudaEvent::take_handle`] is the inverse.
    pub(crate) fn into_handle(self: Arc<Self>) -> *mut abi::Event {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// Returns the event of a handle. The handle keeps its own reference to the event.
    ///
    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`].
    pub(crate) unsafe fn from_handle(backend: usize, handle: *mut abi::Event) -> Result<Arc<Self>> {
        // SAFETY: `handle` is NULL or live by this function's contract. Its reference keeps the
        // event alive during the call.
        unsafe {
            let event = Self::check_handle(backend, handle)?;
            Arc::increment_strong_count(event);
            Ok(Arc::from_raw(event))
        }
    }

    /// Returns the event of a handle, and takes ownership of the handle's reference to it.
    ///
    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`], and is not used any more.
    pub(crate) unsafe fn take_handle(backend: usize, handle: *mut abi::Event) -> Result<Arc<Self>> {
        // SAFETY: by this function's contract `handle` is NULL or live, and the caller passes
        // ownership of its reference.
        unsafe { Ok(Arc::from_raw(Self::check_handle(backend, handle)?)) }
    }

    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`].
    unsafe fn check_handle(backend: usize, handle: *mut abi::Event) -> Result<*const Self> {
        let event = handle.cast::<Self>().cast_const();
        // SAFETY: the checks before the dereference reject NULL and misaligned handles, and by this
        // function's contract all other handles are live.
        if event.is_null() || !event.is_aligned() || unsafe { (*event).backend } != backend {
            return Err(Error::invalid_argument(format!("event {handle:p} does not belong to this host")));
        }
        Ok(event)
    }

    /// A pointer to the native handle, for `sync_event`.
    pub(crate) fn sync_event(&self) -> *mut c_void {
        (&raw const self.raw).cast_mut().cast()
    }

    pub(crate) fn raw(&self) -> RawEvent {
        self.raw
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(crate) fn stream(&self) -> RawStream {
        self.stream
    }

    /// Whether the driver has already reported that the event has passed.
    pub(crate) fn is_known_to_have_passed(&self) -> bool {
        self.has_passed.load(Ordering::Relaxed)
    }

    /// Whether the event has passed.
    pub(crate) fn is_done(&self) -> Result<bool> {
        if self.is_known_to_have_passed() {
            return Ok(true);
        }
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: `self` keeps the native event alive.
        match unsafe { (self.gpu.driver.event_query)(self.raw) } {
            SUCCESS => {
                self.has_passed.store(true, Ordering::Relaxed);
                Ok(true)
            }
            NOT_READY => Ok(false),
            code => self.gpu.driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Blocks this thread until the event has passed.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: `self` keeps the native event alive.
        let code = unsafe { (self.gpu.driver.event_synchronize)(self.raw) };
        self.gpu.driver.check("cuEventSynchronize", code)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        self.gpu.return_event(self.raw);
    }
}
