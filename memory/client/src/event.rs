//! Events of streams.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_plugin_api::{Result, abi};

use crate::memory::call;
use crate::{ForeignOwner, Memory};

/// A point on a stream of the host. Once the event has passed, all work that was enqueued on the
/// stream before the event has run.
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    memory: Memory,
    raw: *mut abi::Event,
    /// The stream and the thread that recorded the event.
    origin: (u64, u64),
}

// SAFETY: the interface accepts event handles on any thread, and `Drop` destroys the event once.
unsafe impl Send for Inner {}
// SAFETY: the interface accepts an event handle on several threads at the same time.
unsafe impl Sync for Inner {}

impl Event {
    /// `stream_id` is the id of the stream on which this thread has just recorded the event.
    pub(crate) fn new(memory: Memory, raw: *mut abi::Event, stream_id: u64) -> Self {
        Self(Arc::new(Inner { memory, raw, origin: (stream_id, thread_number()) }))
    }

    /// Whether this thread recorded the event on the stream with this id. On another thread, the
    /// same handle can be another stream, because the driver has a stream for each thread.
    pub(crate) fn is_of_stream(&self, id: u64) -> bool {
        self.0.origin == (id, thread_number())
    }

    /// Whether this event passes only after `other` has passed, if `other` was recorded before. One
    /// thread recorded both events on the same stream.
    pub(crate) fn includes(&self, other: &Event) -> bool {
        self.0.origin == other.0.origin
    }

    pub(crate) fn raw(&self) -> *mut abi::Event {
        self.0.raw
    }

    /// Whether the event has passed.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        call!(self.0.memory, event_query, self.0.raw, &mut done)?;
        Ok(done != 0)
    }

    /// Blocks this thread until the event has passed. Use it only for values that the host needs.
    pub fn synchronize(&self) -> Result<()> {
        call!(self.0.memory, event_synchronize, self.0.raw)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Returns the pointer for `ArrowDeviceArray.sync_event`. It is valid as long as the event
    /// exists.
    pub fn sync_event(&self) -> *mut c_void {
        let table = self.0.memory.table();
        // SAFETY: `event_raw` requires an event of its own table, and this table created the event.
        table.event_raw.map_or(std::ptr::null_mut(), |f| unsafe { f(self.0.memory.object(), self.0.raw) })
    }
}

/// A number that no other thread has.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let new = || NEXT.fetch_add(1, Ordering::Relaxed);
    thread_local! { static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed) }
    // A thread that ends has no number any more, and gets a new one for each call.
    NUMBER.try_with(|number| *number).unwrap_or_else(|_| new())
}

impl Drop for Inner {
    fn drop(&mut self) {
        let table = self.memory.table();
        if let Some(destroy) = table.event_destroy {
            // SAFETY: this table created the event, and `Drop` runs once.
            unsafe { destroy(self.memory.object(), self.raw) };
        }
    }
}

/// When a buffer's bytes may be read.
#[derive(Clone, Default)]
pub enum Ready {
    /// The bytes may be read at once.
    #[default]
    Now,
    /// The bytes may be read once an event of the host has passed.
    After(Event),
    /// The bytes may be read once an external `sync_event` has passed.
    AfterForeign(ForeignEvent),
}

/// An external `sync_event`: a pointer to the handle of the event, and the owner of the array. The
/// event is valid as long as the owner exists.
#[derive(Clone)]
pub struct ForeignEvent {
    event: *mut c_void,
    _array: ForeignOwner,
}

// SAFETY: the pointer is only passed to the interface, which may be called on any thread.
unsafe impl Send for ForeignEvent {}
// SAFETY: the pointer is only passed to the interface, which may be called on any thread.
unsafe impl Sync for ForeignEvent {}

impl Ready {
    /// Converts an `ArrowDeviceArray.sync_event`.
    ///
    /// # Safety
    /// `event` is NULL or points to the handle of an event of the array's device. The handle and
    /// the event stay valid until `array` releases the memory.
    pub unsafe fn from_sync_event(event: *mut c_void, array: &ForeignOwner) -> Self {
        if event.is_null() {
            return Ready::Now;
        }
        Ready::AfterForeign(ForeignEvent { event, _array: array.clone() })
    }

    /// Returns the pointer for a `sync_event`. It is valid as long as `self` and the buffer of
    /// `self` exist.
    pub fn sync_event(&self) -> *mut c_void {
        match self {
            Ready::Now => std::ptr::null_mut(),
            Ready::After(event) => event.sync_event(),
            Ready::AfterForeign(event) => event.event,
        }
    }

    /// Whether `self` and `other` are known to refer to the same event.
    pub fn is_same(&self, other: &Ready) -> bool {
        match (self, other) {
            (Ready::Now, Ready::Now) => true,
            (Ready::After(a), Ready::After(b)) => Arc::ptr_eq(&a.0, &b.0),
            (Ready::AfterForeign(a), Ready::AfterForeign(b)) => a.event == b.event,
            _ => false,
        }
    }

    /// Whether the event is known to have passed. `false` for external events, which cannot be
    /// queried.
    pub fn is_done(&self) -> Result<bool> {
        match self {
            Ready::Now => Ok(true),
            Ready::After(event) => event.is_done(),
            Ready::AfterForeign(_) => Ok(false),
        }
    }

    /// Whether there is no event to wait for.
    pub fn is_now(&self) -> bool {
        matches!(self, Ready::Now)
    }
}

impl ForeignEvent {
    pub(crate) fn raw(&self) -> *mut c_void {
        self.event
    }
}
