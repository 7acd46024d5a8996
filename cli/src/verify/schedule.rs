//! In which order cases run, and which are not worth running.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use super::case::{Lack, Outcome, Run, Skipped};
use super::coverage::Coverage;

/// A case that was run, or skipped.
pub struct Done {
    pub run: Run,
    pub outcome: Outcome,
    pub coverage: Coverage,
    pub seconds: f64,
    pub stdout: String,
    pub stderr: String,
    /// The command that runs it again, alone.
    pub replay: String,
}

struct State {
    waiting: Vec<Run>,
    running: Vec<Run>,
    bad: HashSet<&'static str>,
    error: Option<std::io::Error>,
    done: Vec<Done>,
}

/// What a free worker does next.
enum Next {
    Run(Run),
    Skip(Run, &'static str),
    Wait,
    End,
}

impl State {
    fn next(&mut self) -> Next {
        if self.error.is_some() || self.waiting.is_empty() {
            return Next::End;
        }
        let bad = |run: &Run| run.case.ground.iter().copied().find(|name| self.bad.contains(name));
        if let Some((at, ground)) =
            self.waiting.iter().enumerate().find_map(|(at, run)| bad(run).map(|ground| (at, ground)))
        {
            return Next::Skip(self.waiting.remove(at), ground);
        }
        if self.running.iter().any(|run| run.alone) {
            return Next::Wait;
        }
        let is_open = |name: &&str| {
            self.running.iter().any(|run| run.case.name == *name)
                || self.waiting.iter().any(|other| other.case.name == *name)
        };
        let may_run =
            |run: &Run| !run.case.ground.iter().any(&is_open) && (!run.alone || self.running.is_empty());
        match self.waiting.iter().position(may_run) {
            Some(at) => {
                let run = self.waiting.remove(at);
                self.running.push(run);
                Next::Run(run)
            }
            // A ground that waits for itself would wait for ever; a test sees to it that there is none.
            None if self.running.is_empty() => Next::End,
            None => Next::Wait,
        }
    }

    fn finish(&mut self, done: Done) {
        // What stands on a skipped ground is tried: it may have another reason to be skipped, or none.
        if done.outcome.is_bad() || is_groundless(&done.outcome) {
            self.bad.insert(done.run.case.name);
        }
        self.done.push(done);
    }
}

fn is_groundless(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Skipped(Skipped { lack: Lack::Ground, .. }))
}

fn groundless(ground: &str) -> Outcome {
    Outcome::Skipped(Skipped { lack: Lack::Ground, reason: format!("its ground did not pass: {ground}") })
}

