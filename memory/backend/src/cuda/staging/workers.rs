//! The threads that copy to and from chunks.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crossdock_plugin_api::Result;

use super::Cuda;
use super::job::Job;
use super::ring::Ring;
use crate::cuda::driver::{CAPTURE_MODE_RELAXED, SUCCESS};

/// Six fill the link with bytes that are there; the others make up for pages that have to be made or found first. More
/// would take cores from those who make the bytes.
const MOST_THREADS: usize = 12;

/// Started with the first job, joined when dropped. Whoever calls works too, so one thread fewer is started than works.
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
    jobs: VecDeque<Arc<Job>>,
    ended: bool,
}

impl Workers {
    pub(super) fn new(cuda: Cuda, ring: Arc<Ring>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let shared = Shared { ring, state: Mutex::default(), changed: Condvar::new() };
        Self { cuda, width: cores.clamp(2, MOST_THREADS), shared: Arc::new(shared), threads: OnceLock::new() }
    }

    /// How many threads work on a job, its caller's included.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Offers `job` to the threads while `lead` runs, which returns when none of them is at it.
    pub(super) fn with(&self, job: &Arc<Job>, lead: impl FnOnce() -> Result<()>) -> Result<()> {
        self.threads.get_or_init(|| self.spawn());
        self.shared.lock().jobs.push_back(job.clone());
        self.shared.changed.notify_all();
        let result = lead();
        self.shared.lock().jobs.retain(|other| !Arc::ptr_eq(other, job));
        result
    }

    /// There is one more part to do.
    pub(super) fn wake(&self) {
        // Under the lock that the threads look for work under, so that none of them misses it.
        drop(self.shared.lock());
        self.shared.changed.notify_one();
    }

    #[cfg(test)]
    pub(super) fn are_started(&self) -> bool {
        self.threads.get().is_some()
    }

    fn spawn(&self) -> Vec<JoinHandle<()>> {
        // A thread that cannot be had is no failure: the caller does its work.
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
        let mut mode = CAPTURE_MODE_RELAXED;
        // SAFETY: a context that outlives the threads, and a pointer to a local. A capture elsewhere in the process must not
        // be broken by what this thread asks the driver.
        let code = unsafe {
            (cuda.driver.thread_exchange_capture_mode)(&mut mode);
            (cuda.driver.ctx_set_current)(cuda.context)
        };
        if code != SUCCESS {
            return;
        }
        let mut state = self.lock();
        while !state.ended {
            match state.next() {
                Some(job) => {
                    drop(state);
                    job.step(&self.ring);
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
    /// A job with something to do; each in turn, so that a large one does not keep the others waiting.
    fn next(&mut self) -> Option<Arc<Job>> {
        let found = self.jobs.iter().position(|job| job.has_work())?;
        self.jobs.rotate_left(found + 1);
        self.jobs.back().cloned()
    }
}
