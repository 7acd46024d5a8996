//! The order in which a device does things.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::memory::call;
use crate::owner::Owner;
use crate::{Buffer, BufferMut, Copies, Event, Memory, Ready};

/// A queue of work on one device. On host devices each piece has run when its call returns.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    memory: Memory,
    device: Device,
    raw: *mut abi::Stream,
    owned: bool,
}

// SAFETY: the interface takes stream handles on any thread, and destroys an owned one once, in `Drop`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    pub(crate) fn new(memory: Memory, device: Device, raw: *mut abi::Stream, owned: bool) -> Self {
        Self(Arc::new(Inner { memory, device, raw, owned }))
    }

    /// The stream of a call, which its caller keeps alive meanwhile; null is the device's default one.
    ///
    /// # Safety
    /// `raw` is null or a live stream of `device` that `memory`'s host made.
    pub unsafe fn of_call(memory: &Memory, device: Device, raw: *mut abi::Stream) -> Result<Self> {
        if raw.is_null() {
            memory.default_stream(device)
        } else {
            Ok(Self::new(memory.clone(), device, raw, false))
        }
    }

    /// Where it runs.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The memory that it belongs to.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// The interface's handle.
    pub fn raw(&self) -> *mut abi::Stream {
        self.0.raw
    }

    /// The device's own handle (a `CUstream`); null on devices that have none.
    pub fn native(&self) -> *mut c_void {
        let table = self.0.memory.table();
        // SAFETY: the table's own function on a stream that it made.
        table.stream_raw.map_or(std::ptr::null_mut(), |f| unsafe { f(self.0.memory.object(), self.0.raw) })
    }

    /// Whether it records a graph instead of running.
    pub fn is_capturing(&self) -> Result<bool> {
        let mut capturing = 0;
        call!(self.0.memory, stream_is_capturing, self.0.raw, &mut capturing)?;
        Ok(capturing != 0)
    }

    /// What follows on this stream comes after `ready`. The host does not wait.
    pub fn wait(&self, ready: &Ready) -> Result<()> {
        match ready {
            Ready::Now => Ok(()),
            Ready::After(event) => call!(self.0.memory, stream_wait, self.0.raw, event.raw()),
            Ready::AfterForeign(event) => call!(self.0.memory, stream_wait_raw, self.0.raw, event.raw()),
        }
    }

    /// The same for several, of which most are often one: the buffers of a batch.
    pub(crate) fn wait_each<'a>(&self, moments: impl Iterator<Item = &'a Ready>) -> Result<()> {
        let mut last = &Ready::Now;
        for ready in moments {
            if !ready.is_same(last) {
                self.wait(ready)?;
                last = ready;
            }
        }
        Ok(())
    }

    /// The moment after what has been enqueued so far, or [`Ready::Now`] where all of it has run.
    pub fn record(&self) -> Result<Ready> {
        let mut raw = std::ptr::null_mut();
        call!(self.0.memory, event_record, self.0.raw, &mut raw)?;
        Ok(if raw.is_null() { Ready::Now } else { Ready::After(Event::new(self.0.memory.clone(), raw)) })
    }

    /// Blocks this thread until everything so far has run: only for values that must come to the host.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture("waiting for it")?;
        call!(self.0.memory, stream_synchronize, self.0.raw)
    }

    /// Our memory goes back after events, which a graph would take in and repeat: what needs one is refused under capture,
    /// before any of it is enqueued.
    pub(crate) fn refuse_capture(&self, what: &str) -> Result<()> {
        if !self.is_capturing()? {
            return Ok(());
        }
        Err(Error::device(format!(
            "a stream of {} is under graph capture: {what} would break the capture; end the capture first",
            self.device()
        )))
    }

    /// Copies `bytes` bytes between any two devices, in this stream's order.
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

    /// Sets `bytes` bytes from `offset` on to `value`.
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
        self.refuse_capture("a fill")?;
        let address = (to.address() + offset as u64) as *mut c_void;
        let enqueued = call!(self.0.memory, fill, self.0.raw, address, value, bytes);
        self.note_uses(enqueued, || std::iter::once(&**to.owner()))
    }

    /// Work that uses `owners` has been enqueued: all of it, or where that failed perhaps a part.
    pub(crate) fn note_uses<'a, Owners: Iterator<Item = &'a Owner>>(
        &self,
        enqueued: Result<()>,
        owners: impl Fn() -> Owners,
    ) -> Result<()> {
        match enqueued.and_then(|()| self.record()) {
            Ok(Ready::After(event)) => {
                let mut last = std::ptr::null();
                for owner in owners() {
                    // Many ranges of one allocation are one use of it.
                    if !std::ptr::eq(owner, last) {
                        owner.note_use(&event);
                    }
                    last = owner;
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.wait_or_give_up(owners);
                return Err(error);
            }
        }
        Ok(())
    }

    /// No event tells when work on `owners` is over: it is waited for, or, where not even that can be done, they stay until
    /// everything is over.
    pub(crate) fn wait_or_give_up<'a, Owners: Iterator<Item = &'a Owner>>(
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
            // SAFETY: made by this table, destroyed once.
            unsafe { destroy(self.memory.object(), self.raw) };
        }
    }
}
