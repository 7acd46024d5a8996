//! Memory of a CUDA device that is written in place, and the order of what is done with it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crossdock_memory::{Buffer, Copies, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::IpcExport;
use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::cuda_context::Place;

/// Memory of a device, shared by the buffers that lie in it. Unlike a table's it is written, in the order of one stream.
pub struct Allocation {
    pub buffer: Buffer,
    pub place: Arc<Place>,
    pub writable: bool,
    /// Others know where it is, and may be using it on streams of theirs.
    shown: AtomicBool,
    /// What other processes have been told of it. It must be there as long as they use it, as the memory must.
    pub exports: Mutex<Vec<IpcExport>>,
}

impl Allocation {
    pub fn new(place: Arc<Place>, buffer: Buffer, writable: bool) -> Self {
        Self { buffer, place, writable, shown: AtomicBool::new(false), exports: Mutex::default() }
    }

    /// Of memory that others have had before.
    pub fn shown(place: Arc<Place>, buffer: Buffer, writable: bool) -> Self {
        Self { shown: AtomicBool::new(true), ..Self::new(place, buffer, writable) }
    }

    fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// Others are about to be told of it: what they do on the legacy default stream comes after what was done here, and from
    /// now on what is done here after that, and the other way round.
    pub fn show(&self) -> Result<()> {
        self.shown.store(true, Ordering::Relaxed);
        self.buffer.mark_lent();
        self.place.before_strangers()
    }

    fn begin(&self) -> Result<&Stream> {
        let stream = &self.place.stream;
        if stream.is_capturing()? {
            return Err(Error::device(format!(
                "the session's stream on {} is under graph capture: end the capture before copying",
                self.place.device()
            )));
        }
        if self.is_shown() {
            self.place.after_strangers()?;
        }
        Ok(stream)
    }

    fn end(&self) -> Result<()> {
        self.buffer.mark_used(&self.place.stream)?;
        if self.is_shown() { self.place.before_strangers() } else { Ok(()) }
    }

    /// One copy on the place's stream, which may still be running.
    ///
    /// # Safety
    /// Both ranges are of their devices, and stay until it has run.
    unsafe fn copy(&self, to: (Device, u64), from: (Device, u64), bytes: usize) -> Result<()> {
        let stream = self.begin()?;
        let copy = abi::Copy {
            to: to.1 as *mut c_void,
            from: from.1 as *const c_void,
            bytes,
            to_device: to.0,
            from_device: from.0,
        };
        let memory = self.place.account.memory();
        // SAFETY: the account is alive, and its interface with it.
        let f = unsafe { (*memory).copy };
        let f = f.ok_or_else(|| Error::internal("the host's memory has no function to copy with"))?;
        // SAFETY: the interface's own function on itself, a stream of its backend, and ranges as this function's contract says.
        let enqueued = Error::check(|err| unsafe { f(memory, stream.raw(), &copy, 1, err) });
        enqueued.and_then(|()| self.end()).inspect_err(|_| self.settle_or_keep())
    }

    /// After a failure: no event tells when what was enqueued is over.
    fn settle_or_keep(&self) {
        if self.place.stream.synchronize().is_err() {
            std::mem::forget(self.buffer.clone());
        }
    }

    /// Its bytes from `offset` on, to the host. Blocks until they are there. `Err((_, true))`: something may still write
    /// to `to`, and nobody can tell for how long.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> std::result::Result<(), (Error, bool)> {
        let mut read = move || {
            let stream = self.begin()?;
            let mut copies = Copies::new();
            copies.push_to_host(to, &self.buffer, offset)?;
            copies.submit(stream)
        };
        read().map_err(|error| (error, self.place.stream.synchronize().is_err()))
    }

    /// Bytes of the host to `offset`. Blocks until they are there: they are the caller's to change then. `Err((_, true))`:
    /// something may still read `from`, and nobody can tell for how long.
    pub fn write(&self, offset: usize, from: &[u8]) -> std::result::Result<(), (Error, bool)> {
        let target = self.buffer.slice(offset, from.len()).map_err(|error| (error, false))?;
        let on = self.place.device();
        let source = (Device::CPU, from.as_ptr() as u64);
        // SAFETY: the target lies in the buffer; the source is there until it was waited for below, or for ever by the caller.
        let copied = unsafe { self.copy((on, target.address()), source, from.len()) };
        let waited = self.place.stream.synchronize();
        let in_use = waited.is_err();
        copied.and(waited).map_err(|error| (error, in_use))
    }

    /// Bytes of another buffer to `offset`. Blocks nobody.
    pub fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, bytes: usize) -> Result<()> {
        let target = self.buffer.slice(offset, bytes)?;
        let source = from.buffer.slice(from_offset, bytes)?;
        let apart = source.address() + bytes as u64 <= target.address()
            || target.address() + bytes as u64 <= source.address();
        if !apart {
            return Err(Error::invalid_argument(format!(
                "{bytes} bytes from {:#x} to {:#x} overlap: copy them by way of another buffer",
                source.address(),
                target.address()
            )));
        }
        let (ours, theirs) = (&self.place.stream, &from.place.stream);
        // Another session has another stream, and its memory goes back by that one's order.
        let apart = ours.raw() != theirs.raw();
        from.begin()?;
        if apart {
            follow(ours, theirs)?;
        }
        let (to, at) = ((self.place.device(), target.address()), (from.place.device(), source.address()));
        // SAFETY: both ranges lie in their buffers, whose owners are told of the use: ours by the copy, theirs below.
        unsafe { self.copy(to, at, bytes) }?;
        let ended = match apart {
            true => follow(theirs, ours).and_then(|()| from.end()),
            false => from.end(),
        };
        ended.inspect_err(|_| {
            if ours.synchronize().is_err() {
                std::mem::forget(from.buffer.clone());
            }
        })
    }
}

/// What follows on `stream` comes after what `other`, of another backend, has been given so far.
fn follow(stream: &Stream, other: &Stream) -> Result<()> {
    let ready = other.record()?;
    let owner = ForeignOwner::new(ready.clone());
    // SAFETY: the event is `ready`'s, which its owner holds.
    stream.wait(&unsafe { Ready::from_sync_event(ready.sync_event(), &owner) })
}