/// Runs all of them, `jobs` at a time, each after its ground where that is among them, and hands each to `tell` in the order in
/// which they end.
pub fn run(
    runs: Vec<Run>,
    jobs: usize,
    start: &(dyn Fn(&Run) -> std::io::Result<Done> + Sync),
    tell: &mut dyn FnMut(Done),
) -> std::io::Result<()> {
    let total = runs.len();
    let state =
        State { waiting: runs, running: Vec::new(), bad: HashSet::new(), error: None, done: Vec::new() };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut own = lock();
        loop {
            match own.next() {
                Next::End => break,
                Next::Wait => own = changed.wait(own).unwrap_or_else(PoisonError::into_inner),
                Next::Skip(run, ground) => {
                    let outcome = groundless(ground);
                    let (coverage, stdout, stderr, replay) = Default::default();
                    own.finish(Done { run, outcome, coverage, seconds: 0.0, stdout, stderr, replay });
                    changed.notify_all();
                }
                Next::Run(run) => {
                    drop(own);
                    let done = start(&run);
                    own = lock();
                    if let Some(at) = own.running.iter().position(|other| other.is_same(&run)) {
                        own.running.swap_remove(at);
                    }
                    match done {
                        Ok(done) => own.finish(done),
                        Err(error) => own.error = Some(error),
                    }
                    changed.notify_all();
                }
            }
        }
        changed.notify_all();
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, total.max(1)) {
            scope.spawn(work);
        }
        let mut told = 0;
        let mut own = lock();
        while told < total && own.error.is_none() {
            if own.done.is_empty() {
                own = changed.wait(own).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let done = std::mem::take(&mut own.done);
            told += done.len();
            drop(own);
            done.into_iter().for_each(&mut *tell);
            own = lock();
        }
    });
    match state.into_inner().unwrap_or_else(PoisonError::into_inner).error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::super::case::{Case, Failed};
    use super::*;

    static CASES: [Case; 4] = [
        case("top", &["middle"]),
        case("middle", &["base"]),
        case("base", &[]),
        case("apart", &["elsewhere"]),
    ];

    const fn case(name: &'static str, ground: &'static [&'static str]) -> Case {
        Case { name, rule: "", stands: "", ground, on_devices: false, check: |_| Ok(()) }
    }

    fn outcomes(jobs: usize, base: Outcome) -> Vec<(&'static str, Outcome)> {
        let runs = CASES.iter().map(|case| Run { case, device: None, seed: 1, alone: false }).collect();
        let start = |run: &Run| {
            let outcome = if run.case.name == "base" { base.clone() } else { Outcome::Passed };
            let (coverage, stdout, stderr, replay) = Default::default();
            Ok(Done { run: *run, outcome, coverage, seconds: 0.0, stdout, stderr, replay })
        };
        let mut told = Vec::new();
        run(runs, jobs, &start, &mut |done| told.push((done.run.case.name, done.outcome))).unwrap();
        told
    }

    #[test]
    fn a_case_runs_after_its_ground_and_not_where_that_failed() {
        for jobs in [1, 3, 9] {
            let told = outcomes(jobs, Outcome::Passed);
            let at = |name| told.iter().position(|(other, _)| *other == name).unwrap();
            assert!(at("base") < at("middle") && at("middle") < at("top"));
            assert!(told.iter().all(|(_, outcome)| *outcome == Outcome::Passed) && told.len() == 4);

            let (place, expected, got) = Default::default();
            let told = outcomes(jobs, Outcome::Failed(Failed { place, expected, got }));
            let of = |name| told.iter().find(|(other, _)| *other == name).unwrap().1.clone();
            assert_eq!(of("middle"), groundless("base"));
            assert_eq!(of("top"), groundless("middle"));
            assert_eq!(of("apart"), Outcome::Passed);

            let here = Skipped { lack: Lack::Machine, reason: "not here".into() };
            let told = outcomes(jobs, Outcome::Skipped(here));
            assert!(told.iter().filter(|(_, outcome)| *outcome == Outcome::Passed).count() == 3);
        }
    }

    #[test]
    fn nothing_runs_beside_what_is_to_be_alone() {
        // Each of those that may run together waits for the other one.
        let runs = CASES.iter().filter(|case| case.name != "middle");
        let runs =
            runs.map(|case| Run { case, device: None, seed: 1, alone: case.name == "apart" }).collect();
        let (running, changed) = (Mutex::new(Vec::new()), Condvar::new());
        let beside = Mutex::new(Vec::new());
        let start = |run: &Run| {
            let name = run.case.name;
            let mut own = running.lock().unwrap();
            own.push(name);
            changed.notify_all();
            let alone = |own: &mut Vec<_>| own.len() == 1;
            let patience = Duration::from_millis(if run.alone { 100 } else { 20_000 });
            (own, _) = changed.wait_timeout_while(own, patience, alone).unwrap();
            beside
                .lock()
                .unwrap()
                .extend(own.iter().filter(|other| **other != name).map(|other| (name, *other)));
            drop(own);
            std::thread::sleep(Duration::from_millis(20));
            running.lock().unwrap().retain(|other| *other != name);
            let (coverage, stdout, stderr, replay) = Default::default();
            Ok(Done { run: *run, outcome: Outcome::Passed, coverage, seconds: 0.0, stdout, stderr, replay })
        };
        let mut told = Vec::new();
        super::run(runs, 3, &start, &mut |done| told.push(done.run.case.name)).unwrap();
        assert_eq!(told.last(), Some(&"apart"));
        let beside = beside.into_inner().unwrap();
        assert!(!beside.is_empty(), "jobs do not run side by side");
        assert!(beside.iter().all(|(a, b)| *a != "apart" && *b != "apart"), "{beside:?}");
    }

    #[test]
    fn what_cannot_be_started_ends_all() {
        let runs = CASES.iter().map(|case| Run { case, device: None, seed: 1, alone: false }).collect();
        let start = |_: &Run| Err(std::io::Error::other("no process"));
        assert_eq!(run(runs, 2, &start, &mut |_| {}).unwrap_err().to_string(), "no process");
    }
}
