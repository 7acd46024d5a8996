//! Manages the chunks of a device, which are allocated when they are needed, and then kept.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::Result;

use super::Cuda;
use super::chunk::Chunk;
use crate::cuda::driver::{HOST_ALLOC_PORTABLE, RawStream};

/// All chunks of one size on one device.
pub(super) struct Ring {
    cuda: Cuda,
    chunk_bytes: usize,
    /// Number of chunks per allocation. Chunks are not allocated one by one, because each call that
    /// pins memory takes a fixed time in addition to a third of a millisecond per MiB.
    slab_chunks: usize,
    max_chunks: usize,
    /// Maximum number of chunks that one stream may use, so that a stream that makes no progress
    /// does not block other streams.
    max_per_stream: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// Chunks without an owner, oldest first. The device may still be using them.
    idle: VecDeque<Chunk>,
    /// Number of chunks that are allocated or being allocated.
    n_allocated: usize,
    slabs: Vec<Slab>,
}

impl State {
    fn is_pending_on(&self, stream: RawStream) -> usize {
        self.idle.iter().filter(|chunk| chunk.is_pending_on(stream)).count()
    }

    /// The index of a free chunk; of several known ones, the one that was used last, because the
    /// processor's caches may still contain it. Chunks become free roughly in the order in which
    /// they were used, so the search ends soon after the free chunks: each query is a call to the
    /// driver. Of the chunks that `stream` uses, only the first is queried, because the work of a
    /// stream completes in order.
    fn find_free(&mut self, stream: RawStream, cuda: &Cuda) -> Option<usize> {
        /// The number of busy chunks after which the search ends if it has found a free chunk.
        const MAX_BUSY: usize = 2;
        let (mut is_stream_busy, mut n_busy, mut free) = (false, 0, None);
        for (index, chunk) in self.idle.iter_mut().enumerate() {
            if chunk.is_pending_on(stream) && is_stream_busy {
                continue;
            }
            if chunk.is_free(cuda) {
                free = Some(index);
                continue;
            }
            is_stream_busy |= chunk.is_pending_on(stream);
            n_busy += 1;
            if free.is_some() && n_busy >= MAX_BUSY {
                break;
            }
        }
        free
    }

    /// Removes and returns the chunk to wait for. A chunk that `stream` itself uses is preferred,
    /// because its work must complete anyway.
    fn take_oldest(&mut self, stream: RawStream) -> Option<Chunk> {
        let index = self.idle.iter().position(|chunk| chunk.is_pending_on(stream));
        self.idle.remove(index.unwrap_or(0))
    }
}

struct Slab(*mut c_void);

// SAFETY: pinned memory is not bound to a thread.
unsafe impl Send for Slab {}

impl Ring {
    /// Creates an empty ring of at most `max_chunks` chunks, a multiple of `slab_chunks`.
    pub(super) fn new(cuda: Cuda, chunk_bytes: usize, slab_chunks: usize, max_chunks: usize) -> Self {
        Self {
            cuda,
            chunk_bytes,
            slab_chunks,
            max_chunks,
            max_per_stream: max_chunks / 4 * 3,
            state: Mutex::new(State::default()),
            returned: Condvar::new(),
        }
    }

    pub(super) fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Returns a free or new chunk for a copy on `stream`; `None` if all chunks, or too many for
    /// `stream`, are in use. The context must be current.
    pub(super) fn try_take(&self, stream: RawStream) -> Result<Option<Chunk>> {
        let mut state = self.lock();
        if state.is_pending_on(stream) >= self.max_per_stream {
            return Ok(None);
        }
        if let Some(free) = state.find_free(stream, &self.cuda) {
            return Ok(state.idle.remove(free));
        }
        if state.n_allocated >= self.max_chunks {
            return Ok(None);
        }
        state.n_allocated += self.slab_chunks;
        // The lock is released during the allocation, which takes milliseconds, so that other
        // threads can continue.
        drop(state);
        let slab = self.allocate();
        let mut state = self.lock();
        let chunk = match slab {
            Ok((slab, mut chunks)) => {
                let chunk = chunks.pop();
                state.idle.extend(chunks);
                state.slabs.push(slab);
                Ok(chunk)
            }
            Err(error) => {
                state.n_allocated -= self.slab_chunks;
                // If other chunks exist, the error is ignored, because with fewer chunks copies
                // only become slower.
                if state.n_allocated > 0 { Ok(None) } else { Err(error) }
            }
        };
        self.returned.notify_all();
        chunk
    }

