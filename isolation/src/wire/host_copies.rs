//! Copies within host memory with several threads.

use std::ptr::NonNull;

/// The maximum number of threads.
const MAX_THREADS: usize = 8;
/// The minimum number of bytes that a thread copies. Copying fewer bytes takes less time than
/// starting a thread.
const MIN_THREAD_BYTES: usize = 1 << 20;

/// A copy to `offset..offset + bytes` of a target.
#[derive(Clone, Copy)]
pub struct HostCopy {
    /// The address of the source.
    pub from: usize,
    pub offset: usize,
    pub bytes: usize,
}

/// Makes `copies` to the `bytes` bytes at `target`. Ranges beyond these bytes are ignored.
///
/// # Safety
/// The sources are readable, and the `bytes` bytes at `target` are writable. Nothing else in this
/// process accesses them meanwhile, and no source overlaps a target.
pub unsafe fn copy_in_threads(target: NonNull<u8>, bytes: usize, copies: &[HostCopy]) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let part = bytes.div_ceil(threads).max(MIN_THREAD_BYTES);
    let target = target.as_ptr().expose_provenance();
    let copy = |from: usize, to: usize| {
        for copy in copies {
            let end = copy.offset.saturating_add(copy.bytes).min(bytes);
            let (begin, end) = (from.max(copy.offset), to.min(end));
            if begin >= end {
                continue;
            }
            let source = std::ptr::with_exposed_provenance::<u8>(copy.from + (begin - copy.offset));
            let to = std::ptr::with_exposed_provenance_mut::<u8>(target + begin);
            // SAFETY: the range is within the source and the target, which are accessible by this
            // function's contract. The threads write different ranges.
            unsafe { std::ptr::copy_nonoverlapping(source, to, end - begin) };
        }
    };
    std::thread::scope(|scope| {
        for from in (part..bytes).step_by(part) {
            let work = move || copy(from, from.saturating_add(part));
            // Without another thread, this one copies.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                copy(from, from.saturating_add(part));
            }
        }
        copy(0, part);
    });
}
