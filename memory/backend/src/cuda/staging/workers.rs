//! Runs the threads that copy to and from chunks.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crossdock_plugin_api::Result;

use super::Cuda;
use super::job::Job;
use super::ring::Ring;
use crate::cuda::driver::SUCCESS;
use crate::cuda::note_own_thread;

/// Maximum number of threads that work on a job. Six threads saturate the link if no page faults
/// occur. Page faults slow down the threads, so six more threads are used. More threads would take
/// cores from the threads that produce the bytes.
const MAX_THREADS: usize = 12;

/// Threads that are started with the first job and joined when `Workers` is dropped. The caller
/// also works on its job, so `width - 1` threads are started.
pub(super) struct Workers {
    cuda: Cuda,
    width: usize,
    shared: Arc<Shared>,
    threads: OnceLock<Vec<JoinHandle<()>>>,
}

struct Shared {
    ring: Arc<Ring>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Arc<Job<'static>>>,
    ended: bool,
}

impl Workers {
    pub(super) fn new(cuda: Cuda, ring: Arc<Ring>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let shared = Shared { ring, state: Mutex::default(), changed: Condvar::new() };
        Self { cuda, width: cores.clamp(2, MAX_THREADS), shared: Arc::new(shared), threads: OnceLock::new() }
    }

    /// Number of threads that work on a job, including its caller's.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Offers `job` to the threads while `lead` runs. `lead` must return only when no thread is
    /// working on the job any more.
    pub(super) fn with(&self, job: &Arc<Job<'static>>, lead: impl FnOnce() -> Result<()>) -> Result<()> {
        self.threads.get_or_init(|| self.spawn());
        self.shared.lock().jobs.push_back(job.clone());
        self.shared.changed.notify_all();
        let result = lead();
        self.shared.lock().jobs.retain(|other| !Arc::ptr_eq(other, job));
        result
    }

    /// Wakes a thread for one more part.
    pub(super) fn wake(&self) {
        // Takes the lock before the notification, because the threads hold the lock while they look
        // for work. So no thread misses the notification.
        drop(self.shared.lock());
        self.shared.changed.notify_one();
    }

    #[cfg(test)]
    pub(super) fn are_started(&self) -> bool {
        self.threads.get().is_some()
    }

    fn spawn(&self) -> Vec<JoinHandle<()>> {
        // If a thread cannot be started, the caller and the other threads do its work.
        (1..self.width)
            .filter_map(|_| {
                let (cuda, shared) = (self.cuda, self.shared.clone());
                let builder = std::thread::Builder::new().name("crossdock-copy".into());
                builder.spawn(move || shared.work(cuda)).ok()
            })
            .collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        for thread in self.threads.take().into_iter().flatten() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn work(&self, cuda: Cuda) {
        note_own_thread();
        // The relaxed mode keeps this thread's calls from breaking graph captures of other threads.
        drop(cuda.driver.relaxed());
        // SAFETY: the context outlives the threads.
        if unsafe { (cuda.driver.ctx_set_current)(cuda.context) } != SUCCESS {
            return;
        }
        let mut state = self.lock();
        while !state.ended {
            match state.next() {
                Some(job) => {
                    drop(state);
                    job.run_part(&self.ring);
                    drop(job);
                    state = self.lock();
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next job that has work, in rotation, so that a large job does not delay the others.
    fn next(&mut self) -> Option<Arc<Job<'static>>> {
        let index = self.jobs.iter().position(|job| job.has_work())?;
        self.jobs.rotate_left(index + 1);
        self.jobs.back().cloned()
    }
}