    /// Returns a chunk for a copy on `stream`. Blocks until a chunk is free. The caller must not
    /// own another chunk, because a blocked caller cannot return its chunk.
    pub(super) fn take(&self, stream: RawStream) -> Result<Chunk> {
        loop {
            if let Some(chunk) = self.try_take(stream)? {
                return Ok(chunk);
            }
            let mut state = self.lock();
            if let Some(mut oldest) = state.take_oldest(stream) {
                drop(state);
                return match oldest.wait(&self.cuda) {
                    Ok(()) => Ok(oldest),
                    Err(error) => {
                        self.put(oldest);
                        Err(error)
                    }
                };
            }
            if state.n_allocated > 0 {
                state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
        }
    }

    /// Puts a chunk back into the ring. The device may still be using it.
    pub(super) fn put(&self, chunk: Chunk) {
        self.lock().idle.push_back(chunk);
        self.returned.notify_one();
    }

    fn allocate(&self) -> Result<(Slab, Vec<Chunk>)> {
        let mut start = std::ptr::null_mut();
        let bytes = self.chunk_bytes * self.slab_chunks;
        let relaxed = self.cuda.driver.relaxed();
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (self.cuda.driver.mem_host_alloc)(&mut start, bytes, HOST_ALLOC_PORTABLE) };
        drop(relaxed);
        self.cuda.driver.check("cuMemHostAlloc", code).map_err(|e| {
            e.context(format_args!(
                "cannot allocate {bytes} bytes of pinned memory for copies from and to memory that is not pinned"
            ))
        })?;
        let slab = Slab(start);
        let mut chunks = Vec::with_capacity(self.slab_chunks);
        for i in 0..self.slab_chunks {
            match Chunk::new(&self.cuda, start.cast::<u8>().wrapping_add(i * self.chunk_bytes)) {
                Ok(chunk) => chunks.push(chunk),
                Err(error) => {
                    self.free(slab, chunks);
                    return Err(error);
                }
            }
        }
        Ok((slab, chunks))
    }

    fn free(&self, slab: Slab, chunks: impl IntoIterator<Item = Chunk>) {
        chunks.into_iter().for_each(|chunk| chunk.destroy(&self.cuda));
        let _relaxed = self.cuda.driver.relaxed();
        // SAFETY: `allocate` allocated the slab, and no chunk of it is in use.
        unsafe { (self.cuda.driver.mem_free_host)(slab.0) };
    }

    /// The number of all chunks, and the number of chunks without an owner.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.n_allocated, state.idle.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let cuda = self.cuda;
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        if state.slabs.is_empty() {
            return;
        }
        let mut previous = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable, and the context outlives the ring.
        unsafe {
            (cuda.driver.ctx_get_current)(&mut previous);
            (cuda.driver.ctx_set_current)(cuda.context);
        }
        for mut chunk in state.idle {
            // An error means that the device has stopped, so that it no longer uses the chunk.
            let _ = chunk.wait(&cuda);
            chunk.destroy(&cuda);
        }
        state.slabs.into_iter().for_each(|slab| self.free(slab, None));
        // SAFETY: `previous` was the current context of this thread; NULL means no context.
        unsafe { (cuda.driver.ctx_set_current)(previous) };
    }
}
