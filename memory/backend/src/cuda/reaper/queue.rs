//! Jobs that wait for a device, and who waits for them. tests/models runs this very file in every order of its threads.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, MutexGuard};

/// Something to do once.
pub(crate) trait Work: Sized {
    fn standing(&self) -> Standing;

    /// Does it if it can be done now; itself where that is later.
    fn act(self, standing: &Standing) -> Option<Self>;
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Ready,
    Later,
    /// Later, and not before a capture ends.
    Captured,
    /// The device is broken: there will be no safe moment.
    Never,
}

/// Holds no lock while a job is looked at or done.
pub(crate) struct Queue<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
}

struct State<W> {
    /// Those that nobody looks at just now, with their numbers.
    jobs: Vec<(u64, W)>,
    /// The numbers of all that are not done, whoever looks at them, and whether they were last seen to wait for the end of a
    /// graph capture.
    undone: BTreeMap<u64, bool>,
    next: u64,
    /// How often all jobs have been looked at.
    rounds: u64,
    ending: bool,
    /// What comes now is never done: the process ends, and what its jobs would call is no more.
    leaking: bool,
}

/// Between two looks at events: short after something has happened, longer when nothing does.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(2);

impl<W> Default for Queue<W> {
    fn default() -> Self {
        let (jobs, undone) = (Vec::new(), BTreeMap::new());
        let state = State { jobs, undone, next: 0, rounds: 0, ending: false, leaking: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<W: Work> Queue<W> {
    /// Whether it will be done.
    pub(crate) fn add(&self, job: W) -> bool {
        let mut state = self.state();
        if state.leaking {
            std::mem::forget(job);
            return false;
        }
        let number = state.next;
        state.next += 1;
        state.undone.insert(number, false);
        state.jobs.push((number, job));
        drop(state);
        self.changed.notify_all();
        true
    }

    /// How many jobs were ever added.
    pub(crate) fn added(&self) -> u64 {
        self.state().next
    }

    /// Blocks until all that was added so far is done, and not for longer than `until`, but for what waits for the end of a
    /// graph capture: that may be up to the caller.
    pub(crate) fn flush(&self, until: Option<Instant>) {
        let mut state = self.state();
        // What was seen before now may be over: that takes a round that begins after this, and so the second to end.
        let (later, fresh) = (state.next, state.rounds + 2);
        let is_done = |state: &State<W>| {
            let mut left = state.undone.range(..later).peekable();
            left.peek().is_none() || (state.rounds >= fresh && left.all(|(_, captured)| *captured))
        };
        while !is_done(&state) {
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(left) => self.wait_for(state, left),
                None => self.wait(state),
            };
        }
    }

    /// What is added from now on is never done.
    pub(crate) fn leak(&self) {
        self.state().leaking = true;
    }

    /// [`Self::run`] returns when all is done.
    pub(crate) fn end(&self) {
        self.state().ending = true;
        self.changed.notify_all();
    }

    /// Does what is added, until the end.
    pub(crate) fn run(&self) {
        let mut pause = SHORTEST;
        loop {
            let did = self.round();
            let state = self.state();
            if state.jobs.is_empty() {
                if state.ending {
                    return;
                }
                drop(self.wait(state));
                pause = SHORTEST;
                continue;
            }
            pause = if did { SHORTEST } else { (pause * 2).min(LONGEST) };
            drop(self.wait_for(state, pause));
        }
    }

    /// Does what is there, and returns.
    pub(crate) fn drain(&self) {
        while !self.state().jobs.is_empty() {
            if !self.round() {
                std::thread::sleep(SHORTEST);
            }
        }
    }

    /// One look at each job; whether any was done.
    pub(crate) fn round(&self) -> bool {
        let jobs = {
            let mut state = self.state();
            let jobs = std::mem::take(&mut state.jobs);
            // What is being looked at may be being done.
            state.undone.extend(jobs.iter().map(|(number, _)| (*number, false)));
            jobs
        };
        let mut did = false;
        for (number, job) in jobs {
            let standing = job.standing();
            // No part of a job outlives this: who waits for those that are being done may end the process.
            let later = job.act(&standing);
            let mut state = self.state();
            match later {
                Some(job) => {
                    state.undone.insert(number, standing == Standing::Captured);
                    state.jobs.push((number, job));
                }
                None => {
                    state.undone.remove(&number);
                    did = true;
                }
            }
            drop(state);
            self.changed.notify_all();
        }
        self.state().rounds += 1;
        self.changed.notify_all();
        did
    }

    /// The first answer that a job gives.
    pub(crate) fn find<T>(&self, of: impl Fn(&W) -> Option<T>) -> Option<T> {
        self.state().jobs.iter().find_map(|(_, job)| of(job))
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
