//! Runs jobs on a separate thread, once a device has completed the work that they depend on.

mod queue;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::at_exit::{self, Flush};
use super::context::{Gpu, note_own_thread};
use super::driver::SUCCESS;
use super::event::CudaEvent;
use queue::{Queue, Status, Work};

/// Runs jobs once their events have passed, without blocking the threads that add the jobs. The
/// reaper's thread is started with the first job. It holds no lock while it runs a job, and ends
/// when the reaper has been dropped and all jobs are done.
#[derive(Default)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    is_running: Mutex<bool>,
}

#[derive(Default)]
pub(super) struct Shared {
    jobs: Queue<Job>,
    thread: OnceLock<libc::pthread_t>,
}

/// A function, and the work that must complete before it runs.
pub(crate) struct Job {
    /// Events that must have passed.
    pub events: Vec<Arc<CudaEvent>>,
    /// Devices on which all work in flight must have run, including work of other libraries.
    pub everything_on: Vec<Arc<Gpu>>,
    pub then: Box<dyn FnOnce() + Send>,
}

impl Reaper {
    pub(crate) fn add(&self, job: Job) {
        let mut is_running = self.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shared.jobs.add(job) || *is_running {
            return;
        }
        let shared = self.shared.clone();
        let builder = std::thread::Builder::new().name("crossdock-reaper".into());
        match builder.spawn(move || shared.run()) {
            Ok(_) => {
                *is_running = true;
                let shared: Arc<dyn Flush> = self.shared.clone();
                at_exit::register(Arc::downgrade(&shared));
            }
            // If the thread cannot be started, this thread runs the jobs, and blocks until they are
            // done.
            Err(_) => {
                drop(is_running);
                self.shared.jobs.drain();
            }
        }
    }

    /// Blocks until all jobs that were added so far are done, and also the jobs that these jobs
    /// add. Does not wait for jobs that can run only after the end of a graph capture, because the
    /// caller may have to end the capture itself.
    pub(crate) fn flush(&self) {
        // Several rounds are necessary: the release of an array that passed through several plugins
        // adds one job per plugin, and each job adds the next job. The number of rounds is bounded,
        // because other threads may add jobs forever.
        const MAX_ROUNDS: usize = 64;
        for _ in 0..MAX_ROUNDS {
            let n_added = self.shared.jobs.n_added();
            self.shared.flush(None);
            if self.shared.jobs.n_added() == n_added {
                break;
            }
        }
    }

    /// Blocks until all jobs added so far are done, and leaks all later jobs.
    pub(crate) fn flush_and_leak(&self) {
        self.flush();
        self.shared.jobs.leak();
        // Completes jobs that were added between the two previous calls.
        self.flush();
    }
}

impl Drop for Reaper {
    /// Does not join the thread. The last reference may be dropped on a thread that holds a lock,
    /// such as Python's global interpreter lock, and a release callback on the reaper's thread may
    /// need this lock. [`at_exit`] waits for the jobs when the process ends.
    fn drop(&mut self) {
        self.shared.jobs.end();
    }
}

impl Flush for Shared {
    /// Blocks until the jobs that were added so far are done, or `until` has passed.
    fn flush(&self, until: Option<Instant>) {
        if !self.is_this_thread() {
            self.jobs.flush(until);
        }
    }
}

impl Shared {
    fn is_this_thread(&self) -> bool {
        self.thread.get() == Some(&this_thread())
    }

    fn run(&self) {
        self.thread.get_or_init(this_thread);
        note_own_thread();
        // Keeps this thread's calls of the driver from breaking graph captures of other threads.
        let gpu = self.jobs.find_map(|job| {
            job.everything_on.first().or_else(|| job.events.first().map(|event| event.gpu())).cloned()
        });
        if let Some(gpu) = gpu {
            drop(gpu.relaxed());
        }
        self.jobs.run();
    }
}

impl Work for Job {
    fn run(self, status: &Status) -> Option<Self> {
        match status {
            Status::Ready => (self.then)(),
            Status::Pending | Status::Captured => return Some(self),
            Status::Never => std::mem::forget(self.then),
        }
        None
    }

    fn status(&self) -> Status {
        for event in &self.events {
            match event.is_done() {
                Ok(true) => {}
                Ok(false) => return Status::Pending,
                // The event cannot be queried, so this thread waits for the whole device. That wait
                // fails only if the device is broken.
                Err(_) => match wait_for_all(event.gpu()) {
                    Status::Ready => {}
                    otherwise => return otherwise,
                },
            }
        }
        for gpu in &self.everything_on {
            match wait_for_all(gpu) {
                Status::Ready => {}
                otherwise => return otherwise,
            }
        }
        Status::Ready
    }
}

/// Blocks until all work in flight on a device has run.
fn wait_for_all(gpu: &Gpu) -> Status {
    let Ok(_entered) = gpu.enter() else { return Status::Never };
    // SAFETY: the context is current.
    let wait = || unsafe { (gpu.driver.ctx_synchronize)() };
    // Waits again after an error. One error, such as a lack of memory, does not mean that the
    // device is broken, but a broken device returns an error every time.
    let code = match wait() {
        SUCCESS => SUCCESS,
        _ => wait(),
    };
    match code {
        SUCCESS => Status::Ready,
        // The driver does not permit this wait while a capture is open.
        900..=908 => Status::Captured,
        _ => Status::Never,
    }
}

/// The id of this thread. Works even after the thread-local variables of this thread have been
/// destroyed, for example at the end of the process.
fn this_thread() -> libc::pthread_t {
    // SAFETY: `pthread_self` has no requirements.
    unsafe { libc::pthread_self() }
}
