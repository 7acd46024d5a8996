//! Chunks of pinned memory, allocated as they are needed and kept.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::Result;

use super::Cuda;
use super::chunk::Chunk;
use crate::cuda::driver::{HOST_ALLOC_PORTABLE, RawStream};

/// All chunks of one size.
pub(super) struct Ring {
    cuda: Cuda,
    chunk_bytes: usize,
    /// How many are allocated at once: pinning takes a third of a millisecond a MiB, and more for each call.
    slab_chunks: usize,
    most: usize,
    /// What one stream's work may keep, so that others go on while it does not.
    most_on_a_stream: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// Nobody's; those at the front came back first. The device may still be using them.
    idle: VecDeque<Chunk>,
    /// Allocated, or about to be.
    made: usize,
    slabs: Vec<Slab>,
}

impl State {
    fn is_pending_on(&self, stream: RawStream) -> usize {
        self.idle.iter().filter(|chunk| chunk.is_pending_on(stream)).count()
    }

    /// One that nobody uses. A stream's own work ends in order, so of its chunks only the first one is worth a question.
    fn find_free(&mut self, stream: RawStream, cuda: &Cuda) -> Option<usize> {
        let mut asked = false;
        self.idle.iter_mut().position(|chunk| {
            let skip = chunk.is_pending_on(stream) && std::mem::replace(&mut asked, true);
            !skip && chunk.is_free(cuda)
        })
    }

    /// The one to wait for: behind the stream's own work if there is any, which has to run anyway.
    fn take_oldest(&mut self, stream: RawStream) -> Option<Chunk> {
        let own = self.idle.iter().position(|chunk| chunk.is_pending_on(stream));
        self.idle.remove(own.unwrap_or(0))
    }
}

struct Slab(*mut c_void);

// SAFETY: pinned memory, which does not care for the thread.
unsafe impl Send for Slab {}

impl Ring {
    /// No chunk yet, and never more than `most`, which is a multiple of `slab_chunks`.
    pub(super) fn new(cuda: Cuda, chunk_bytes: usize, slab_chunks: usize, most: usize) -> Self {
        Self {
            cuda,
            chunk_bytes,
            slab_chunks,
            most,
            most_on_a_stream: most / 4 * 3,
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

    /// A chunk for a copy on `stream` that is free, or a new one. `None` where all are in use. The context is current.
    pub(super) fn try_take(&self, stream: RawStream) -> Result<Option<Chunk>> {
        let mut state = self.lock();
        if state.is_pending_on(stream) >= self.most_on_a_stream {
            return Ok(None);
        }
        if let Some(free) = state.find_free(stream, &self.cuda) {
            return Ok(state.idle.remove(free));
        }
        if state.made >= self.most {
            return Ok(None);
        }
        state.made += self.slab_chunks;
        // Pinning takes milliseconds, in which others can go on.
        drop(state);
        let slab = self.allocate();
        let mut state = self.lock();
        let taken = match slab {
            Ok((slab, mut chunks)) => {
                let taken = chunks.pop();
                state.idle.extend(chunks);
                state.slabs.push(slab);
                Ok(taken)
            }
            Err(error) => {
                state.made -= self.slab_chunks;
                // With fewer it goes more slowly.
                if state.made > 0 { Ok(None) } else { Err(error) }
            }
        };
        self.returned.notify_all();
        taken
    }

    /// A chunk for a copy on `stream`, as soon as there is one. Blocks, so whoever calls holds no chunk that nobody but
    /// itself gives back.
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
            if state.made > 0 {
                state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
        }
    }

    /// Takes one back, whether or not the device is done with it.
    pub(super) fn put(&self, chunk: Chunk) {
        self.lock().idle.push_back(chunk);
        self.returned.notify_one();
    }

    fn allocate(&self) -> Result<(Slab, Vec<Chunk>)> {
        let mut start = std::ptr::null_mut();
        let bytes = self.chunk_bytes * self.slab_chunks;
        let relaxed = self.cuda.driver.relaxed();
        // SAFETY: a pointer to a local; the context is current.
        let code = unsafe { (self.cuda.driver.mem_host_alloc)(&mut start, bytes, HOST_ALLOC_PORTABLE) };
        drop(relaxed);
        self.cuda.driver.check("cuMemHostAlloc", code).map_err(|e| {
            e.context(format_args!("{bytes} bytes of pinned memory for copies to and from ordinary memory"))
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
        // SAFETY: `allocate` got it, and nothing lies in it any more.
        unsafe { (self.cuda.driver.mem_free_host)(slab.0) };
    }

    /// How many are allocated, and how many of them are nobody's.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.made, state.idle.len())
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
        let mut before = std::ptr::null_mut();
        // SAFETY: a pointer to a local, and a context that outlives this.
        unsafe {
            (cuda.driver.ctx_get_current)(&mut before);
            (cuda.driver.ctx_set_current)(cuda.context);
        }
        for mut chunk in state.idle {
            // An error says that the device has stopped, so it uses nothing any more.
            let _ = chunk.wait(&cuda);
            chunk.destroy(&cuda);
        }
        state.slabs.into_iter().for_each(|slab| self.free(slab, None));
        // SAFETY: it was current on this thread; null is no context.
        unsafe { (cuda.driver.ctx_set_current)(before) };
    }
}
