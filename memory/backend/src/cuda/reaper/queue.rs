//! Queues jobs that wait for a device, and lets threads wait until jobs are done. tests/models runs
//! this file under loom.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, MutexGuard};

/// A job of a [`Queue`].
pub(crate) trait Work: Sized {
    fn status(&self) -> Status;

    /// Runs the job if `status` is [`Status::Ready`]. Returns the job if it must still wait.
    fn run(self, status: &Status) -> Option<Self>;
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ready,
    Pending,
    /// Pending, at least until a graph capture ends.
    Captured,
    /// The device is broken, so the job can never run safely.
    Never,
}

/// A queue of jobs. It holds no lock while it checks or runs a job.
pub(crate) struct Queue<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
}

struct State<W> {
    /// The jobs that no thread is checking, with their numbers.
    jobs: Vec<(u64, W)>,
    /// For each unfinished job, by number: whether its last check returned [`Status::Captured`].
    /// Jobs that are being checked are included.
    unfinished: BTreeMap<u64, bool>,
    next: u64,
    /// Number of completed rounds over all jobs.
    rounds: u64,
    ending: bool,
    /// Whether new jobs are leaked, because the process is ending and the code that the jobs would
    /// call may no longer exist.
    leaking: bool,
}

/// Bounds of the pause between two rounds. The pause is shortest after a round that finished a job,
/// and doubles after each round that finished no job.
const MIN_PAUSE: Duration = Duration::from_micros(50);
const MAX_PAUSE: Duration = Duration::from_millis(2);

impl<W> Default for Queue<W> {
    fn default() -> Self {
        let (jobs, unfinished) = (Vec::new(), BTreeMap::new());
        let state = State { jobs, unfinished, next: 0, rounds: 0, ending: false, leaking: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<W: Work> Queue<W> {
    /// Adds a job. Returns `false` if the job was leaked instead.
    pub(crate) fn add(&self, job: W) -> bool {
        let mut state = self.state();
        if state.leaking {
            std::mem::forget(job);
            return false;
        }
        let number = state.next;
        state.next += 1;
        state.unfinished.insert(number, false);
        state.jobs.push((number, job));
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Number of jobs added so far.
    pub(crate) fn n_added(&self) -> u64 {
        self.state().next
    }

    /// Blocks until all jobs that were added so far are done, or `until` has passed. Does not wait
    /// for jobs that can run only after the end of a graph capture, because the caller may have to
    /// end the capture itself.
    pub(crate) fn flush(&self, until: Option<Instant>) {
        let mut state = self.state();
        // The last check of a job may be outdated, because a capture may have ended since then. So
        // this call waits for the end of two rounds. The second round begins after this call, and
        // checks all these jobs again.
        let (end, fresh) = (state.next, state.rounds + 2);
        let is_done = |state: &State<W>| {
            let mut remaining = state.unfinished.range(..end).peekable();
            remaining.peek().is_none() || (state.rounds >= fresh && remaining.all(|(_, captured)| *captured))
        };
        while !is_done(&state) {
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(remaining) => self.wait_for(state, remaining),
                None => self.wait(state),
            };
        }
    }

    /// Leaks all jobs that are added from now on.
    pub(crate) fn leak(&self) {
        self.state().leaking = true;
    }

    /// Makes [`Self::run`] return when all jobs are done.
    pub(crate) fn end(&self) {
        self.state().ending = true;
        self.changed.notify_all();
    }

    /// Runs jobs until [`Self::end`] has been called and all jobs are done.
    pub(crate) fn run(&self) {
        let mut pause = MIN_PAUSE;
        loop {
            let has_progress = self.round();
            let state = self.state();
            if state.jobs.is_empty() {
                if state.ending {
                    return;
                }
                drop(self.wait(state));
                pause = MIN_PAUSE;
                continue;
            }
            pause = if has_progress { MIN_PAUSE } else { (pause * 2).min(MAX_PAUSE) };
            drop(self.wait_for(state, pause));
        }
    }

    /// Runs jobs on this thread until none is left.
    pub(crate) fn drain(&self) {
        while !self.state().jobs.is_empty() {
            if !self.round() {
                std::thread::sleep(MIN_PAUSE);
            }
        }
    }

    /// Checks each job once, and runs the jobs that are ready. Returns whether any job was
    /// finished.
    pub(crate) fn round(&self) -> bool {
        let jobs = {
            let mut state = self.state();
            let jobs = std::mem::take(&mut state.jobs);
            // Jobs that are being checked do not count as captured, because they may be running.
            state.unfinished.extend(jobs.iter().map(|(number, _)| (*number, false)));
            jobs
        };
        let mut has_progress = false;
        for (number, job) in jobs {
            let status = job.status();
            // `run` consumes the job, so that the job has been destroyed before waiting threads are
            // notified that it is done. These threads may then end the process.
            let pending = job.run(&status);
            let mut state = self.state();
            match pending {
                Some(job) => {
                    state.unfinished.insert(number, status == Status::Captured);
                    state.jobs.push((number, job));
                }
                None => {
                    state.unfinished.remove(&number);
                    has_progress = true;
                }
            }
            drop(state);
            self.changed.notify_all();
        }
        self.state().rounds += 1;
        self.changed.notify_all();
        has_progress
    }

    /// The first `Some` that `f` returns for a job.
    pub(crate) fn find_map<T>(&self, f: impl Fn(&W) -> Option<T>) -> Option<T> {
        self.state().jobs.iter().find_map(|(_, job)| f(job))
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<W>>) -> MutexGuard<'a, State<W>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, state: MutexGuard<'a, State<W>>, time: Duration) -> MutexGuard<'a, State<W>> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }
}
