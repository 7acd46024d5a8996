//! Sources that are read at offsets, and their reads into host memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crossdock_plugin_api::Result;

use crate::tasks::InstanceTasks;

/// A range of a source, and the resolved address that receives its bytes.
#[derive(Clone, Copy)]
pub(crate) struct LoadPiece {
    pub offset: u64,
    pub to: *mut u8,
    pub bytes: usize,
}

/// A source that is read at offsets.
pub(crate) trait ReadAt: Sync {
    /// Fills `to` with the bytes that begin at `offset`. Ends with an error if the load is
    /// cancelled.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()>;

    /// Whether the source must be read in order, by one thread.
    fn is_sequential(&self) -> bool;
}

/// Size in bytes of the parts that one thread reads at a time.
const PART_BYTES: usize = 8 << 20;

/// A part of a range, which one thread reads.
struct Part(LoadPiece);

// SAFETY: each part is read by one thread, and the parts do not overlap.
unsafe impl Sync for Part {}

/// Reads ranges of a source into host memory, on several threads if the source permits it.
///
/// # Safety
/// The targets are writable host memory that nothing else uses during the call.
pub(crate) unsafe fn read_on_threads(
    source: &dyn ReadAt,
    pieces: &[LoadPiece],
    tasks: &InstanceTasks,
) -> Result<()> {
    let parts = |piece: &LoadPiece| {
        let LoadPiece { offset, to, bytes } = *piece;
        (0..bytes).step_by(PART_BYTES).map(move |at| {
            let bytes = PART_BYTES.min(bytes - at);
            Part(LoadPiece { offset: offset + at as u64, to: to.wrapping_add(at), bytes })
        })
    };
    let parts: Vec<_> = pieces.iter().flat_map(parts).collect();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let failure = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let read_part = || {
        let Some(Part(part)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) else { return false };
        // SAFETY: the part is in a range that is writable by this function's contract, and only
        // this thread uses it.
        let to = unsafe { std::slice::from_raw_parts_mut(part.to, part.bytes) };
        if let Err(error) = source.read(part.offset, to) {
            next.store(parts.len(), Ordering::Relaxed);
            failure().get_or_insert(error);
        }
        true
    };
    let n_tasks = if source.is_sequential() { 1 } else { parts.len() };
    tasks.share(n_tasks, &read_part)?;
    let result = failure().take();
    result.map_or(Ok(()), Err)
}
