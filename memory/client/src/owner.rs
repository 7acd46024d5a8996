//! Owners of memory, which keep the memory alive and release it after its last use.

use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::abi;

use crate::{Event, Memory};

/// The owner of a block or of a foreign array, shared by all buffers in it.
pub(crate) struct Owner {
    kind: Kind,
    /// Events after the work that uses the memory. Host devices need none, because their work is
    /// complete when the call that enqueues it returns.
    uses: Mutex<Uses>,
    /// Whether the memory was exported to another library.
    exported: AtomicBool,
    /// Whether some work that uses the memory has no event and could not be waited for.
    unknown_use: AtomicBool,
    /// Whether the memory must not be written any more.
    frozen: AtomicBool,
}

#[derive(Default)]
struct Uses {
    events: Vec<Event>,
    /// Length of `events` at which passed events are removed, so that the list of a long-lived
    /// buffer stays short.
    sweep_at: usize,
}

enum Kind {
    /// A block of the host, freed in stream order.
    Block { memory: Memory, block: *mut abi::Block },
    /// Foreign memory, released by dropping the owner.
    Foreign(Option<Box<dyn Any + Send + Sync>>),
    /// Foreign memory that was received across the plugin boundary. Its producer relies on this
    /// side to track whether other libraries use it.
    Peer(Option<Box<dyn Any + Send + Sync>>, Memory),
}

// SAFETY: `drop` passes the block handle to `free` once, and any thread may call `free`.
unsafe impl Send for Owner {}
// SAFETY: the block handle is used by `drop` only; all other state is atomic or behind a lock.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn block(memory: Memory, block: *mut abi::Block) -> Arc<Self> {
        Self::new(Kind::Block { memory, block })
    }

    pub(crate) fn foreign(owner: Box<dyn Any + Send + Sync>) -> Arc<Self> {
        Self::new(Kind::Foreign(Some(owner)))
    }

    pub(crate) fn peer(owner: Box<dyn Any + Send + Sync>, memory: Memory) -> Arc<Self> {
        Self::new(Kind::Peer(Some(owner), memory))
    }

    fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            uses: Mutex::default(),
            exported: AtomicBool::new(false),
            unknown_use: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
        })
    }

    /// Notes that work enqueued before `event` uses the memory. This thread has recorded `event`
    /// after the events that it noted before.
    pub(crate) fn note_use(&self, event: &Event) {
        const MIN_SWEEP: usize = 8;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = uses.events.iter_mut().find(|earlier| event.includes(earlier)) {
            *earlier = event.clone();
            return;
        }
        if uses.events.len() >= uses.sweep_at.max(MIN_SWEEP) {
            uses.events.retain(|event| !matches!(event.is_done(), Ok(true)));
            uses.sweep_at = uses.events.len() * 2;
        }
        uses.events.push(event.clone());
    }

    /// The event after all uses of the memory, if this thread has submitted all of them to the
    /// stream with this id.
    pub(crate) fn only_use_on(&self, stream_id: u64) -> Option<Event> {
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        match uses.events.as_slice() {
            [event] if event.is_of_stream(stream_id) => Some(event.clone()),
            _ => None,
        }
    }

    /// Notes that work without an event uses the memory, so that the end of this use is unknown. A
    /// block is then freed like an exported block; foreign memory is never released.
    pub(crate) fn note_unknown_use(&self) {
        self.unknown_use.store(true, Ordering::Relaxed);
        self.note_exported();
    }

    pub(crate) fn note_frozen(&self) {
        self.frozen.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Notes that the memory was exported to another library. It is then freed only once all work
    /// in flight on the device has run.
    pub(crate) fn note_exported(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let uses = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner)).events;
        match &mut self.kind {
            Kind::Block { memory, block } => {
                let raw: Vec<*mut abi::Event> = uses.iter().map(Event::raw).collect();
                let flags = if *self.exported.get_mut() { abi::FREE_EXPORTED } else { 0 };
                if let Some(free) = memory.table().free {
                    // SAFETY: `memory` allocated the block, and this is its only `free`; the events
                    // are alive in `uses`.
                    unsafe { free(memory.object(), *block, raw.as_ptr(), raw.len(), flags) };
                }
            }
            Kind::Foreign(owner) | Kind::Peer(owner, _) if *self.unknown_use.get_mut() => {
                std::mem::forget(owner.take());
            }
            Kind::Peer(owner, memory) if *self.exported.get_mut() => {
                // On hosts without `call_after_all`, plugins wait for the work of other libraries
                // themselves, so that `call_after` is sufficient.
                let table = memory.table();
                release_after(owner.take(), &uses, memory, table.call_after_all.or(table.call_after));
            }
            Kind::Foreign(owner) | Kind::Peer(owner, _) => {
                let Some(memory) = uses.first().map(Event::memory) else { return };
                release_after(owner.take(), &uses, memory, memory.table().call_after);
            }
        }
    }
}

type CallAfter =
    unsafe extern "C" fn(*const abi::Memory, *const *mut abi::Event, usize, abi::Callback, *mut c_void);

/// Releases foreign memory after its last use. If that use is still in flight, a thread of the host
/// releases the memory later, so that this thread does not wait.
fn release_after(
    owner: Option<Box<dyn Any + Send + Sync>>,
    uses: &[Event],
    memory: &Memory,
    call_after: Option<CallAfter>,
) {
    let Some(owner) = owner else { return };
    let Some(call_after) = call_after else {
        // Without `call_after` there is no safe moment to release the memory. Leaking it is better
        // than freeing memory that a kernel uses.
        return std::mem::forget(owner);
    };
    let raw: Vec<*mut abi::Event> = uses.iter().map(Event::raw).collect();
    let data = Box::into_raw(Box::new(owner)).cast();
    // SAFETY: `call_after` is called with the object of its own table, and with events that this
    // table created. `data` is the argument that `release` expects, and is used once.
    unsafe { call_after(memory.object(), raw.as_ptr(), raw.len(), abi::Callback(Some(release)), data) };
}

/// # Safety
/// `data` is the pointer that `release_after` created, and is passed only once.
unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: by this function's contract `data` is the `Box` of `release_after`.
    let owner = unsafe { Box::from_raw(data.cast::<Box<dyn Any + Send + Sync>>()) };
    // A panic in the release must not unwind into the host.
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owner))) {
        std::mem::forget(payload);
    }
}
