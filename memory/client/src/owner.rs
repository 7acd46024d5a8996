//! What keeps a range alive, and when it may be given back.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::abi;

use crate::{Event, Memory};

/// The end of a block or of a stranger's array, shared by every buffer that lies in it.
pub(crate) struct Owner {
    kind: Kind,
    /// Events after our uses of it, on devices where work is not done at once.
    uses: Mutex<Vec<Event>>,
    lent: AtomicBool,
}

enum Kind {
    /// Ours: goes back to the host in stream order.
    Block { memory: Memory, block: *mut abi::Block },
    /// A stranger's: dropped, which calls its release.
    Foreign(Option<Box<dyn Any + Send + Sync>>),
}

// SAFETY: a block handle is used by one `free` only, which any thread may call.
unsafe impl Send for Owner {}
// SAFETY: as above; the rest is behind a lock or atomic.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn block(memory: Memory, block: *mut abi::Block) -> Arc<Self> {
        Self::new(Kind::Block { memory, block })
    }

    pub(crate) fn foreign(owner: Box<dyn Any + Send + Sync>) -> Arc<Self> {
        Self::new(Kind::Foreign(Some(owner)))
    }

    fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, uses: Mutex::default(), lent: AtomicBool::new(false) })
    }

    /// Work that was enqueued before `event` uses the range.
    pub(crate) fn note_use(&self, event: &Event) {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }

    /// Strangers have seen the range: its block goes back only after everything in flight on the device.
    pub(crate) fn note_lent(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let uses = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner));
        match &mut self.kind {
            Kind::Block { memory, block } => {
                let raw: Vec<*mut abi::Event> = uses.iter().map(Event::raw).collect();
                let flags = if *self.lent.get_mut() { abi::FREE_LENT } else { 0 };
                if let Some(free) = memory.table().free {
                    // SAFETY: the block was allocated by this memory and is freed here once; the events live in `uses`.
                    unsafe { free(memory.object(), *block, raw.as_ptr(), raw.len(), flags) };
                }
            }
            Kind::Foreign(owner) => {
                // Its release must come after our last use. A failed wait leaves no safe moment to release it, so a
                // stranger's array is then leaked rather than freed under a running kernel.
                if uses.iter().all(|event| event.synchronize().is_ok()) {
                    drop(owner.take());
                } else {
                    std::mem::forget(owner.take());
                }
            }
        }
    }
}
