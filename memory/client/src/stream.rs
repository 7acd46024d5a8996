//! Streams: queues of work on a device.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::memory::call;
use crate::owner::Owner;
use crate::{Buffer, BufferMut, Copies, Event, Memory, Ready};

/// A queue of work on one device. On host devices, work is complete when the call that enqueues it
/// returns.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    memory: Memory,
    device: Device,
    raw: *mut abi::Stream,
    owned: bool,
    /// Distinguishes this stream from all others of this module, also from those that have been
    /// dropped.
    id: u64,
    /// Whether the native handle was returned, so that work may be enqueued without this module.
    is_exposed: AtomicBool,
}

// SAFETY: the interface accepts stream handles on any thread, and `Drop` destroys an owned stream
// once.
unsafe impl Send for Inner {}
// SAFETY: the interface accepts a stream handle on several threads at the same time.
unsafe impl Sync for Inner {}

impl Stream {
    pub(crate) fn new(memory: Memory, device: Device, raw: *mut abi::Stream, owned: bool) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Inner { memory, device, raw, owned, id, is_exposed: AtomicBool::new(false) }))
    }

    /// Wraps the stream that was passed to a plugin call, and borrows it for the call. NULL selects
    /// the device's default stream.
    ///
    /// # Safety
    /// `raw` is NULL or a live stream of `device` that the host of `memory` created.
    pub unsafe fn from_call(memory: &Memory, device: Device, raw: *mut abi::Stream) -> Result<Self> {
        if raw.is_null() {
            memory.default_stream(device)
        } else {
            Ok(Self::new(memory.clone(), device, raw, false))
        }
    }

    /// The device that the stream runs on.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The memory interface that the stream belongs to.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// The handle that the functions of the memory interface accept.
    pub fn raw(&self) -> *mut abi::Stream {
        self.0.raw
    }

    /// The native handle, a `CUstream`; NULL on devices that have none.
    pub fn native(&self) -> *mut c_void {
        self.0.is_exposed.store(true, Ordering::Relaxed);
        let table = self.0.memory.table();
        // SAFETY: `stream_raw` requires a stream of its own table, and this table created the
        // stream.
        table.stream_raw.map_or(std::ptr::null_mut(), |f| unsafe { f(self.0.memory.object(), self.0.raw) })
    }

    /// Whether the stream is under graph capture.
    pub fn is_capturing(&self) -> Result<bool> {
        let mut capturing = 0;
        call!(self.0.memory, stream_is_capturing, self.0.raw, &mut capturing)?;
        Ok(capturing != 0)
    }

    /// Makes later work on this stream wait for `ready`. The host does not wait.
    pub fn wait(&self, ready: &Ready) -> Result<()> {
        match ready {
            Ready::Now => Ok(()),
            Ready::After(event) => call!(self.0.memory, stream_wait, self.0.raw, event.raw()),
            Ready::AfterForeign(event) => call!(self.0.memory, stream_wait_raw, self.0.raw, event.raw()),
        }
    }

    /// Makes later work on this stream wait for several events. Skips events that this thread has
    /// recorded on this stream. Skips an event that is the same as one of the previous events,
    /// because the buffers of a batch often share an event.
    pub fn wait_each<'a>(&self, events: impl Iterator<Item = &'a Ready>) -> Result<()> {
        /// The number of previous events that an event is compared with.
        const REMEMBERED: usize = 4;
        let mut last = [&Ready::Now; REMEMBERED];
        let mut n_waits = 0;
        for ready in events {
            let is_own = matches!(ready, Ready::After(event) if event.is_of_stream(self.0.id));
            if ready.is_now() || is_own || last.iter().any(|last| ready.is_same(last)) {
                continue;
            }
            self.wait(ready)?;
            if let Some(slot) = last.get_mut(n_waits % REMEMBERED) {
                *slot = ready;
            }
            n_waits += 1;
        }
        Ok(())
    }

    /// Records an event after the work enqueued so far. Returns [`Ready::Now`] if all of that work
    /// has run.
    pub fn record(&self) -> Result<Ready> {
        let mut raw = std::ptr::null_mut();
        call!(self.0.memory, event_record, self.0.raw, &mut raw)?;
        if raw.is_null() {
            return Ok(Ready::Now);
        }
        Ok(Ready::After(Event::new(self.0.memory.clone(), raw, self.0.id)))
    }

    /// Returns an event after the work enqueued so far that uses the memory of `owner`. It is the
    /// event of the last use, unless other work may use the memory.
    pub(crate) fn record_after_uses(&self, owner: &Owner) -> Result<Ready> {
        let last =
            if self.0.is_exposed.load(Ordering::Relaxed) { None } else { owner.only_use_on(self.0.id) };
        last.map_or_else(|| self.record(), |event| Ok(Ready::After(event)))
    }

    /// Blocks this thread until all work enqueued so far has run. Use it only for values that the
    /// host needs.
    pub fn synchronize(&self) -> Result<()> {
        self.reject_capture("waiting for it")?;
        call!(self.0.memory, stream_synchronize, self.0.raw)
    }

    /// Returns an error if the stream is under graph capture. Freeing memory needs events, which a
    /// capture would record into the graph. Therefore work that needs an event is rejected under
    /// capture, before any of the work is enqueued.
    pub(crate) fn reject_capture(&self, what: &str) -> Result<()> {
        if !self.is_capturing()? {
            return Ok(());
        }
        Err(Error::device(format!(
            "a stream of {} is under graph capture: {what} would break the capture; end the capture first",
            self.device()
        )))
    }

    /// Copies `bytes` bytes between buffers on any devices, in stream order.
    pub fn copy(
        &self,
        to: &mut BufferMut,
        to_offset: usize,
        from: &Buffer,
        from_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut copies = Copies::new();
        copies.push(to, to_offset, from, from_offset, bytes)?;
        copies.submit(self)
    }

    /// Sets `bytes` bytes, beginning at `offset`, to `value`.
    pub fn fill(&self, to: &mut BufferMut, offset: usize, bytes: usize, value: u8) -> Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > to.len()) {
            return Err(Error::invalid_argument(format!(
                "fill: bytes {offset}..+{bytes} lie outside a buffer of {} bytes",
                to.len()
            )));
        }
        if bytes == 0 {
            return Ok(());
        }
        self.reject_capture("a fill")?;
        let address = (to.address() + offset as u64) as *mut c_void;
        let enqueued = call!(self.0.memory, fill, self.0.raw, address, value, bytes);
        self.note_uses(enqueued, || std::iter::once(&**to.owner()))
    }

    /// Notes that the work just enqueued uses the memory of `owners`. `enqueued` is the result of
    /// enqueueing the work. If it is an error, part of the work may have been enqueued.
    pub(crate) fn note_uses<'a, Owners: Iterator<Item = &'a Owner>>(
        &self,
        enqueued: Result<()>,
        owners: impl Fn() -> Owners,
    ) -> Result<()> {
        match enqueued.and_then(|()| self.record()) {
            Ok(Ready::After(event)) => {
                let mut last = std::ptr::null();
                for owner in owners() {
                    // Consecutive ranges of the same allocation need only one note.
                    if !std::ptr::eq(owner, last) {
                        owner.note_use(&event);
                    }
                    last = owner;
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.synchronize_or_leak(owners);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for work that uses the memory of `owners` and has no event. If waiting fails, marks
    /// the owners with [`Owner::note_unknown_use`].
    pub(crate) fn synchronize_or_leak<'a, Owners: Iterator<Item = &'a Owner>>(
        &self,
        owners: impl Fn() -> Owners,
    ) {
        if call!(self.0.memory, stream_synchronize, self.0.raw).is_err() {
            owners().for_each(Owner::note_unknown_use);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned
            && let Some(destroy) = self.memory.table().stream_destroy
        {
            // SAFETY: this table created the stream, and `Drop` runs once.
            unsafe { destroy(self.memory.object(), self.raw) };
        }
    }
}
