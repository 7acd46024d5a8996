//! Runs steps in parallel.

use super::Step;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Runs `run` for every step, `slots` steps at a time. A step begins as soon as the steps that it
/// waits for have ended. If several steps can begin, the first in the list begins. Two steps that
/// build in the same folder never run at the same time.
pub fn run(steps: &[Step], slots: usize, run: impl Fn(Step) + Sync) {
    let queue = Queue {
        state: Mutex::new(State { waiting: steps.to_vec(), running: Vec::new() }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..slots.max(1) {
            scope.spawn(|| {
                while let Some(step) = queue.take() {
                    run(step);
                    queue.end(step);
                }
            });
        }
    });
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: Vec<Step>,
    running: Vec<Step>,
}

impl State {
    /// The index of the first step that can begin.
    fn ready(&self) -> Option<usize> {
        let unfinished = |step: &Step| self.waiting.contains(step) || self.running.contains(step);
        self.waiting.iter().position(|step| {
            let builds = step.build_folder();
            !step.comes_after().iter().any(unfinished)
                && (builds.is_none() || self.running.iter().all(|other| other.build_folder() != builds))
        })
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a step can begin. `None` if no steps remain.
    fn take(&self) -> Option<Step> {
        let mut state = self.lock();
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            if let Some(i) = state.ready() {
                let step = state.waiting.remove(i);
                state.running.push(step);
                return Some(step);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, step: Step) {
        self.lock().running.retain(|running| *running != step);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// The events in order: which step, and whether it began or ended.
    fn recorded(steps: &[Step], slots: usize) -> Vec<(Step, bool)> {
        let events = Mutex::new(Vec::new());
        run(steps, slots, |step| {
            events.lock().unwrap().push((step, true));
            std::thread::sleep(std::time::Duration::from_millis(1));
            events.lock().unwrap().push((step, false));
        });
        events.into_inner().unwrap()
    }

    #[test]
    fn steps_run_once_and_in_order() {
        let all = Step::value_variants();
        for slots in [1, 2, 8] {
            let events = recorded(all, slots);
            assert_eq!(events.len(), 2 * all.len());
            let at = |step, begin| events.iter().position(|event| *event == (step, begin)).unwrap();
            for step in all {
                for before in step.comes_after() {
                    assert!(at(*before, false) < at(*step, true), "{} before {}", step.name(), before.name());
                }
            }
        }
    }

    #[test]
    fn steps_with_the_same_build_folder_never_run_together() {
        let mut running: Vec<Step> = Vec::new();
        for (step, begins) in recorded(Step::value_variants(), 8) {
            running.retain(|other| *other != step);
            if begins {
                let folder = step.build_folder();
                assert!(folder.is_none() || running.iter().all(|other| other.build_folder() != folder));
                running.push(step);
            }
        }
    }

    #[test]
    fn steps_do_not_wait_for_unselected_steps() {
        assert_eq!(recorded(&[Step::Rust], 2), [(Step::Rust, true), (Step::Rust, false)]);
    }
}
