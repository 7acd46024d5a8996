//! Moments on a stream.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Result, abi};

use crate::memory::call;
use crate::{ForeignOwner, Memory};

/// A moment on a stream of ours: what was enqueued before it has run once it has passed.
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    memory: Memory,
    raw: *mut abi::Event,
}

// SAFETY: the interface takes event handles on any thread, and destroys one once, in `Drop`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Event {
    pub(crate) fn new(memory: Memory, raw: *mut abi::Event) -> Self {
        Self(Arc::new(Inner { memory, raw }))
    }

    pub(crate) fn raw(&self) -> *mut abi::Event {
        self.0.raw
    }

    /// Whether it has passed.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        call!(self.0.memory, event_query, self.0.raw, &mut done)?;
        Ok(done != 0)
    }

    /// Blocks this thread until it has passed: only for values that must come to the host.
    pub fn synchronize(&self) -> Result<()> {
        call!(self.0.memory, event_synchronize, self.0.raw)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// What an `ArrowDeviceArray.sync_event` must point at, valid as long as the event.
    pub fn sync_event(&self) -> *mut c_void {
        let table = self.0.memory.table();
        // SAFETY: the table's own function on an event that it made.
        table.event_raw.map_or(std::ptr::null_mut(), |f| unsafe { f(self.0.memory.object(), self.0.raw) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let table = self.memory.table();
        if let Some(destroy) = table.event_destroy {
            // SAFETY: made by this table, destroyed once.
            unsafe { destroy(self.memory.object(), self.raw) };
        }
    }
}

/// When a buffer's bytes may be read.
#[derive(Clone, Default)]
pub enum Ready {
    /// They are there.
    #[default]
    Now,
    /// After this event of ours.
    After(Event),
    /// After a stranger's `sync_event`.
    AfterForeign(ForeignEvent),
}

/// A stranger's `sync_event`: a pointer to the event's handle, with the array that it lives as long as.
#[derive(Clone)]
pub struct ForeignEvent {
    event: *mut c_void,
    _array: ForeignOwner,
}

// SAFETY: only ever handed back to the interface, which may be called on any thread.
unsafe impl Send for ForeignEvent {}
// SAFETY: as above.
unsafe impl Sync for ForeignEvent {}

impl Ready {
    /// From an `ArrowDeviceArray.sync_event`.
    ///
    /// # Safety
    /// Null, or a pointer to an event of the array's device, valid until `array` is dropped.
    pub unsafe fn from_sync_event(event: *mut c_void, array: &ForeignOwner) -> Self {
        if event.is_null() {
            return Ready::Now;
        }
        Ready::AfterForeign(ForeignEvent { event, _array: array.clone() })
    }

    /// What to put into a `sync_event`; valid as long as `self` and the buffer that it came from.
    pub fn sync_event(&self) -> *mut c_void {
        match self {
            Ready::Now => std::ptr::null_mut(),
            Ready::After(event) => event.sync_event(),
            Ready::AfterForeign(event) => event.event,
        }
    }

    /// Whether both are the same moment, for sure.
    pub(crate) fn is_same(&self, other: &Ready) -> bool {
        match (self, other) {
            (Ready::Now, Ready::Now) => true,
            (Ready::After(a), Ready::After(b)) => Arc::ptr_eq(&a.0, &b.0),
            (Ready::AfterForeign(a), Ready::AfterForeign(b)) => a.event == b.event,
            _ => false,
        }
    }

    /// Whether it has passed, as far as can be asked: of a stranger's event it is never known.
    pub fn is_done(&self) -> Result<bool> {
        match self {
            Ready::Now => Ok(true),
            Ready::After(event) => event.is_done(),
            Ready::AfterForeign(_) => Ok(false),
        }
    }

    /// Whether nothing need be waited for.
    pub fn is_now(&self) -> bool {
        matches!(self, Ready::Now)
    }
}

impl ForeignEvent {
    pub(crate) fn raw(&self) -> *mut c_void {
        self.event
    }
}
