//! Implements streams and events.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::Account;
use crate::cuda::{CudaEvent, Platform};
use crate::device::{DeviceBackend, Stream};
use crate::fault::Operation;
use crate::vtable::Call;

impl Account {
    /// Returns the stream. If it is NULL, returns the default stream of the device that `address`
    /// belongs to.
    ///
    /// # Safety
    /// `stream` is NULL or a live stream of a backend.
    pub(super) unsafe fn stream_for(
        &self,
        stream: *mut abi::Stream,
        address: *const c_void,
    ) -> Result<&Stream> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        match unsafe { self.backend.stream(stream) }? {
            Some(stream) => Ok(stream),
            None => self.backend.default_stream(self.backend.locate(address)?.index),
        }
    }

    /// Returns the device of a stream, and the stream. Rejects NULL, because it does not select a
    /// device.
    ///
    /// # Safety
    /// `stream` is NULL or a live stream of a backend.
    pub(crate) unsafe fn device_and_stream(
        &self,
        stream: *mut abi::Stream,
    ) -> Result<(&dyn DeviceBackend, &Stream)> {
        let none = || {
            Error::invalid_argument("the stream is NULL: use `stream_default` for a device's default stream")
        };
        // SAFETY: `stream` is NULL or live by this function's contract.
        let stream = unsafe { self.backend.stream(stream) }?.ok_or_else(none)?;
        Ok((self.backend.device(stream.device_index)?, stream))
    }

    /// Returns the device of a stream, and the stream. If it is NULL, returns the default stream of
    /// `device`.
    ///
    /// # Safety
    /// `stream` is NULL or a live stream of a backend.
    pub(crate) unsafe fn stream_of_call(
        &self,
        stream: *mut abi::Stream,
        device: Device,
    ) -> Result<(Device, *mut abi::Stream)> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        let stream = match unsafe { self.backend.stream(stream) }? {
            Some(stream) => stream,
            None => self.backend.default_stream(self.backend.index_of(device)?)?,
        };
        let device = self.backend.device(stream.device_index)?.describe().device;
        Ok((device, std::ptr::from_ref(stream).cast_mut().cast()))
    }

    pub(crate) fn stream_create(&self, device: Device, priority: i32) -> Result<*mut abi::Stream> {
        let device_index = self.backend.index_of(device)?;
        let native = self.backend.device(device_index)?.stream_create(priority)?;
        self.count_stream(device_index);
        let backend = Arc::as_ptr(&self.backend) as usize;
        Ok(Box::into_raw(Box::new(Stream::new(backend, device_index, native))).cast())
    }

    fn count_stream(&self, device_index: usize) {
        self.backend.add_devices(&self.counters, device_index);
        self.counters.add_streams(device_index, 1);
    }

    /// Wraps an external stream.
    ///
    /// # Safety
    /// On a CUDA device `native` is NULL or a live stream; host devices ignore it.
    pub(crate) unsafe fn stream_adopt(
        &self,
        device: Device,
        native: *mut c_void,
    ) -> Result<*mut abi::Stream> {
        let device_index = self.backend.index_of(device)?;
        // SAFETY: `stream_adopt` of the device has the same contract as this function.
        let native = unsafe { self.backend.device(device_index)?.stream_adopt(native) }?;
        self.count_stream(device_index);
        let backend = Arc::as_ptr(&self.backend) as usize;
        Ok(Box::into_raw(Box::new(Stream::adopted(backend, device_index, native))).cast())
    }

    /// Destroys a stream. Does nothing for a default stream.
    ///
    /// # Safety
    /// `handle` is NULL or a live stream of a backend, and is not used any more.
    pub(crate) unsafe fn stream_destroy(&self, handle: *mut abi::Stream) -> Result<()> {
        // SAFETY: `handle` is NULL or live by this function's contract.
        let Some(stream) = unsafe { self.backend.stream(handle) }? else { return Ok(()) };
        if self.backend.is_default_stream(stream) || self.backend.is_inherited() {
            return Ok(());
        }
        self.backend.device(stream.device_index)?.stream_destroy(stream);
        self.counters.add_streams(stream.device_index, -1);
        // SAFETY: a stream of this backend that is not a default stream was created with
        // `Box::into_raw`. By this function's contract it is not used any more.
        drop(unsafe { Box::from_raw(handle.cast::<Stream>()) });
        Ok(())
    }

    /// Makes later work on the stream wait for the event. If the stream belongs to a host device,
    /// this thread waits, because work on host devices is complete when the call returns.
    ///
    /// # Safety
    /// `stream` is NULL or a live stream of a backend; `event` is a live event.
    pub(crate) unsafe fn stream_wait(&self, stream: *mut abi::Stream, event: *mut abi::Event) -> Result<()> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        let (device, stream) = unsafe { self.device_and_stream(stream) }?;
        if self.backend.is_cuda(stream.device_index) {
            return device.stream_wait(stream, event);
        }
        // SAFETY: `event` is live by this function's contract.
        unsafe { self.event(event) }?.map_or(Ok(()), |event| event.synchronize())
    }

    /// Makes later work on the stream wait for an external event.
    ///
    /// # Safety
    /// `stream` is NULL or a live stream of a backend; `sync_event` points to the handle of a live
    /// event.
    pub(crate) unsafe fn stream_wait_raw(
        &self,
        stream: *mut abi::Stream,
        sync_event: *mut c_void,
    ) -> Result<()> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        let (device, stream) = unsafe { self.device_and_stream(stream) }?;
        match self.backend.known_cuda() {
            Some(cuda) if stream.device_index == self.backend.pinned_index() && stream.device_index > 0 => {
                // SAFETY: `sync_event` points to the handle of a live event by this function's
                // contract.
                unsafe { cuda.synchronize_raw(sync_event) }
            }
            _ => device.stream_wait_raw(stream, sync_event),
        }
    }

    /// Returns the event that the handle refers to; `None` for NULL, which means that all work has
    /// run.
    ///
    /// # Safety
    /// `event` is NULL or a live event.
    pub(crate) unsafe fn event(&self, event: *mut abi::Event) -> Result<Option<Arc<CudaEvent>>> {
        if event.is_null() {
            return Ok(None);
        }
        // SAFETY: `event` is live by this function's contract.
        unsafe { self.cuda_of(event)?.event(event) }.map(Some)
    }

    fn cuda_of(&self, event: *mut abi::Event) -> Result<&Platform> {
        let cuda = self.backend.known_cuda();
        cuda.ok_or_else(|| Error::invalid_argument(format!("event {event:p} does not belong to this host")))
    }

    /// # Safety
    /// `event` is NULL, or a live event that is not used any more.
    pub(crate) unsafe fn event_destroy(&self, event: *mut abi::Event) -> Result<()> {
        if self.backend.is_inherited() || event.is_null() {
            return Ok(());
        }
        // SAFETY: `event` is live by this function's contract. The caller does not use it any more,
        // so that `take_event_handle` may take the reference that the handle holds.
        let event = unsafe { self.cuda_of(event)?.take_event_handle(event) }?;
        self.counters.add_events(self.backend.index_of(event.device())?, -1);
        Ok(())
    }

    /// Records an event after the work enqueued on the stream. Returns NULL if all of that work has
    /// run.
    ///
    /// # Safety
    /// `stream` is NULL or a live stream of a backend.
    pub(crate) unsafe fn event_record(&self, stream: *mut abi::Stream) -> Result<*mut abi::Event> {
        // SAFETY: `stream` is NULL or live by this function's contract.
        let (device, stream) = unsafe { self.device_and_stream(stream) }?;
        self.backend.fault(Operation::Event, "event_record")?;
        let event = device.event_record(stream)?;
        if !event.is_null() {
            self.backend.add_devices(&self.counters, stream.device_index);
            self.counters.add_events(stream.device_index, 1);
        }
        Ok(event)
    }

    /// Runs `call` once all events have passed.
    ///
    /// # Safety
    /// The events are live.
    pub(crate) unsafe fn call_after(&self, events: &[*mut abi::Event], call: Call) -> Result<()> {
        // SAFETY: the events are live by this function's contract.
        unsafe { self.call_later(events, false, call) }
    }

    /// Runs `call` once all events have passed, and all work that is now in flight on started
    /// devices has run.
    ///
    /// # Safety
    /// The events are live.
    pub(crate) unsafe fn call_after_all(&self, events: &[*mut abi::Event], call: Call) -> Result<()> {
        // SAFETY: the events are live by this function's contract.
        unsafe { self.call_later(events, true, call) }
    }

    /// # Safety
    /// The events are live.
    unsafe fn call_later(&self, events: &[*mut abi::Event], after_all: bool, call: Call) -> Result<()> {
        if self.backend.is_inherited() {
            return Ok(());
        }
        let mut pending = Vec::new();
        for event in events {
            // SAFETY: the events are live by this function's contract.
            let event = unsafe { self.event(*event) }?;
            // If the query of an event fails, the event stays pending, and the reaper handles the
            // error.
            pending.extend(event.filter(|event| !matches!(event.is_done(), Ok(true))));
        }
        match self.backend.known_cuda().filter(|_| after_all || !pending.is_empty()) {
            None => call.run(),
            Some(cuda) => {
                cuda.call_after(pending, after_all, Box::new(move || call.run()));
            }
        }
        Ok(())
    }
}
