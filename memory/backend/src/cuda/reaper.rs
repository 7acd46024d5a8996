//! What happens once the device is done with something, on a thread of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::at_exit;
use super::context::Gpu;
use super::driver::{CAPTURE_MODE_RELAXED, SUCCESS};
use super::event::CudaEvent;

/// Does things after events, without anybody waiting for it. The thread is started with the first thing to do, holds no
/// lock while it does one, and ends when all of them are done and there is no reaper any more.
#[derive(Default)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    is_running: Mutex<bool>,
}

#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    thread: OnceLock<libc::pthread_t>,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    /// Taken out of `jobs`, and being done.
    busy: usize,
    /// All of `jobs` were last seen to wait for the end of a graph capture.
    captured: bool,
    /// How often all jobs have been looked at.
    rounds: u64,
    ending: bool,
    /// What comes now is never done: the process ends, and what its jobs would call is no more.
    leaking: bool,
}

/// What to do, and after what.
pub(crate) struct Job {
    /// All of these have passed.
    pub events: Vec<Arc<CudaEvent>>,
    /// And everything that is in flight on these devices, strangers' work included.
    pub everything_on: Vec<Arc<Gpu>>,
    pub then: Box<dyn FnOnce() + Send>,
}

enum Standing {
    Ready,
    Later,
    /// Later, and not before a capture ends.
    Captured,
    /// The device is broken: there will be no safe moment.
    Never,
}

/// Between two looks at events: short after something has happened, longer when nothing does.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(2);

impl Reaper {
    pub(crate) fn add(&self, job: Job) {
        let mut is_running = lock(&self.is_running);
        {
            let mut state = lock(&self.shared.state);
            if state.leaking {
                return std::mem::forget(job);
            }
            state.jobs.push(job);
            state.captured = false;
        }
        self.shared.changed.notify_all();
        if !*is_running {
            let shared = self.shared.clone();
            let spawned = std::thread::Builder::new().name("crossdock-reaper".into());
            match spawned.spawn(move || shared.run()) {
                Ok(_) => {
                    *is_running = true;
                    at_exit::watch(Arc::downgrade(&self.shared));
                }
                // No thread to be had: done here, late but safely.
                Err(_) => {
                    drop(is_running);
                    self.shared.drain();
                }
            }
        }
    }

    /// Blocks until all that was added so far is done, but for what waits for the end of a graph capture: that may be up to
    /// the caller.
    pub(crate) fn flush(&self) {
        self.shared.flush(None);
    }

    /// Blocks until all that was added so far is done; what is added later never is.
    pub(crate) fn flush_and_leak(&self) {
        self.flush();
        lock(&self.shared.state).leaking = true;
        // What came in between.
        self.flush();
    }
}

impl Drop for Reaper {
    /// Nobody waits for the thread: the last owner may go on any stack, and hold a lock that a stranger's function, which the
    /// thread is calling, waits for. Python's is one. At the process's end [`at_exit`] waits.
    fn drop(&mut self) {
        lock(&self.shared.state).ending = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// As [`Reaper::flush`], and not for longer than `until`.
    pub(super) fn flush(&self, until: Option<Instant>) {
        if self.is_this_thread() {
            return;
        }
        let mut state = lock(&self.state);
        // What was seen before now may be over: that takes a round that begins after this, and so the second to end.
        let fresh = state.rounds + 2;
        let done = |state: &State| state.jobs.is_empty() || (state.captured && state.rounds >= fresh);
        while state.busy > 0 || !done(&state) {
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn is_this_thread(&self) -> bool {
        self.thread.get() == Some(&this_thread())
    }

    fn run(&self) {
        self.thread.get_or_init(this_thread);
        self.relax();
        let mut pause = SHORTEST;
        loop {
            let did = self.round();
            let state = lock(&self.state);
            if state.jobs.is_empty() {
                if state.ending {
                    return;
                }
                drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
                pause = SHORTEST;
                continue;
            }
            pause = if did { SHORTEST } else { (pause * 2).min(LONGEST) };
            drop(self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// A capture elsewhere in the process must not be broken by what this thread asks the driver.
    fn relax(&self) {
        let gpu = lock(&self.state).jobs.iter().find_map(|job| {
            job.everything_on.first().or_else(|| job.events.first().map(|event| event.gpu())).cloned()
        });
        if let Some(gpu) = gpu {
            let mut mode = CAPTURE_MODE_RELAXED;
            // SAFETY: a pointer to a local.
            unsafe { (gpu.driver.thread_exchange_capture_mode)(&mut mode) };
        }
    }

    /// One look at each job; whether any was done.
    fn round(&self) -> bool {
        let jobs = {
            let mut state = lock(&self.state);
            let jobs = std::mem::take(&mut state.jobs);
            state.busy = jobs.len();
            jobs
        };
        let (mut did, mut captured) = (false, 0);
        for job in jobs {
            let standing = job.state();
            // No part of a job outlives this: who waits for those that are busy may end the process.
            let later = job.act(&standing);
            did |= later.is_none();
            captured += usize::from(matches!(standing, Standing::Captured));
            let mut state = lock(&self.state);
            state.jobs.extend(later);
            state.busy -= 1;
            state.captured = state.jobs.len() == captured;
            self.changed.notify_all();
        }
        lock(&self.state).rounds += 1;
        self.changed.notify_all();
        did
    }

    fn drain(&self) {
        while !lock(&self.state).jobs.is_empty() {
            if !self.round() {
                std::thread::sleep(SHORTEST);
            }
        }
    }
}

impl Job {
    /// Does it if it can be done now; itself where that is later.
    fn act(self, standing: &Standing) -> Option<Self> {
        match standing {
            Standing::Ready => (self.then)(),
            Standing::Later | Standing::Captured => return Some(self),
            Standing::Never => std::mem::forget(self.then),
        }
        None
    }

    fn state(&self) -> Standing {
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
    match unsafe { (gpu.driver.ctx_synchronize)() } {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
