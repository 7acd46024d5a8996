//! Streams and events.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::Account;
use crate::cuda::{CudaEvent, Platform};
use crate::device::{DeviceBackend, Stream};
use crate::fault::Operation;
use crate::vtable::Call;

impl Account {
    /// The stream, or for NULL the default one of the device that `address` is known to lie on.
    ///
    /// # Safety
    /// As [`Inner::stream`].
    pub(super) unsafe fn stream_for(
        &self,
        stream: *mut abi::Stream,
        address: *const c_void,
    ) -> Result<&Stream> {
        // SAFETY: by this function's own contract.
        match unsafe { self.backend.stream(stream) }? {
            Some(stream) => Ok(stream),
            None => self.backend.default_stream(self.backend.owner_of(address)?.index),
        }
    }

    /// The device of a stream, and the stream. NULL is none: which device's it were, nobody would know.
    ///
    /// # Safety
    /// As [`Inner::stream`].
    pub(crate) unsafe fn on_stream(&self, stream: *mut abi::Stream) -> Result<(&dyn DeviceBackend, &Stream)> {
        let none =
            || Error::invalid_argument("the stream is NULL: a device's default one is `stream_default`");
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.backend.stream(stream) }?.ok_or_else(none)?;
        Ok((self.backend.device(stream.device_index)?, stream))
    }

    pub(crate) fn stream_create(&self, device: Device) -> Result<*mut abi::Stream> {
        let device_index = self.backend.index_of(device)?;
        let raw = self.backend.device(device_index)?.stream_create()?;
        self.made_stream(device_index);
        let backend = Arc::as_ptr(&self.backend) as usize;
        Ok(Box::into_raw(Box::new(Stream::new(backend, device_index, raw))).cast())
    }

    fn made_stream(&self, device_index: usize) {
        self.backend.extend(&self.page, device_index);
        self.page.streams(device_index, 1);
    }

    /// A stream over a stranger's own one.
    ///
    /// # Safety
    /// `raw` is a live stream of the device, or null, or means nothing there.
    pub(crate) unsafe fn stream_adopt(&self, device: Device, raw: *mut c_void) -> Result<*mut abi::Stream> {
        let device_index = self.backend.index_of(device)?;
        // SAFETY: by this function's own contract.
        let raw = unsafe { self.backend.device(device_index)?.stream_adopt(raw) }?;
        self.made_stream(device_index);
        let backend = Arc::as_ptr(&self.backend) as usize;
        Ok(Box::into_raw(Box::new(Stream::adopted(backend, device_index, raw))).cast())
    }

    /// Default streams, and those of other backends, stay as they are.
    ///
    /// # Safety
    /// As [`Inner::stream`], and nobody uses it any more.
    pub(crate) unsafe fn stream_destroy(&self, handle: *mut abi::Stream) -> Result<()> {
        // SAFETY: by this function's own contract.
        let Some(stream) = unsafe { self.backend.stream(handle) }? else { return Ok(()) };
        if self.backend.is_default_stream(stream) || self.backend.is_inherited() {
            return Ok(());
        }
        self.backend.device(stream.device_index)?.stream_destroy(stream);
        self.page.streams(stream.device_index, -1);
        // SAFETY: made as a Box, since it is ours and no default one, and given up by the caller.
        drop(unsafe { Box::from_raw(handle.cast::<Stream>()) });
        Ok(())
    }

    /// What follows on the stream comes after the event. A host device's stream has nothing that could follow later, so that
    /// this thread waits.
    ///
    /// # Safety
    /// As [`Inner::stream`]; the event is live.
    pub(crate) unsafe fn stream_wait(&self, stream: *mut abi::Stream, event: *mut abi::Event) -> Result<()> {
        // SAFETY: by this function's own contract.
        let (device, stream) = unsafe { self.on_stream(stream) }?;
        if self.backend.is_cuda(stream.device_index) {
            return device.stream_wait(stream, event);
        }
        // SAFETY: by this function's own contract.
        unsafe { self.event(event) }?.map_or(Ok(()), |event| event.synchronize())
    }

    /// The same for a stranger's event.
    ///
    /// # Safety
    /// As [`Account::stream_wait`]; `sync_event` points at an event's handle.
    pub(crate) unsafe fn stream_wait_raw(
        &self,
        stream: *mut abi::Stream,
        sync_event: *mut c_void,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        let (device, stream) = unsafe { self.on_stream(stream) }?;
        match self.backend.known_cuda() {
            Some(cuda) if stream.device_index == self.backend.pinned_index() && stream.device_index > 0 => {
                // SAFETY: by this function's own contract.
                unsafe { cuda.synchronize_raw(sync_event) }
            }
            _ => device.stream_wait_raw(stream, sync_event),
        }
    }

    /// An event of ours; `None` is the moment that has passed.
    ///
    /// # Safety
    /// Null, or a live event.
    pub(crate) unsafe fn event(&self, event: *mut abi::Event) -> Result<Option<Arc<CudaEvent>>> {
        if event.is_null() {
            return Ok(None);
        }
        // SAFETY: by this function's own contract.
        unsafe { self.maker_of(event)?.event(event) }.map(Some)
    }

    fn maker_of(&self, event: *mut abi::Event) -> Result<&Platform> {
        let cuda = self.backend.known_cuda();
        cuda.ok_or_else(|| Error::invalid_argument(format!("event {event:p} was not made by this memory")))
    }

    /// # Safety
    /// As [`Account::event`], and nobody uses it any more.
    pub(crate) unsafe fn event_destroy(&self, event: *mut abi::Event) -> Result<()> {
        if self.backend.is_inherited() || event.is_null() {
            return Ok(());
        }
        // SAFETY: by this function's own contract: the count that the handle stood for is given up.
        let event = unsafe { self.maker_of(event)?.last_of_event(event) }?;
        self.page.events(self.backend.index_of(event.device())?, -1);
        Ok(())
    }

    /// Marks what the stream has been given; NULL where all of it has run.
    ///
    /// # Safety
    /// As [`Inner::stream`].
    pub(crate) unsafe fn event_record(&self, stream: *mut abi::Stream) -> Result<*mut abi::Event> {
        // SAFETY: by this function's own contract.
        let (device, stream) = unsafe { self.on_stream(stream) }?;
        self.backend.fault(Operation::Event, "event_record")?;
        let event = device.event_record(stream)?;
        if !event.is_null() {
            self.backend.extend(&self.page, stream.device_index);
            self.page.events(stream.device_index, 1);
        }
        Ok(event)
    }

    /// Makes the call once all events have passed.
    ///
    /// # Safety
    /// The events are live.
    pub(crate) unsafe fn call_after(&self, events: &[*mut abi::Event], call: Call) -> Result<()> {
        // SAFETY: by this function's own contract.
        unsafe { self.call_later(events, false, call) }
    }

    /// Makes the call once all events have passed, and all that is in flight on the devices that are in use now.
    ///
    /// # Safety
    /// The events are live.
    pub(crate) unsafe fn call_after_all(&self, events: &[*mut abi::Event], call: Call) -> Result<()> {
        // SAFETY: by this function's own contract.
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
            // SAFETY: by this function's own contract.
            let event = unsafe { self.event(*event) }?;
            // One that cannot be asked is left to the reaper, which knows what to do then.
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
