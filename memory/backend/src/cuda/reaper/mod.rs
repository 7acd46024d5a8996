//! What happens once the device is done with something, on a thread of its own.

mod queue;
mod sync;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::at_exit::{self, Flushes};
use super::context::Gpu;
use super::driver::{CAPTURE_MODE_RELAXED, SUCCESS};
use super::event::CudaEvent;
use queue::{Queue, Standing, Work};

/// Does things after events, without anybody waiting for it. The thread is started with the first thing to do, holds no
/// lock while it does one, and ends when all of them are done and there is no reaper any more.
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

/// What to do, and after what.
pub(crate) struct Job {
    /// All of these have passed.
    pub events: Vec<Arc<CudaEvent>>,
    /// And everything that is in flight on these devices, strangers' work included.
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
        let spawned = std::thread::Builder::new().name("crossdock-reaper".into());
        match spawned.spawn(move || shared.run()) {
            Ok(_) => {
                *is_running = true;
                let shared: Arc<dyn Flushes> = self.shared.clone();
                at_exit::watch(Arc::downgrade(&shared));
            }
            // No thread to be had: done here, late but safely.
            Err(_) => {
                drop(is_running);
                self.shared.jobs.drain();
            }
        }
    }

    /// Blocks until all that was added so far is done, with what these jobs add in turn, but for what waits for the end of a graph
    /// capture: that may be up to the caller.
    pub(crate) fn flush(&self) {
        // The release of an array that passed through several plugins adds a job for each. Other threads may add jobs for ever.
        const MAX_ROUNDS: usize = 64;
        for _ in 0..MAX_ROUNDS {
            let before = self.shared.jobs.added();
            self.shared.flush(None);
            if self.shared.jobs.added() == before {
                break;
            }
        }
    }

    /// Blocks until all that was added so far is done; what is added later never is.
    pub(crate) fn flush_and_leak(&self) {
        self.flush();
        self.shared.jobs.leak();
        // What came in between.
        self.flush();
    }
}

impl Drop for Reaper {
    /// Nobody waits for the thread: the last owner may go on any stack, and hold a lock that a stranger's function, which the
    /// thread is calling, waits for. Python's is one. At the process's end [`at_exit`] waits.
    fn drop(&mut self) {
        self.shared.jobs.end();
    }
}

impl Flushes for Shared {
    /// As [`Reaper::flush`], and not for longer than `until`.
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
        self.relax();
        self.jobs.run();
    }

    /// A capture elsewhere in the process must not be broken by what this thread asks the driver.
    fn relax(&self) {
        let gpu = self.jobs.find(|job| {
            job.everything_on.first().or_else(|| job.events.first().map(|event| event.gpu())).cloned()
        });
        if let Some(gpu) = gpu {
            let mut mode = CAPTURE_MODE_RELAXED;
            // SAFETY: a pointer to a local.
            unsafe { (gpu.driver.thread_exchange_capture_mode)(&mut mode) };
        }
    }
}

impl Work for Job {
    fn act(self, standing: &Standing) -> Option<Self> {
        match standing {
            Standing::Ready => (self.then)(),
            Standing::Later | Standing::Captured => return Some(self),
            Standing::Never => std::mem::forget(self.then),
        }
        None
    }

    fn standing(&self) -> Standing {
        for event in &self.events {
            match event.is_done() {
                Ok(true) => {}
                Ok(false) => return Standing::Later,
                // It cannot be asked, so everything is waited for, which fails where the device is broken.
                Err(_) => match wait_for_all(event.gpu()) {
                    Standing::Ready => {}
                    otherwise => return otherwise,
                },
            }
        }
        for gpu in &self.everything_on {
            match wait_for_all(gpu) {
                Standing::Ready => {}
                otherwise => return otherwise,
            }
        }
        Standing::Ready
    }
}

/// Blocks until everything that is in flight on a device has run.
fn wait_for_all(gpu: &Gpu) -> Standing {
    let Ok(_entered) = gpu.enter() else { return Standing::Never };
    // SAFETY: the context is current.
    let wait = || unsafe { (gpu.driver.ctx_synchronize)() };
    // One refusal, as where memory is short, says nothing of the device: a broken one goes on refusing.
    let code = match wait() {
        SUCCESS => SUCCESS,
        _ => wait(),
    };
    match code {
        SUCCESS => Standing::Ready,
        // A capture that is open may not be waited for.
        900..=908 => Standing::Captured,
        _ => Standing::Never,
    }
}

/// Also where the thread's own variables are gone, as at the end of a process.
fn this_thread() -> libc::pthread_t {
    // SAFETY: a plain question.
    unsafe { libc::pthread_self() }
}
