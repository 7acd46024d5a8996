//! Events that cross the boundary.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::context::{Entered, Gpu};
use super::driver::{NOT_READY, RawEvent, RawStream, SUCCESS};
use crate::device::Stream;

/// A moment on a stream of ours. An `Arc` of it, as a raw pointer, is the handle that crosses the boundary.
#[repr(C)]
pub(crate) struct CudaEvent {
    /// Whose it is: handles of two backends must not mix.
    backend: usize,
    /// What a `sync_event` points at.
    raw: RawEvent,
    /// On which of ours it was recorded: work that follows there needs no wait. Null for a stranger's, whose number another
    /// stream may have by now, on this device or another one.
    stream: RawStream,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver takes events on every thread, and nothing in here changes.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Where it was recorded.
    pub(crate) fn device(&self) -> Device {
        self.gpu.device
    }

    /// What `stream` has been given so far.
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

    /// All that is in flight on the device, work of others included.
    pub(crate) fn of_everything(backend: usize, gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        let _entered = gpu.enter()?;
        let raw = gpu.record_everything()?;
        Ok(Arc::new(Self { backend, raw, stream: std::ptr::null_mut(), gpu: gpu.clone() }))
    }

    /// The handle for others; [`CudaEvent::of_last`] takes it back.
    pub(crate) fn into_handle(self: Arc<Self>) -> *mut abi::Event {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// The event behind a handle, which stays the caller's.
    ///
    /// # Safety
    /// A live handle that some backend's [`CudaEvent::into_handle`] gave.
    pub(crate) unsafe fn of(backend: usize, handle: *mut abi::Event) -> Result<Arc<Self>> {
        // SAFETY: by this function's own contract; the handle stands for one count, which lives during the call.
        unsafe {
            let event = Self::checked(backend, handle)?;
            Arc::increment_strong_count(event);
            Ok(Arc::from_raw(event))
        }
    }

    /// The same with the count that the handle stands for.
    ///
    /// # Safety
    /// As [`CudaEvent::of`], and the handle is not used any more.
    pub(crate) unsafe fn of_last(backend: usize, handle: *mut abi::Event) -> Result<Arc<Self>> {
        // SAFETY: by this function's own contract.
        unsafe { Ok(Arc::from_raw(Self::checked(backend, handle)?)) }
    }

    /// # Safety
    /// As [`CudaEvent::of`].
    unsafe fn checked(backend: usize, handle: *mut abi::Event) -> Result<*const Self> {
        let event = handle.cast::<Self>().cast_const();
        // SAFETY: by this function's own contract.
        if event.is_null() || !event.is_aligned() || unsafe { (*event).backend } != backend {
            return Err(Error::invalid_argument(format!("event {handle:p} was not made by this memory")));
        }
        Ok(event)
    }

    /// The address of the driver's handle.
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

    /// Whether it has passed.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: the event is alive, since `self` is.
        match unsafe { (self.gpu.driver.event_query)(self.raw) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => self.gpu.driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Blocks this thread until it has passed.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: as above.
        let code = unsafe { (self.gpu.driver.event_synchronize)(self.raw) };
        self.gpu.driver.check("cuEventSynchronize", code)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        self.gpu.give_event(self.raw);
    }
}
