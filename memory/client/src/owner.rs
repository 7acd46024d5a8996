//! What keeps a range alive, and when it may be given back.

use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::abi;

use crate::{Event, Memory};

/// The end of a block or of a stranger's array, shared by every buffer that lies in it.
pub(crate) struct Owner {
    kind: Kind,
    /// Events after our uses of it, on devices where work is not done at once.
    uses: Mutex<Uses>,
    lent: AtomicBool,
    /// Some use of it has no event, and could not be waited for.
    unknown_use: AtomicBool,
    /// Nobody may write it any more.
    frozen: AtomicBool,
}

#[derive(Default)]
struct Uses {
    events: Vec<Event>,
    /// At how many events those that have passed are dropped: a buffer that lives long is used often.
    sweep_at: usize,
}

enum Kind {
    /// Ours: goes back to the host in stream order.
    Block { memory: Memory, block: *mut abi::Block },
    /// A stranger's: dropped, which calls its release.
    Foreign(Option<Box<dyn Any + Send + Sync>>),
    /// The other side's of the plugin boundary: the same, but its maker relies on us for what other libraries do with it.
    Peer(Option<Box<dyn Any + Send + Sync>>, Memory),
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

    pub(crate) fn peer(owner: Box<dyn Any + Send + Sync>, memory: Memory) -> Arc<Self> {
        Self::new(Kind::Peer(Some(owner), memory))
    }

    fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            uses: Mutex::default(),
            lent: AtomicBool::new(false),
            unknown_use: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
        })
    }

    /// Work that was enqueued before `event` uses the range.
    pub(crate) fn note_use(&self, event: &Event) {
        const FEW: usize = 8;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.events.len() >= uses.sweep_at.max(FEW) {
            uses.events.retain(|event| !matches!(event.is_done(), Ok(true)));
            uses.sweep_at = uses.events.len() * 2;
        }
        uses.events.push(event.clone());
    }

    /// Nobody can tell when a use of it is over: a block of ours goes back as a lent one does, a stranger's array never.
    pub(crate) fn note_unknown_use(&self) {
        self.unknown_use.store(true, Ordering::Relaxed);
        self.note_lent();
    }

    pub(crate) fn note_frozen(&self) {
        self.frozen.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Another library has seen the range: it goes back only after everything in flight on the device.
    pub(crate) fn note_lent(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let uses = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner)).events;
        match &mut self.kind {
            Kind::Block { memory, block } => {
                let raw: Vec<*mut abi::Event> = uses.iter().map(Event::raw).collect();
                let flags = if *self.lent.get_mut() { abi::FREE_LENT } else { 0 };
                if let Some(free) = memory.table().free {
                    // SAFETY: the block was allocated by this memory and is freed here once; the events live in `uses`.
                    unsafe { free(memory.object(), *block, raw.as_ptr(), raw.len(), flags) };
                }
            }
            Kind::Foreign(owner) | Kind::Peer(owner, _) if *self.unknown_use.get_mut() => {
                std::mem::forget(owner.take());
            }
            Kind::Peer(owner, memory) if *self.lent.get_mut() => {
                // A host without the function is of a release whose plugins wait for other libraries' work themselves.
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

/// Drops another maker's array after our last use of it: where work is still in flight, on the host's thread, so that nobody
/// waits here.
fn release_after(
    owner: Option<Box<dyn Any + Send + Sync>>,
    uses: &[Event],
    memory: &Memory,
    call_after: Option<CallAfter>,
) {
    let Some(owner) = owner else { return };
    let Some(call_after) = call_after else {
        // Without it there is no safe moment to release the array: it is leaked rather than freed under a kernel.
        return std::mem::forget(owner);
    };
    let raw: Vec<*mut abi::Event> = uses.iter().map(Event::raw).collect();
    let data = Box::into_raw(Box::new(owner)).cast();
    // SAFETY: the table's own function on events that it made; `data` is what `release` expects, and is used once.
    unsafe { call_after(memory.object(), raw.as_ptr(), raw.len(), abi::Callback(Some(release)), data) };
}

/// # Safety
/// `data` is what `release_after` made, once.
unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: by this function's own contract.
    let owner = unsafe { Box::from_raw(data.cast::<Box<dyn Any + Send + Sync>>()) };
    // A stranger's release must not unwind into the host.
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owner))) {
        std::mem::forget(payload);
    }
}
