//! CUDA events that cross the plugin boundary.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::context::{Entered, Gpu};
use super::driver::{NOT_READY, RawEvent, RawStream, SUCCESS};
use crate::device::Stream;

/// An event on a stream. The handle that crosses the boundary is an `Arc` of it as a raw pointer.
#[repr(C)]
pub(crate) struct CudaEvent {
    /// The backend that it belongs to, so that handles of two backends cannot be mixed.
    backend: usize,
    /// The native handle. A `sync_event` points to this field.
    raw: RawEvent,
    /// The stream on which it was recorded: later work there needs no wait. NULL for an external
    /// stream, whose handle may since belong to another stream.
    stream: RawStream,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver accepts events on any thread, and the fields do not change.
unsafe impl Send for CudaEvent {}
// SAFETY: the driver accepts an event on several threads at the same time, and the fields do not
// change.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// The device on which it was recorded.
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
        Ok(Arc::new(Self { backend, raw, stream, gpu: gpu.clone() }))
    }

    /// Records an event after all work in flight on the device, including work of other libraries.
    pub(crate) fn record_everything(backend: usize, gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let raw = gpu.record_everything()?;
        Ok(Arc::new(Self { backend, raw, stream: std::ptr::null_mut(), gpu: gpu.clone() }))
    }

    /// Converts the event to a handle; [`CudaEvent::take_handle`] is the inverse.
    pub(crate) fn into_handle(self: Arc<Self>) -> *mut abi::Event {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// The event behind a handle. The handle keeps its reference.
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

    /// The event behind a handle, together with the handle's reference.
    ///
    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`], and is not used any more.
    pub(crate) unsafe fn take_handle(backend: usize, handle: *mut abi::Event) -> Result<Arc<Self>> {
        // SAFETY: `handle` is NULL or live by this function's contract, which also gives up its
        // reference.
        unsafe { Ok(Arc::from_raw(Self::check_handle(backend, handle)?)) }
    }

    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`].
    unsafe fn check_handle(backend: usize, handle: *mut abi::Event) -> Result<*const Self> {
        let event = handle.cast::<Self>().cast_const();
        // SAFETY: `event` is not NULL, aligned, and live by this function's contract.
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

    /// Whether the event has passed.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: `self` keeps the native event alive.
        match unsafe { (self.gpu.driver.event_query)(self.raw) } {
            SUCCESS => Ok(true),
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
